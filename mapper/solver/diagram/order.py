"""In which order a sweep decides the variables.

Variables that no constraint joins are decided one group after another, so that nothing has to
be remembered between groups. Within a group either the constraint that needs the fewest further
variables is completed first, which removes partial assignments early, or the variable comes
next after which the least has to be remembered.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from math import log2


class Strategy(Enum):
    """What an order aims at within a group; neither is better on all spaces."""

    COMPLETE = "complete constraints early"
    FORGET = "remember little"


def decide_order(
    sizes: Sequence[int], scopes: Sequence[int], strategy: Strategy = Strategy.COMPLETE
) -> list[int]:
    """The variables, numbered, in an order to decide them.

    ``sizes`` are those of their domains; ``scopes`` are the variables of each constraint as a
    bit mask.
    """
    within = _completing if strategy is Strategy.COMPLETE else _forgetting
    order: list[int] = []
    for group, inside in _groups(len(sizes), scopes):
        order += within(group, inside, sizes)
    return order


def group_order(variables: int, scopes: Sequence[int]) -> list[int]:
    """As :func:`decide_order`, but each group in the order in which it is numbered."""
    return [place for group, _ in _groups(variables, scopes) for place in bits(group)]


def groups_of(variables: int, scopes: Sequence[int]) -> list[int]:
    """The groups of variables that scopes join, as bit masks; free variables alone."""
    return [group for group, _ in _groups(variables, scopes)]


def bits(mask: int) -> list[int]:
    """The numbers in a bit mask, ascending."""
    found: list[int] = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return found


def _groups(variables: int, scopes: Sequence[int]) -> list[tuple[int, list[int]]]:
    """Variables joined by constraints, directly or through others, with their constraints."""
    groups: list[tuple[int, list[int]]] = []
    for scope in scopes:
        joined, inside = scope, [scope]
        apart: list[tuple[int, list[int]]] = []
        for mask, members in groups:
            if mask & joined:
                joined |= mask
                inside += members
            else:
                apart.append((mask, members))
        groups = [*apart, (joined, inside)]
    groups.sort(key=lambda group: group[0].bit_count())
    tied = 0
    for mask, _ in groups:
        tied |= mask
    # Free variables last: each multiplies what is there without another look at it.
    free = [(1 << place, list[int]()) for place in range(variables) if not tied >> place & 1]
    return [*groups, *free]


def _completing(group: int, scopes: Sequence[int], sizes: Sequence[int]) -> list[int]:
    members = bits(group)
    uses = {place: sum(scope >> place & 1 for scope in scopes) for place in members}
    left: list[int] = [scope for scope in scopes if scope]
    order: list[int] = []
    while left:
        best = min(left, key=lambda scope: (scope.bit_count(), _extent(scope, sizes), scope))
        # Its variables one by one, those that much else waits for first.
        chosen = min(bits(best), key=lambda place: (-uses[place], sizes[place], place))
        order.append(chosen)
        left = [scope & ~(1 << chosen) for scope in left if scope != 1 << chosen]
    order += [place for place in members if place not in order]
    return order


def _extent(scope: int, sizes: Sequence[int]) -> int:
    total = 1
    for place in bits(scope):
        total *= sizes[place]
    return total


def _forgetting(group: int, scopes: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Greedily, so that little has to be remembered: few values of few open variables."""
    weights = {place: log2(sizes[place]) for place in bits(group)}
    left = sorted(set(scopes), key=lambda scope: (scope.bit_count(), scope))
    order: list[int] = []
    decided = 0
    while decided != group:
        open_scopes = [scope for scope in left if scope & ~decided]
        near = 0
        for scope in open_scopes:
            if scope & decided:
                near |= scope
        best: tuple[float, int, int] | None = None
        for place in bits((near or group) & ~decided):
            after = decided | 1 << place
            pending = 0
            done = 0
            for scope in open_scopes:
                if scope & ~after:
                    pending |= scope
                else:
                    done += 1
            remembered = sum(weights[other] for other in bits(pending & after))
            key = (remembered - _COMPLETION * done, place)
            if best is None or key < best[:2]:
                best = (*key, place)
        assert best is not None
        order.append(best[2])
        decided |= 1 << best[2]
    return order


# What completing a constraint is worth, in bits of what has to be remembered.
_COMPLETION = 1.0
