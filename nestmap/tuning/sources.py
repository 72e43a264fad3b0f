"""What a search starts from: a subject with its space, and what is known of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

from mapper.constraint_rules.predicate import Variable
from mapper.errors import NestmapError
from mapper.measurement import Outcome
from mapper.pipeline import Subject
from mapper.rewrites.families import Family
from mapper.solver.space import Space
from nestmap.tuning.solved_ahead import SketchAhead

Assignment = Mapping[Variable, int]


class Source:
    """One subject to draw from: its space, and its program's name in the store.

    The ``space`` may be given as what derives it: a subject that promises little is perhaps never
    drawn from. ``known`` are candidates of tuning records, which are tried first, or what finds
    them in the space; ``hints`` are tuning parameters that were fast for layers like this one.
    ``history`` is what became of candidates before, with their bytes: a strategy that learns starts
    from it. ``promise`` says by how much its best is likely to be slower than that of the most
    promising subject, and ``family`` who does what on devices of this kind. ``ahead`` solves the
    space of a sketch aside.
    """

    def __init__(
        self,
        index: int,
        subject: Subject,
        space: Space | Callable[[], Space],
        program_hash: str,
        known: tuple[Assignment, ...] | Callable[[Space], tuple[Assignment, ...]] = (),
        history: tuple[tuple[Assignment, Outcome, int], ...] = (),
        hints: tuple[Mapping[str, int], ...] = (),
        promise: float = 1.0,
        family: Family = Family.GROUPS,
        ahead: SketchAhead | None = None,
    ) -> None:
        self.index = index
        self.subject = subject
        self.program_hash = program_hash
        self.history = history
        self.hints = hints
        self.promise = promise
        self.family = family
        self.ahead = ahead
        self._space = space
        self._known = known

    @cached_property
    def space(self) -> Space:
        """The subject's space."""
        begun = self.ahead.begun() if self.ahead is not None and self.ahead.is_begun else None
        if begun is not None:
            return begun.space
        return self._space if isinstance(self._space, Space) else self._space()

    @cached_property
    def known(self) -> tuple[Assignment, ...]:
        """Candidates to try first, all of them in the space."""
        return self._known(self.space) if callable(self._known) else self._known


#: Told of every assignment without a kernel, and of a space that cannot be drawn from.
Refused = Callable[[Source, NestmapError], None]


def ignore_refusals(source: Source, error: NestmapError) -> None:
    """For callers that do not care."""
    del source, error
