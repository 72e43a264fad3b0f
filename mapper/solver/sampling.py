"""Uniform samples of a space, and the completion of a partial assignment.

Two readings of uniform. By mappings: each mapping is equally likely, and its parameters and
sizes are uniform among those that go with it, so that a mapping with few values is not drowned
by one with many. By assignments: each assignment of everything is equally likely. One seed
gives one sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from random import Random

from mapper.constraint_rules.predicate import Assignment, Variable
from mapper.errors import LimitError, UnsatisfiableError
from mapper.solver.diagram.factors import Factors
from mapper.solver.diagram.layers import Diagram, batches_of_ranks
from mapper.solver.dive import complete, diverse
from mapper.solver.limits import Watch
from mapper.solver.restrictions import Restrictions, narrowed
from mapper.solver.solutions import FactoredSpace, Solutions, WholeSpace, solutions_of
from mapper.solver.space import NO_PINS, Space, check

# Draws in a row that gave nothing new before it is counted how much there is.
_PATIENCE = 64
# To remember which assignments were given takes so much for each, besides its values.
_KEY_BYTES = 120


class Measure(Enum):
    """What is equally likely."""

    MAPPINGS = "mappings"
    ASSIGNMENTS = "assignments"


def sample(
    space: Space,
    count: int,
    seed: int,
    pins: Assignment = NO_PINS,
    *,
    measure: Measure = Measure.MAPPINGS,
    watch: Watch | None = None,
    not_uniform: Callable[[LimitError], None] | None = None,
) -> Iterator[dict[Variable, int]]:
    """Up to ``count`` distinct valid assignments, fewer only if there are no more.

    UnsatisfiableError if there is none at all; LimitError past the limits of ``watch``,
    Cancelled where it says so. Where a diagram of the space would take too much memory, the
    assignments are diverse instead of uniform, and ``not_uniform`` is called with the reason.
    """
    watch = watch or Watch()
    narrow = narrowed(space, Restrictions(pins=pins))
    solutions = _solutions(narrow, watch, not_uniform)
    if solutions is None:
        yield from diverse(narrow, count, seed, watch=watch)
        return
    yield from sample_of(solutions, space, count, seed, measure=measure, watch=watch)


def sample_of(
    solutions: Solutions,
    space: Space,
    count: int,
    seed: int,
    *,
    measure: Measure = Measure.MAPPINGS,
    watch: Watch,
) -> Iterator[dict[Variable, int]]:
    """As :func:`sample`, from solutions that are known already; what they gave before does not
    matter. Each is checked against ``space``."""
    random = Random(seed)
    if isinstance(solutions, FactoredSpace):
        drawn = _in_batches(solutions.factors, count, random, watch)
    elif isinstance(solutions, WholeSpace) and measure is Measure.ASSIGNMENTS:
        drawn = _in_batches(solutions.diagram, count, random, watch)
    else:
        drawn = _distinct(solutions, measure, random, watch)
    found = 0
    for found, assignment in enumerate(drawn, 1):
        yield checked(space, assignment)
        if found == count:
            return
    if not found:
        raise UnsatisfiableError("no valid assignment agrees with what is fixed")


def _solutions(
    space: Space, watch: Watch, not_uniform: Callable[[LimitError], None] | None
) -> Solutions | None:
    """What is drawn from uniformly; None, and ``not_uniform`` is told, where it is too large."""
    try:
        return solutions_of(space, watch)
    except LimitError as error:
        if watch.left_s == 0:
            raise
        if not_uniform is not None:
            not_uniform(error)
        return None


def _in_batches(
    solutions: Factors | Diagram, number: int, random: Random, watch: Watch
) -> Iterator[dict[Variable, int]]:
    """Different assignments, every choice of that many equally likely, or all."""
    for ranks in batches_of_ranks(solutions.count, number, random, watch):
        yield from solutions.at_ranks(ranks).assignments()


def _distinct(
    solutions: Solutions, measure: Measure, random: Random, watch: Watch
) -> Iterator[dict[Variable, int]]:
    """Different assignments, until there are no more."""
    draw = solutions.draw_mapping if measure is Measure.MAPPINGS else solutions.draw_joint
    seen: set[tuple[int, ...]] = set()
    fruitless = 0
    total: int | None = None
    while total is None or len(seen) < total:
        watch.tick()
        assignment = draw(random)
        key = None if assignment is None else tuple(assignment.values())
        if assignment is None or key is None or key in seen:
            fruitless += 1
            if fruitless == _PATIENCE and total is None:
                # Few may be left: then it is worth knowing how many, to stop at the last one.
                total = solutions.count_joint() if seen else _any(solutions)
            continue
        fruitless = 0
        seen.add(key)
        watch.refuse_beyond(len(seen) * (_KEY_BYTES + 8 * len(key)), "a sample of so many")
        yield assignment


def _any(solutions: Solutions) -> int | None:
    """0 if there is nothing to draw, else None: it is only rare."""
    return None if solutions.count_mappings() else 0


def checked(space: Space, assignment: dict[Variable, int]) -> dict[Variable, int]:
    """The assignment, after plain Python agreed that it is valid."""
    violations = check(space, assignment)
    if violations:
        broken = ", ".join(violation.constraint for violation in violations)
        raise AssertionError(f"the solver's answer breaks {broken}")
    return assignment


__all__ = ["Measure", "checked", "complete", "sample"]
