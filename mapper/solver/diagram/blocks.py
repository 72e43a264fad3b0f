"""Codes that constraints tie together, and what each choice of them demands of the rest.

A block's codes are independent of all other codes; what joins blocks are tuning parameters and
local sizes, of which conditions (atoms) speak. All choices of a block's codes after which the
same conditions remain are one class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.constraint_rules.predicate import (
    CodeVariable,
    LocalSizeVariable,
    Predicate,
    Variable,
    all_of,
    any_of,
    negate,
    variables,
)
from mapper.solver.diagram.automaton import build_automaton
from mapper.solver.diagram.bit_sweep import bit_sweep, too_many_classes
from mapper.solver.diagram.compile import conjuncts
from mapper.solver.diagram.events import (
    Conjunction,
    EventCompiler,
    Events,
    part_of,
    reordered,
    scopes_of,
)
from mapper.solver.diagram.layers import (
    Diagram,
    Layer,
    ranks_below,
    reversed_layers,
    suffix_counts,
    walk,
)
from mapper.solver.diagram.order import bits, group_order, groups_of
from mapper.solver.diagram.residual import Residual, ResidualReader
from mapper.solver.limits import Watch
from mapper.solver.space import Space

Array = NDArray[Any]
# Beyond these a block is not taken apart: its classes are read one by one.
_MOST_STATES = 1 << 18
_MOST_ENDS = 1 << 16
# So many are read between two looks at the clock.
_READ = 1 << 10


@dataclass(frozen=True, slots=True)
class CodeClass:
    """Choices of a block's codes with one residual; ``paths`` of them, ending in ``states``."""

    residual: Residual
    paths: int
    states: tuple[int, ...]


class Block:
    """All valid choices of some codes, as a diagram with an end for each residual."""

    def __init__(
        self,
        codes: Sequence[CodeVariable],
        layers: list[Layer],
        residuals: Sequence[Residual],
    ) -> None:
        self.codes = tuple(codes)
        self.layers = Diagram(layers, codes, {}).layers
        self._backward = reversed_layers(self.layers)
        states: dict[Residual, list[int]] = {}
        for state, residual in enumerate(residuals):
            states.setdefault(residual, []).append(state)
        self.classes = tuple(
            CodeClass(residual, sum(int(self.paths[state]) for state in ends), tuple(ends))
            for residual, ends in states.items()
        )

    @cached_property
    def _suffixes(self) -> list[Array]:
        return suffix_counts(self._backward)

    @property
    def paths(self) -> Array:
        """For each end the number of choices that lead there."""
        return self._suffixes[0]

    def draw(self, code_class: CodeClass, number: int, random: Random) -> dict[Variable, Array]:
        """Choices of a class, uniformly and independently."""
        ranks = ranks_below(code_class.paths, number, random)
        states: list[int] = []
        for place, rank in enumerate(ranks):
            for state in code_class.states:
                own = int(self.paths[state])
                if rank < own:
                    states.append(state)
                    ranks[place] = rank
                    break
                rank -= own
        return walk(self._backward, self._suffixes, np.array(states, np.int64), ranks)

    def all_of(self, code_class: CodeClass) -> list[dict[Variable, int]]:
        """Every choice of a class."""
        found: list[dict[Variable, int]] = []
        for state in code_class.states:
            ranks = list(range(int(self.paths[state])))
            starts = np.full(len(ranks), state, np.int64)
            chosen = walk(self._backward, self._suffixes, starts, ranks)
            columns = {name: column.tolist() for name, column in chosen.items()}
            found += [{name: column[i] for name, column in columns.items()} for i in ranks]
        return found


