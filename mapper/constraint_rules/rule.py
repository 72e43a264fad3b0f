"""What a rule is and what it produces.

A rule reads the nest of one kernel and produces constraint instances: a predicate with its
source, the maps and the buffer it speaks of, the reason in words and a remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from mapper.ast_model.nodes import MapId
from mapper.constraint_rules.kernel_context import KernelContext
from mapper.constraint_rules.predicate import Predicate


class Mode(Enum):
    """Which reading of the rules applies.

    PAPER is the printed one, holes included: it reproduces the published figures.
    STRICT, the default, admits nothing that can fail later.
    """

    PAPER = "paper"
    STRICT = "strict"


BOTH_MODES = frozenset(Mode)
PAPER_ONLY = frozenset({Mode.PAPER})
STRICT_ONLY = frozenset({Mode.STRICT})


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a rule comes from; ``number`` is the equation as printed, e.g. ``(2)``."""

    title: str
    section: str
    number: str = ""

    def __str__(self) -> str:
        parts = [self.title, f"section {self.section}" if self.section else "", self.number]
        return ", ".join(part for part in parts if part)


PARALLEL_MAPPING = "Mapping Parallelism in a Functional IR through Constraint Satisfaction (CC'22)"
NESTMAP = "nestmap, missing in the paper"
#: The rule of the one constraint that says how well a user's own preferences are met.
SCORE = "preference"


@dataclass(frozen=True, slots=True)
class Constraint:
    """One constraint instance.

    ``id`` is unique in what :func:`catalogue.derive` returns, such as
    ``duplicate-scheduling/28``; ``subjects`` are the maps it is about; ``sentence`` says
    why, in words, and ``remedy`` what to do about it.
    """

    id: str
    rule: str
    subjects: tuple[MapId, ...]
    predicate: Predicate
    provenance: Provenance
    buffer: str | None
    sentence: str
    remedy: str


@dataclass(frozen=True, slots=True)
class RuleOptions:
    """Switches.

    ``sequential_fusion``: apply the heuristic of CC'22, section 4.5: of two sequential maps in
    a perfect run one is fused, and those with a parallel map between are lost.
    ``replicate_private``: a chain that writes only private memory may be run by every thread.
    ``vectorise``: offer vector codes (strict mode). ``free_grid``: admit launches that CC'22,
    section 4.4, rules (4) to (6), exclude though they run right: work-group dimensions of one
    work-item, local dimensions of one work-group, and local maps around work-group maps
    (strict mode). ``suits``: ids of rules of suitability that are to hold as well
    (:mod:`mapper.constraint_rules.suits`); none by default, for they keep out what is valid.
    """

    sequential_fusion: bool = True
    replicate_private: bool = False
    vectorise: bool = True
    free_grid: bool = False
    suits: frozenset[str] = frozenset()


Producer = Callable[[KernelContext, RuleOptions], Iterable[Constraint]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule in the form it takes in ``modes``; ``produce`` is a pure function."""

    id: str
    modes: frozenset[Mode]
    produce: Producer
