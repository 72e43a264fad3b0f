"""What each rule demands, in a sentence that is true of every valid mapping, and constraints
sorted by rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from api.dashboard.views.schedules import Schedule, schedule
from mapper.constraint_rules.preferences import PREFERENCES
from mapper.constraint_rules.suits.catalogue import SUITS

#: By rule id: a title, and what holds of a mapping that keeps to the rule (docs/rules.md).
RULE_TEXTS: dict[str, tuple[str, str]] = {
    "private-memory-scoping": (
        "Private memory stays with one thread",
        "Maps that use private memory run in the thread that owns it: none of them is spread "
        "over threads.",
    ),
    "shared-memory-scoping": (
        "Local memory stays within one work-group",
        "Maps that use local memory run inside one work-group, below a work-group map of every "
        "dimension that the kernel uses.",
    ),
    "no-mixing": (
        "One way to number threads",
        "The kernel indexes its threads either globally or by work-group and local id, never "
        "both ways, so that nothing is distributed twice.",
    ),
    "duplicate-scheduling": (
        "No thread id indexes two nested maps",
        "No two maps of a chain share a level and dimension, so no iteration is lost.",
    ),
    "thread-dimensionality": (
        "Work-groups and their threads go together",
        "On every chain of maps the local and the work-group dimensions in use are the same.",
    ),
    "local-hierarchy": (
        "Work-groups outside, threads inside",
        "In each dimension the work-group map stands around the local map.",
    ),
    "exhaustive-indexing": (
        "Every chain uses every parallel dimension",
        "It is always said which of the threads runs a statement: no chain leaves out a "
        "dimension that another one uses.",
    ),
    "exhaustive-writes": (
        "One writer for each element",
        "Every write to memory that threads share has all parallel dimensions of its kernel "
        "around it, so no two threads write one element.",
    ),
    "cross-group-dependence": (
        "Nothing flows between work-groups",
        "What one work-group or global thread writes, the same one reads: OpenCL has no barrier "
        "between them.",
    ),
    "synchronisability": (
        "Every barrier is reached by all",
        "Where work-items of a group exchange values, all of them come to the barrier equally "
        "often.",
    ),
    "vectorisation": (
        "Vector lanes are neighbours",
        "A vectorised map is innermost, its accesses are neighbours in memory, and its width "
        "divides the trip count.",
    ),
    "algorithmic": (
        "The types agree",
        "Lengths fit together: splits leave no remainder, and slides, vectors and reorderings "
        "get what they need.",
    ),
    "device-limits": (
        "The device can hold it",
        "Work-group sizes and local, private and global memory stay within the device's limits.",
    ),
    "local-sizes": (
        "No threads without a map",
        "A dimension that no map uses has a local size of 1, so that no work is repeated.",
    ),
    "sequential-fusion": (
        "Sequential loops that could be one are one",
        "A preference that only shortens the search: of two perfectly nested sequential maps one "
        "is fused with the other.",
    ),
    "no-idle-threads": (
        "No threads without work",
        "A preference that only shortens the search: no local size exceeds the largest trip "
        "count of its dimension.",
    ),
    **{suit.id: (suit.title, f"A preference of some devices: {suit.sentence}.") for suit in SUITS},
    "where": (
        "Constraints of one's own",
        "What whoever asks states beside the program.",
    ),
    "space": (
        "The space's own constraints",
        "What the author of the tuning space states.",
    ),
}


@dataclass(frozen=True, slots=True)
class MapChoice:
    """A map that a constraint is about, with the schedule that was chosen for it."""

    name: str
    schedule: Schedule | None


@dataclass(frozen=True, slots=True)
class Instance:
    """One constraint: what it is about, in words. ``holds`` is None where no mapping is meant."""

    id: str
    subjects: tuple[MapChoice, ...]
    more_subjects: int
    buffer: str | None
    sentence: str
    remedy: str
    predicate: str
    provenance: str
    holds: bool | None


@dataclass(frozen=True, slots=True)
class RuleGroup:
    """All constraints of one rule."""

    rule: str
    title: str
    demand: str
    is_preference: bool
    provenances: tuple[str, ...]
    instances: tuple[Instance, ...]

    @property
    def number(self) -> int:
        """Instances."""
        return len(self.instances)

    @property
    def broken(self) -> tuple[Instance, ...]:
        """Those that the mapping breaks."""
        return tuple(instance for instance in self.instances if instance.holds is False)


#: Rules of a whole kernel speak of all its maps.
MOST_SUBJECTS = 8


def rule_title(rule: str) -> str:
    """The title of a rule; its id where it is not known here."""
    return RULE_TEXTS.get(rule, (rule, ""))[0]


def by_rule(
    constraints: Iterable[Mapping[str, Any]], codes: Mapping[str, Any] | None = None
) -> tuple[RuleGroup, ...]:
    """The constraints of a ``constraints`` or ``portrait`` answer, in the order of the rules."""
    groups: dict[str, list[Instance]] = {}
    for value in constraints:
        groups.setdefault(str(value["rule"]), []).append(_instance(value, codes or {}))
    return tuple(
        RuleGroup(
            rule,
            *RULE_TEXTS.get(rule, (rule, "")),
            rule in PREFERENCES,
            tuple(dict.fromkeys(instance.provenance for instance in instances)),
            tuple(instances),
        )
        for rule, instances in groups.items()
    )


def _instance(value: Mapping[str, Any], codes: Mapping[str, Any]) -> Instance:
    names = [str(subject) for subject in value["subjects"]]
    chosen = tuple(
        MapChoice(name, schedule(codes[name]) if isinstance(codes.get(name), int) else None)
        for name in names[:MOST_SUBJECTS]
    )
    return Instance(
        value["id"],
        chosen,
        max(0, len(names) - MOST_SUBJECTS),
        value["buffer"],
        value["sentence"],
        value["remedy"],
        value.get("predicate", ""),
        value["provenance"],
        value.get("holds"),
    )
