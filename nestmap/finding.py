"""Mappings found, drawn and counted, for the command line and for solver children alike.

Every function takes the watch of its computation: past its deadline they raise LimitError,
Cancelled where it says so. Where there is nothing to draw they raise UnsatisfiableError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mapper.constraint_rules.catalogue import contexts_of
from mapper.constraint_rules.predicate import CodeVariable
from mapper.constraint_rules.rule import Mode
from mapper.errors import LimitError, Problem, UnsatisfiableError
from mapper.pipeline import Assignment, derive_space
from mapper.solver.counting import Mappings, count_assignments, count_mappings
from mapper.solver.enumeration import enumerate_assignments
from mapper.solver.limits import Watch
from mapper.solver.preferences import levels
from mapper.solver.sampling import Measure, complete, sample
from mapper.solver.space import Space
from mapper.solver.strata import by_dimensions, up_to_symmetry
from nestmap.answers import empty_space_error
from nestmap.requests import Request


def without_symmetric(request: Request, space: Space) -> Space:
    """The space with one of the mappings that differ by permuted dimensions."""
    kernels = [
        [CodeVariable(map_id) for map_id in context.map_ids]
        for context in contexts_of(request.subject.nests)
    ]
    return up_to_symmetry(space, kernels)


def by_preference(request: Request, watch: Watch) -> Iterator[Assignment]:
    """Everything by descending preference; of a tree mappings, each once."""
    # Of a tree a mapping stands where its best local sizes are, and once.
    given: set[tuple[int, ...]] = set()
    number = 0
    spaces = levels(
        request.space, request.restrictions, time_limit_s=watch.left_s, cancelled=watch.cancelled
    )
    for _, level in spaces:
        for assignment in _level(request, level, watch):
            if assignment is None:
                raise out_of_time(f"all {request.subject.answer}s were found", f"{number}", watch)
            if request.is_tree:
                key = tuple(assignment.values())
                if key in given:
                    continue
                given.add(key)
            number += 1
            yield assignment


def _level(request: Request, level: Space, watch: Watch) -> Iterator[Assignment | None]:
    """Everything in one level of preference; None in the end if the time was over before."""
    pins = request.restrictions.pins
    if request.is_tree:
        mappings = Mappings(level, pins, watch=watch)
        yield from map(dict, mappings)
        complete = mappings.complete
    else:
        with enumerate_assignments(
            level, pins, time_limit_s=watch.left_s, cancelled=watch.cancelled
        ) as found:
            yield from found
            complete = found.complete is True
    if not complete:
        watch.tick()
        yield None


def drawn(
    request: Request,
    space: Space,
    number: int,
    seed: int,
    joint: bool,
    watch: Watch,
    not_uniform: Callable[[LimitError], None] | None = None,
) -> Iterator[Assignment]:
    """Up to ``number`` different ones, uniform by mappings or by assignments (``joint``).

    ``not_uniform`` is called where they are diverse instead, and why.
    """
    given = 0
    measure = Measure.ASSIGNMENTS if joint else Measure.MAPPINGS
    try:
        for assignment in sample(
            space, number, seed, measure=measure, watch=watch, not_uniform=not_uniform
        ):
            yield assignment
            given += 1
    except UnsatisfiableError:
        raise empty_space_error(request, watch.left_s) from None
    except LimitError as error:
        if watch.left_s != 0:
            raise
        raise out_of_time("all were drawn", f"{given} of {number} samples", watch) from error


def drawn_by_strata(
    request: Request,
    space: Space,
    number: int,
    seed: int,
    joint: bool,
    watch: Watch,
    not_uniform: Callable[[LimitError], None] | None = None,
) -> Iterator[Assignment]:
    """As many from each set of dimensions as from the next, as far as they have as many."""
    parts: list[Space] = []
    for _, part in by_dimensions(space):
        found = count_mappings(part, watch=watch)
        if not found.complete:
            raise out_of_time("all dimensions were counted", "", watch)
        if found.mappings:
            parts.append(part)
    if not parts:
        raise empty_space_error(request, watch.left_s)
    for place, part in enumerate(parts):
        share = number // len(parts) + (place < number % len(parts))
        if share:
            yield from drawn(request, part, share, seed + place, joint, watch, not_uniform)


def with_values(request: Request, codes: Assignment) -> Assignment:
    """Tuning parameters and local sizes for a mapping that paper mode accepts.

    UnsatisfiableError where the strict rules do not.
    """
    options = request.stated.options
    space = derive_space(request.subject, Mode.STRICT, request.device, options)
    try:
        return complete(space, codes)
    except UnsatisfiableError:
        raise UnsatisfiableError(
            Problem(
                request.subject.label,
                "the rules as printed accept this mapping, the strict ones do not, so there is "
                "no kernel for it",
                remedy="nestmap check in strict mode says why; --mode strict draws others",
            )
        ) from None


def counted(space: Space, joint: bool, watch: Watch) -> tuple[int, bool]:
    """How many mappings, or assignments (``joint``), and whether that is all: else the time was
    over and it is a lower bound."""
    if not joint:
        found = count_mappings(space, watch=watch)
        return found.mappings, found.complete
    try:
        return count_assignments(space, watch=watch), True
    except LimitError:
        if watch.left_s != 0:
            raise
        # At least as many as there are mappings, but these may take as long.
        return 0, False


def counted_by_strata(space: Space, joint: bool, watch: Watch) -> Iterator[tuple[str, int]]:
    """How many there are for each set of dimensions used that has any (``0 1``, ``none``)."""
    for dimensions, part in by_dimensions(space):
        number, complete = counted(part, joint, watch)
        if not complete:
            raise out_of_time("all dimensions were counted", "", watch)
        if number:
            yield " ".join(map(str, dimensions)) or "none", number


def out_of_time(what: str, found: str, watch: Watch) -> LimitError:
    """The deadline came before ``what``."""
    limit = watch.limits.time_s
    shown = "" if limit is None else f"{limit:g} s"
    return LimitError(
        Problem(
            "", f"the time limit was reached before {what}",
            " in ".join(part for part in (found, shown) if part), "", "a longer time limit",
        )
    )  # fmt: skip
