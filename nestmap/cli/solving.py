"""Where the mappings of ``nestmap solve`` come from: the solver here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from mapper.errors import LimitError
from mapper.pipeline import Assignment
from mapper.solver.limits import Progress, Watch
from mapper.solver.space import Space
from nestmap.cli.explanations import explained
from nestmap.cli.output import note
from nestmap.requests import Request

if TYPE_CHECKING:
    from mapper.constraint_rules.predicate import Variable
    from mapper.cost.analytic import DeviceConstants


@dataclass(frozen=True, slots=True)
class Counted:
    """How many there are, and for each set of dimensions; a lower bound if not ``complete``."""

    number: int
    complete: bool
    strata: dict[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Predictions:
    """Assignments with their predicted ms, fastest first; none is predicted below ``bound_ms``.

    The other fields are those of :class:`mapper.cost.best_predicted.BestPredicted`.
    """

    found: Sequence[tuple[Assignment, float]]
    bound_ms: float | None
    gap: float
    proved: bool
    predicted: int


class Source(Protocol):
    """Mappings that satisfy a request, found by whatever finds them.

    Where there are none its methods raise UnsatisfiableError. ``complete`` says after an
    enumeration whether that was all; None where it drew instead, and has said so.
    """

    complete: bool | None

    def count(self, joint: bool, stratify: bool) -> Counted:
        """How many mappings, or assignments (``joint``)."""
        ...

    def enumerate(self, limit: int | None, seed: int) -> Iterator[Mapping[Variable, int]]:
        """All, or the first ``limit``, by preference where there is any."""
        ...

    def sample(self, number: int, seed: int, joint: bool, stratify: bool) -> Iterator[Assignment]:
        """Different ones, equally likely; fewer, with a note, where there are no more."""
        ...

    def best(
        self, number: int, constants: DeviceConstants | None, seed: int, progress: Progress
    ) -> Predictions:
        """Those that are predicted to be fastest; constants of no device where none are given."""
        ...


class Here:
    """The solver of this process; ``space`` is what the request leaves of its space."""

    def __init__(self, request: Request, space: Space, watch: Watch) -> None:
        self.complete: bool | None = None
        self._request = request
        self._space = space
        self._watch = watch

    def count(self, joint: bool, stratify: bool) -> Counted:
        """See :class:`Source`."""
        # Loads the solver: half a second that --help and usage errors should not take.
        from nestmap.finding import counted, counted_by_strata

        number, complete = counted(self._space, joint, self._watch)
        strata: dict[str, int] | None = None
        if stratify and complete:
            strata = dict(counted_by_strata(self._space, joint, self._watch))
        return Counted(number, complete, strata)

    def enumerate(self, limit: int | None, seed: int) -> Iterator[Mapping[Variable, int]]:
        """See :class:`Source`."""
        request = self._request
        if request.restrictions.preferred:
            found = self._preferred(limit)
        elif request.is_tree or request.subject.tuning_space is not None:
            found = self._mappings(limit)
        else:
            found = self._assignments(limit, seed)
        number = 0
        for assignment in found:
            number += 1
            yield assignment
        if number == 0 and self.complete:
            raise explained(request, self._watch.limits.time_s)

    def _preferred(self, limit: int | None) -> Iterator[Assignment]:
        from nestmap.finding import by_preference

        found = by_preference(self._request, self._watch)
        number = 0
        for assignment in islice(found, limit):
            number += 1
            yield assignment
        self.complete = limit is None or number < limit or next(found, None) is None

    def _mappings(self, limit: int | None) -> Iterator[Mapping[Variable, int]]:
        """A bare nest tree: mappings, each once, whatever local sizes go with it."""
        from mapper.solver.counting import Mappings

        mappings = Mappings(self._space, self._request.restrictions.pins, watch=self._watch)
        # One more than wanted is looked for, to know whether there are more.
        found = iter(mappings)
        number = 0
        for assignment in islice(found, limit):
            number += 1
            yield assignment
        more = limit is not None and number == limit and next(found, None) is not None
        all_given = mappings.complete or (limit is not None and number == limit)
        self.complete = not more and all_given

    def _assignments(self, limit: int | None, seed: int) -> Iterator[Assignment]:
        # Loads the solver: half a second that --help and usage errors should not take.
        from mapper.solver.enumeration import enumerate_assignments

        try:
            found = enumerate_assignments(
                self._space,
                self._request.restrictions.pins,
                limit=limit,
                time_limit_s=self._watch.left_s,
                memory_bytes=self._watch.limits.memory_bytes,
            )
        except LimitError as error:
            if limit is None or self._watch.left_s == 0:
                raise
            # Some spaces are too large for one model. Draws fix the parameters first.
            note_drawn(error)
            yield from self.sample(limit, seed, False, False)
            return
        with found:
            yield from found
        self.complete = found.complete is True

    def sample(self, number: int, seed: int, joint: bool, stratify: bool) -> Iterator[Assignment]:
        """See :class:`Source`."""
        from nestmap.finding import drawn, drawn_by_strata

        draw = drawn_by_strata if stratify else drawn
        given = 0
        found = draw(
            self._request, self._space, number, seed, joint, self._watch,
            lambda error: note_diverse(str(error.problems[0])),
        )  # fmt: skip
        for assignment in found:
            yield assignment
            given += 1
        note_fewer(given, number, stratify)

    def best(
        self, number: int, constants: DeviceConstants | None, seed: int, progress: Progress
    ) -> Predictions:
        """See :class:`Source`."""
        from nestmap.predicting import best_of_request
        from nestmap.tuning.descriptions import CONSTANTS

        self._watch.progress = progress
        result = best_of_request(self._request, number, constants or CONSTANTS, seed, self._watch)
        return Predictions(
            [(dict(entry.assignment), entry.time_ms) for entry in result.found],
            result.bound_ms if result.found else None,
            result.gap,
            result.proved,
            result.predicted,
        )


def note_drawn(error: LimitError) -> None:
    """Instead of an enumeration there are draws."""
    note(f"too large to enumerate, so these are drawn at random ({error.problems[0].message})")


def note_diverse(reason: str) -> None:
    """Samples are not uniform."""
    note(f"too large for uniform samples, so these are diverse and not uniform ({reason})")


def note_fewer(given: int, number: int, stratify: bool) -> None:
    """There are fewer than were wanted."""
    if given >= number:
        return
    if stratify:
        note(f"these are {given}: some sets of dimensions have no more")
    else:
        note(f"there are no more than these {given}")
