"""Codes, tuning parameters and local sizes together: exact counts and uniform samples.

Given the tuning parameters, blocks of codes are independent (:mod:`diagram.blocks`), and what
a block demands of parameters and sizes depends on the class of its codes only. The largest
block (the main one) is solved together with all parameters, the others together with the
parameters that they speak of; counts are multiplied where these shared parameters agree.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, islice, product
from math import prod
from random import Random
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mapper.constraint_rules.predicate import (
    CodeVariable,
    LocalSizeVariable,
    ParameterVariable,
    Predicate,
    Variable,
    variables,
)
from mapper.solver.diagram.blocks import Block, CodeClass, code_blocks
from mapper.solver.diagram.compile import conjuncts
from mapper.solver.joint_draws import Proposals
from mapper.solver.joint_part import Part
from mapper.solver.limits import Watch
from mapper.solver.parameter_table import Parameters
from mapper.solver.space import Space

Array = NDArray[Any]
Item = TypeVar("Item")
# Draws of parameters and sizes, in growing batches, before what fits is worked out exactly.
_TRIES = (1 << 10, 1 << 13, 1 << 16)
_MORE_TRIES = (1 << 16,) * 16
# So many combinations of the shared parameters are decided one by one for a class that is not
# counted over tables.
_FEW_ROWS = 64


class JointSpace:
    """A space with codes, in parts that are counted and drawn from on their own.

    NotBooleanError from the constructor where constraints mix codes and arithmetic in a way
    that is not taken apart.
    """

    def __init__(self, space: Space, watch: Watch | None = None) -> None:
        self.space = space
        self._watch = watch or Watch()
        self._blocks, always = code_blocks(space, self._watch)
        self._names = [variable for variable, _ in space.variables]
        self._loose = [
            predicate
            for constraint in space.constraints
            for predicate in conjuncts(constraint.predicate)
            if not any(isinstance(name, CodeVariable) for name in variables(predicate))
        ]
        self._loose += [part for predicate in always for part in conjuncts(predicate)]
        self._sizes_in_main = True
        self._parameters = Parameters(space, self._loose, (), self._watch)
        self._parts = self._make_parts() if self._blocks else []
        self._proposals = Proposals(space, self._loose, self._parameters, self._watch)

    def _make_parts(self) -> list[Part]:
        """The main part first."""
        loose = self._loose
        blocks = sorted(self._blocks, key=lambda block: -len(block.classes))
        names = [_names_of(block) for block in blocks]
        sizes_of = [_sizes(found, loose) for found in names]
        shared: set[Variable] = set()
        for found, sizes in zip(names[1:], sizes_of[1:], strict=True):
            shared |= {name for name in found if isinstance(name, ParameterVariable)}
            for predicate in loose:
                if not sizes.isdisjoint(variables(predicate)):
                    shared |= {v for v in variables(predicate) if isinstance(v, ParameterVariable)}
        others = frozenset[Variable]().union(*sizes_of[1:])
        self._sizes_in_main = not others
        ordered = [v for v, _ in self.space.variables if v in shared]
        self._parameters = Parameters(self.space, loose, ordered, self._watch)
        entries = [e for e in self.space.variables if not isinstance(e[0], CodeVariable)]
        parts: list[Part] = []
        for place, (block, sizes) in enumerate(zip(blocks, sizes_of, strict=True)):
            if place == 0:
                own = [entry for entry in entries if entry[0] not in others]
                inside = [p for p in loose if others.isdisjoint(variables(p))]
            else:
                own = [e for e in entries if e[0] in sizes or e[0] in shared]
                inside = [p for p in loose if not sizes.isdisjoint(variables(p))]
            parts.append(Part(block, own, inside, self._parameters, place == 0, self._watch))
        return parts

    # Counting

    @property
    def relaxed_mappings(self) -> int:
        """The number of code choices before parameters and sizes are asked for."""
        if not self._parts:
            return 0
        total = 1
        for block in self._blocks:
            total *= sum(code_class.paths for code_class in block.classes)
        return total

    def count_joint(self) -> int:
        """The number of assignments of codes, parameters and sizes, exact."""
        return sum(self._joint_weights.values())

    def count_mappings(self) -> int:
        """The number of code choices with which some parameters and sizes go, exact.

        If it is cut short, :attr:`counted` is a lower bound.
        """
        self.counted = 0
        if not self._parts:
            return 0
        # Which combinations of the shared parameters the other parts allow, and for how many
        # of their choices.
        others: dict[int, int] = {-1: 1}
        for part in self._parts[1:]:
            sets: dict[int, int] = {}
            for code_class, counts in part.all_counts():
                feasible = _as_bits(counts > 0)
                sets[feasible] = sets.get(feasible, 0) + code_class.paths
            joined: dict[int, int] = {}
            for left, count in others.items():
                for right, paths in sets.items():
                    if left & right:
                        joined[left & right] = joined.get(left & right, 0) + count * paths
            others = joined
        ways_of: dict[int, int] = {}
        for code_class, feasible in self._main_feasible():
            key = _as_bits(feasible)
            if key not in ways_of:
                ways_of[key] = sum(count for other, count in others.items() if other & key)
            self.counted += code_class.paths * ways_of[key]
        return self.counted

    counted = 0

    def _main_feasible(self) -> Iterator[tuple[CodeClass, Array]]:
        """For each class of the main part and each combination of the shared parameters
        whether some values go with both."""
        main, rows = self._parts[0], self._universe_rows
        few = rows <= _FEW_ROWS
        shown = main.always_feasible() if few else set[CodeClass]()
        left: list[CodeClass] = []
        for done, code_class in enumerate(main.block.classes):
            self._watch.tick(done / len(main.block.classes))
            if code_class in shown:
                yield code_class, np.ones(rows, np.bool_)
            elif few and self._sizes_in_main and not main.is_tabled(code_class):
                yield code_class, self._proposals.feasible_rows(code_class)
            else:
                left.append(code_class)
        for code_class, counts in main.all_counts(left):
            self._watch.tick()
            yield code_class, counts > 0

    def mappings(self) -> Iterator[dict[Variable, int]]:
        """Every choice of codes with which some parameters and sizes go, each once."""
        if not self._parts:
            return
        everything: Array = np.ones(self._universe_rows, np.bool_)
        for chosen in self._feasible([], everything):
            lists = [
                part.block.all_of(code_class)
                for part, code_class in zip(self._parts, chosen, strict=True)
            ]
            for choice in product(*lists):
                codes: dict[Variable, int] = {}
                for part_codes in choice:
                    codes |= part_codes
                yield {name: codes[name] for name in self._names if name in codes}

    def completed(self, skip: int = 0) -> Iterator[dict[Variable, int]]:
        """As :meth:`mappings`, in the same order, each with values that go with it, and without
        the first ``skip``.

        What goes with a mapping depends on its classes alone, so that mappings of the same
        classes have the same values.
        """
        if not self._parts:
            return
        makers = [_Completions(part) for part in self._parts]
        everything: Array = np.ones(self._universe_rows, np.bool_)
        for chosen in self._feasible([], everything):
            number = prod(code_class.paths for code_class in chosen)
            if skip >= number:
                skip -= number
                continue
            both = everything.copy()
            for part, code_class in zip(self._parts, chosen, strict=True):
                both &= part.counts(code_class) > 0
            row = int(np.argmax(both))
            values: dict[Variable, int] = {}
            lists: list[list[dict[Variable, int]]] = []
            for maker, code_class in zip(makers, chosen, strict=True):
                values |= maker.values(code_class, row)
                lists.append(maker.codes(code_class))
            for choice in islice(product(*lists), skip, None):
                found = dict(values)
                for part_codes in choice:
                    found |= part_codes
                yield {name: found[name] for name in self._names}
            skip = 0

    def _feasible(self, chosen: list[CodeClass], allowed: Array) -> Iterator[tuple[CodeClass, ...]]:
        """Classes of all parts that go together, given those of the first parts."""
        if len(chosen) == len(self._parts):
            yield tuple(chosen)
            return
        part = self._parts[len(chosen)]
        for code_class in part.block.classes:
            self._watch.tick()
            both = allowed & (part.counts(code_class) > 0)
            if both.any():
                yield from self._feasible([*chosen, code_class], both)

    @property
    def _universe_rows(self) -> int:
        return self._parameters.universe.rows

    @cached_property
    def _other_weights(self) -> Array:
        """For each combination of the shared parameters, the choices of all other parts."""
        total: Array = np.ones(self._universe_rows, object)
        for part in self._parts[1:]:
            own: Array = np.zeros(self._universe_rows, object)
            for code_class, counts in part.all_counts():
                own = own + code_class.paths * counts.astype(object)
            total = total * own
        return total

    @cached_property
    def _joint_weights(self) -> dict[CodeClass, int]:
        """For each class of the main part the number of assignments that have it."""
        if not self._parts:
            return {}
        found: dict[CodeClass, int] = {}
        main = self._parts[0]
        for code_class, counts in main.all_counts():
            self._watch.tick(len(found) / len(main.block.classes))
            ways = int((counts.astype(object) * self._other_weights).sum())
            found[code_class] = code_class.paths * ways
        return found

    # Drawing

    @cached_property
    def _promising(self) -> list[list[CodeClass]]:
        """Of each part the classes that may be feasible: others are left out where it is cheap
        to know, where a part has no sizes."""
        found: list[list[CodeClass]] = []
        for place, part in enumerate(self._parts):
            classes = list(part.block.classes)
            if place and not part.has_sizes:
                classes = [c for c in classes if part.counts(c).any()]
            found.append(classes)
        return found

    def draw_mapping(self, random: Random) -> dict[Variable, int] | None:
        """A mapping and values, or None.

        Every valid mapping is equally likely among those that are not None; its values are
        uniform among those that go with it.
        """
        if not self._parts:
            return None
        chosen: list[CodeClass] = []
        for classes in self._promising:
            if not classes:
                return None
            chosen.append(_weighted(classes, [c.paths for c in classes], random))
        if self._sizes_in_main:
            values = self._proposals.draw(chosen, random, _TRIES)
            if values is None:
                if not self._proposals.is_feasible(chosen):
                    return None
                values = self._proposals.draw(chosen, random, _MORE_TRIES)
            if values is not None:
                codes = self._codes(chosen, random)
                return {name: codes.get(name, values.get(name, 0)) for name in self._names}
        weights: Array = np.ones(self._universe_rows, object)
        for part, code_class in zip(self._parts, chosen, strict=True):
            weights = weights * part.counts(code_class).astype(object)
        if not weights.any():
            return None
        row = _weighted(range(len(weights)), weights.tolist(), random)
        return self._assignment(chosen, row, random)

    @cached_property
    def _joint_sums(self) -> list[int]:
        classes = self._parts[0].block.classes
        return list(accumulate(self._joint_weights[code_class] for code_class in classes))

    def draw_joint(self, random: Random) -> dict[Variable, int] | None:
        """An assignment, each equally likely; None if there is none. Counts all at first."""
        if not self._parts or not self._joint_sums[-1]:
            return None
        main, *others = self._parts
        chosen = [_cumulated(main.block.classes, self._joint_sums, random)]
        rows = main.counts(chosen[0]).astype(object) * self._other_weights
        row = _weighted(range(len(rows)), rows.tolist(), random)
        for part in others:
            weights = [
                code_class.paths * int(part.counts(code_class)[row])
                for code_class in part.block.classes
            ]
            chosen.append(_weighted(part.block.classes, weights, random))
        return self._assignment(chosen, row, random)

    def _assignment(
        self, chosen: Sequence[CodeClass], row: int, random: Random
    ) -> dict[Variable, int]:
        """Codes of the classes and values that go with them, where the shared ones are given."""
        found = self._codes(chosen, random)
        for part, code_class in zip(self._parts, chosen, strict=True):
            found |= part.draw(code_class, row, random)
        return {name: found[name] for name in self._names}

    def _codes(self, chosen: Sequence[CodeClass], random: Random) -> dict[Variable, int]:
        return {
            name: int(column[0])
            for part, code_class in zip(self._parts, chosen, strict=True)
            for name, column in part.block.draw(code_class, 1, random).items()
        }


class _Completions:
    """Of one part the codes of a class, and values that go with it, always the same ones.

    Listing mappings changes the class of few parts from one mapping to the next, so that the
    latest ones are kept.
    """

    def __init__(self, part: Part) -> None:
        self._part = part
        self._class: CodeClass | None = None
        self._codes: list[dict[Variable, int]] = []
        self._values: dict[int, dict[Variable, int]] = {}

    def codes(self, code_class: CodeClass) -> list[dict[Variable, int]]:
        self._turn_to(code_class)
        if not self._codes:
            self._codes = self._part.block.all_of(code_class)
        return self._codes

    def values(self, code_class: CodeClass, row: int) -> dict[Variable, int]:
        self._turn_to(code_class)
        if row not in self._values:
            self._values[row] = self._part.draw(code_class, row, Random(0))
        return self._values[row]

    def _turn_to(self, code_class: CodeClass) -> None:
        if code_class is not self._class:
            self._class, self._codes, self._values = code_class, [], {}


def _names_of(block: Block) -> frozenset[Variable]:
    """What a block speaks of besides its codes."""
    names: set[Variable] = set()
    for code_class in block.classes:
        for predicate in code_class.residual:
            names |= variables(predicate)
    return frozenset(names)


def _sizes(names: frozenset[Variable], loose: Sequence[Predicate]) -> frozenset[Variable]:
    """The local sizes of a block, with those that constraints tie to them."""
    found = {name for name in names if isinstance(name, LocalSizeVariable)}
    growing = bool(found)
    while growing:
        growing = False
        for predicate in loose:
            tied = {v for v in variables(predicate) if isinstance(v, LocalSizeVariable)}
            if tied & found and not tied <= found:
                found |= tied
                growing = True
    return frozenset(found)


def _as_bits(truths: Array) -> int:
    return int.from_bytes(np.packbits(truths).tobytes(), "big")


def _weighted(items: Sequence[Item], weights: Sequence[int], random: Random) -> Item:
    """One item, drawn with probability proportional to its weight, exactly."""
    return _cumulated(items, list(accumulate(weights)), random)


def _cumulated(items: Sequence[Item], sums: Sequence[int], random: Random) -> Item:
    rank = random.randrange(sums[-1])
    return items[bisect_right(sums, rank)]
