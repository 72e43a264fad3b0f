"""Spaces in which what suits a device leaves few codes open: counted and drawn as a whole.

1. Values that constraints forbid go first, and the constraints with them (:mod:`narrowing`).
2. The open codes are blocks with classes, as in :mod:`mapper.solver.joint`. The class of a block
   is one more variable, which counts for as many choices of codes as it has.
3. Parameters, sizes and classes are groups with couplings (:mod:`values`): one small diagram
   instead of a table or a diagram for each class.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice, product
from random import Random

import numpy as np

from mapper.constraint_rules.predicate import (
    CodeVariable,
    LocalSizeVariable,
    ParameterVariable,
    Predicate,
    Variable,
    any_of,
    member,
    negate,
    variables,
)
from mapper.constraint_rules.rule import Constraint, Provenance
from mapper.solver.diagram.blocks import Block, code_blocks
from mapper.solver.factored.combined import Choice, Combined, Demand
from mapper.solver.factored.narrowing import Narrowing
from mapper.solver.factored.values import Counts, FactoredValues
from mapper.solver.limits import Watch
from mapper.solver.space import Domain, Space

_SOURCE = Provenance("what is left of the constraints", "")
# Solutions that show which demands can be met, and how many choices of classes are remembered.
_SHOWN = 1 << 10
_KEPT = 64
# Choices of a block's codes that are listed to find one.
_LISTED = 1 << 12


class SuitedSpace:
    """The solutions of a space of codes, parameters and sizes.

    NotBooleanError where constraints mix codes and arithmetic in a way that is not taken apart,
    LimitError where too many codes are open, and TooManyArcsError where the diagram of the values
    has more than ``most_arcs``, if that is said.
    """

    def __init__(
        self, space: Space, watch: Watch | None = None, most_arcs: int | None = None
    ) -> None:
        self.counted = 0
        self._watch = watch or Watch()
        self._names = [variable for variable, _ in space.variables]
        narrowing = Narrowing(space, self._watch.tick)
        domains = narrowing.domains
        codes = [v for v in domains if isinstance(v, CodeVariable)]
        opened = [v for v in codes if len(domains[v]) > 1]
        self._impossible = narrowing.impossible
        self._fixed: dict[Variable, int] = {v: domains[v][0] for v in codes if len(domains[v]) == 1}
        self._blocks: list[Block] = []
        self._classes: list[Variable] = []
        if self._impossible:
            return
        loose = [d for d in narrowing.demands if variables(d).isdisjoint(codes)]
        if opened:
            mixed = [d for d in narrowing.demands if not variables(d).isdisjoint(codes)]
            self._blocks, always = code_blocks(_open_space(opened, domains, mixed), self._watch)
            self._impossible = not self._blocks
            loose += always
        self._domains = {v: domain for v, domain in domains.items() if v not in set(codes)}
        self._classes = [ParameterVariable(f"\0class {k}") for k in range(len(self._blocks))]
        self._values = self._factored(loose, most_arcs)
        self._recent: OrderedDict[Choice, Counts] = OrderedDict()

    def _factored(self, loose: Sequence[Predicate], most_arcs: int | None) -> FactoredValues:
        entries = list(self._domains.items())
        predicates = list(loose)
        weights: dict[Variable, np.ndarray] = {}
        for name, block in zip(self._classes, self._blocks, strict=True):
            entries.append((name, tuple(range(len(block.classes)))))
            paths = [code_class.paths for code_class in block.classes]
            weights[name] = np.array(paths, np.int64 if sum(paths) < 1 << 62 else object)
            predicates += _class_demands(name, block)
        sizes = [name for name in self._domains if isinstance(name, LocalSizeVariable)]
        return FactoredValues(
            entries,
            predicates,
            self._watch,
            weights=weights,
            last=[*self._classes, *sizes],
            most_arcs=most_arcs,
        )

    @property
    def watch(self) -> Watch:
        """What counting and drawing keep to; another one where somebody else goes on with it."""
        return self._watch

    @watch.setter
    def watch(self, watch: Watch) -> None:
        self._watch = watch
        if not self._impossible:
            self._values.watch = watch

    # Counting

    def count_joint(self) -> int:
        """The number of assignments of all variables, exact."""
        return 0 if self._impossible else self._values.count

    def count_mappings(self) -> int:
        """The number of choices of codes with which some values go; ``counted`` so far."""
        self.counted = 0
        for _, ways in self._feasible:
            self.counted += ways
        return self.counted

    @cached_property
    def _combined(self) -> Combined:
        return Combined(self._blocks, self._domains, self._watch)

    @cached_property
    def _feasible(self) -> list[tuple[Demand, int]]:
        """The demands that some values meet, and how many choices of codes make each."""
        if not self.count_joint():
            return []
        combined, total, random = self._combined, self._values.count, Random(0)
        shown: set[Choice] = set()
        for _ in range(_SHOWN):
            found = self._values.at_rank(random.randrange(total))
            shown.add(tuple(found[name] for name in self._classes))
        kept: list[tuple[Demand, int]] = []
        for demand, ways in combined.ways.items():
            self._watch.tick()
            first = combined.choice_at(demand, 0)
            if first in shown or self._values.counts(self._only(first)).total:
                kept.append((demand, ways))
        return kept

    def _only(self, choice: Choice) -> dict[Variable, int]:
        return dict(zip(self._classes, choice, strict=True))

    def _counts(self, choice: Choice) -> Counts:
        """The values that go with classes; the latest asked for are kept."""
        found = self._recent.pop(choice, None) or self._values.counts(self._only(choice))
        self._recent[choice] = found
        if len(self._recent) > _KEPT:
            self._recent.popitem(last=False)
        return found

    # Drawing and listing

    def draw_joint(self, random: Random) -> dict[Variable, int] | None:
        """An assignment of all variables, each equally likely; None if there is none."""
        total = self.count_joint()
        if not total:
            return None
        return self._with_codes(self._values.at_rank(random.randrange(total)), random)

    def draw_mapping(self, random: Random) -> dict[Variable, int] | None:
        """A mapping, each equally likely, with values uniform among those that go with it."""
        if not self._feasible:
            return None
        rank = random.randrange(self.count_mappings())
        for demand, ways in self._feasible:
            if rank < ways:
                counts = self._counts(self._combined.choice_at(demand, rank))
                values = self._values.at_rank(random.randrange(counts.total), counts)
                return self._with_codes(values, random)
            rank -= ways
        raise AssertionError(rank)

    def _with_codes(self, values: dict[Variable, int], random: Random) -> dict[Variable, int]:
        found = values | self._fixed
        for name, block in zip(self._classes, self._blocks, strict=True):
            chosen = block.draw(block.classes[values[name]], 1, random)
            found |= {code: int(column[0]) for code, column in chosen.items()}
        return {name: found[name] for name in self._names}

    def mappings(self) -> Iterator[dict[Variable, int]]:
        """Every mapping once: its codes."""
        for _, codes in self._all_codes():
            yield {name: codes[name] for name in self._names if name in codes}

    def completed(self, skip: int = 0) -> Iterator[dict[Variable, int]]:
        """Every mapping once but the first ``skip``, with values that go with it."""
        for choice, codes in islice(self._all_codes(), skip, None):
            found = self._values.at_rank(0, self._counts(choice)) | codes
            yield {name: found[name] for name in self._names}

    def _all_codes(self) -> Iterator[tuple[Choice, dict[Variable, int]]]:
        for demand, _ in self._feasible:
            for choice in self._combined.choices(demand):
                self._watch.tick()
                lists = [
                    block.all_of(block.classes[place])
                    for block, place in zip(self._blocks, choice, strict=True)
                ]
                for parts in product(*lists):
                    codes = dict(self._fixed)
                    for part in parts:
                        codes |= part
                    yield choice, codes


def _open_space(
    opened: Sequence[CodeVariable], domains: dict[Variable, Domain], demands: Sequence[Predicate]
) -> Space:
    """Open codes with what is left of the constraints on them."""
    entries = [(v, d) for v, d in domains.items() if not isinstance(v, CodeVariable)]
    constraints = [
        Constraint(str(number), "", (), demand, _SOURCE, None, "", "")
        for number, demand in enumerate(demands)
    ]
    own = [(code, domains[code]) for code in opened]
    return Space((*own, *entries), tuple(constraints))


def _class_demands(name: Variable, block: Block) -> Iterator[Predicate]:
    """What each class of a block demands, said of the variable that is the class."""
    classes: dict[Predicate, list[int]] = {}
    for place, code_class in enumerate(block.classes):
        for predicate in code_class.residual:
            classes.setdefault(predicate, []).append(place)
    for predicate, places in classes.items():
        yield any_of(negate(member(name, places)), predicate)
