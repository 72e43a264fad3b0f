"""The kinds of right kernels that strict mode leaves out on purpose (docs/completeness.md).

What a rule refuses without need is either admitted by a switch of ``RuleOptions`` or of one of
these kinds. A refusal that is neither is a rule to be made exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Restriction:
    """A kind: it is at work where all of ``core`` refuse, and explains all of ``covers``."""

    name: str
    core: frozenset[str]
    covers: frozenset[str]
    why: str


def _restriction(name: str, core: str, covers: str, why: str) -> Restriction:
    rules = frozenset(core.split())
    return Restriction(name, rules, rules | frozenset(covers.split()), why)


RESTRICTIONS = (
    _restriction(
        "gathered vectors",
        "vectorisation",
        "",
        "lanes that are no neighbours, or have a guard each, are put together one by one, which "
        "has nothing of what vectors are for (CC'22, section 3.3)",
    ),
    _restriction(
        "mixed ids",
        "no-mixing",
        "exhaustive-indexing exhaustive-writes cross-group-dependence thread-dimensionality "
        "shared-memory-scoping private-memory-scoping",
        "global dimensions beside work-group and local ones: a global map of dimension d is a "
        "work-group map of d around a local one, which needs a map that is split",
    ),
    _restriction(
        "private array in parts",
        "private-memory-scoping",
        "exhaustive-indexing",
        "each thread keeps the whole array and uses its own part alone: with the map around the "
        "buffer it keeps the part alone",
    ),
    _restriction(
        "local array in parts, or a copy in each work-group",
        "shared-memory-scoping",
        "exhaustive-indexing exhaustive-writes cross-group-dependence",
        "each work-group keeps the whole array, fills what it uses, and uses that alone: with "
        "the work-group map around the buffer the program says so itself",
    ),
)


def explanations(rules: Iterable[str]) -> tuple[Restriction, ...]:
    """The restrictions that together explain why these rules refuse; none if they cannot."""
    refused = frozenset(rules)
    found = tuple(item for item in RESTRICTIONS if item.core <= refused)
    covered = frozenset[str]().union(*(item.covers for item in found))
    return found if refused <= covered else ()