def code_blocks(space: Space, watch: Watch) -> tuple[list[Block], list[Predicate]]:
    """The blocks of a space, none if no choice of codes is possible at all.

    Also what the constraints over codes demand of the other variables whatever the codes are.

    NotBooleanError if a constraint mixes codes and arithmetic in a way that is not taken apart.
    """
    domains = space.domains
    codes = [v for v, _ in space.variables if isinstance(v, CodeVariable)]
    known = frozenset(codes)
    compiler = EventCompiler(domains, codes)
    mixed = [
        predicate
        for constraint in space.constraints
        for predicate in conjuncts(constraint.predicate)
        if not known.isdisjoint(variables(predicate))
    ]
    events = compiler.compile(mixed)
    found: list[Block] = []
    for places in _tied_codes(space, codes, compiler.atoms, events):
        block = _block(codes, places, compiler.atoms, events, domains, watch)
        if block is None:
            return [], []
        found.append(block)
    own = (1 << len(codes)) - 1
    always = [
        negate(_meaning(kill, events, compiler.atoms, len(codes)))
        for kill, scope in zip(events.kills, scopes_of(events), strict=True)
        if not scope & own
    ]
    return found, always


def _meaning(
    conjunction: Conjunction, events: Events, atoms: Sequence[Predicate], codes: int
) -> Predicate:
    """A conjunction without codes as a predicate."""

    def flag(index: int) -> Predicate:
        return any_of(*(_meaning(way, events, atoms, codes) for way in events.flags[index]))

    literals, on, off = conjunction
    parts = [
        atoms[place - codes] if mask == 2 else negate(atoms[place - codes])
        for place, mask in literals
    ]
    return all_of(*parts, *map(flag, on), *(negate(flag(index)) for index in off))


def _tied_codes(
    space: Space, codes: Sequence[CodeVariable], atoms: Sequence[Predicate], events: Events
) -> list[list[int]]:
    """The codes of each block: joined by conjunctions, or through sizes that these speak of."""
    count = len(codes)
    own = (1 << count) - 1
    sizes: dict[Variable, int] = {}
    of_atom: list[int] = []
    for variable, _ in space.variables:
        if isinstance(variable, LocalSizeVariable):
            sizes[variable] = count + len(sizes)

    def sizes_in(predicate: Predicate) -> int:
        return sum(1 << sizes[name] for name in variables(predicate) if name in sizes)

    of_atom = [sizes_in(atom) for atom in atoms]
    scopes: list[int] = []
    for scope in scopes_of(events):
        tied = scope & own
        for place in bits(scope >> count):
            tied |= of_atom[place]
        scopes.append(tied)
    for constraint in space.constraints:
        if frozenset(codes).isdisjoint(variables(constraint.predicate)):
            scopes.append(sizes_in(constraint.predicate))
    groups = groups_of(count + len(sizes), [scope for scope in scopes if scope])
    return [inside for group in groups if (inside := bits(group & own))]


def _block(
    codes: Sequence[CodeVariable],
    places: Sequence[int],
    atoms: Sequence[Predicate],
    events: Events,
    domains: dict[Variable, tuple[int, ...]],
    watch: Watch,
) -> Block | None:
    count = len(codes)
    inside = sum(1 << place for place in places) | ~((1 << count) - 1)
    own = part_of(events, inside, (1 << count) - 1)
    code_scopes = [scope & ((1 << count) - 1) for scope in scopes_of(own)]
    ordered = [place for place in group_order(count, code_scopes) if place in places]
    late = range(count, count + len(atoms))
    automaton = build_automaton(reordered(own, [*ordered, *late]), len(ordered) + len(atoms))
    if automaton is None:
        return None
    order = [codes[place] for place in ordered]
    layers, states = bit_sweep(
        automaton,
        order,
        [domains[code] for code in order],
        [events.allowed[place] for place in ordered],
        watch,
        _MOST_STATES,
    )
    if not states.shape[1]:
        return None
    if states.shape[1] > _MOST_ENDS:
        raise too_many_classes(int(states.shape[1]), _MOST_ENDS)
    reader = ResidualReader(automaton, len(ordered), atoms)
    residuals: list[Residual] = []
    for start in range(0, int(states.shape[1]), _READ):
        watch.tick()
        residuals += reader.read(states[:, start : start + _READ])
    return Block(order, layers, residuals)
