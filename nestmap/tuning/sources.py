"""What a search starts from: a subject with its space, and what is known of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

from mapper.constraint_rules.predicate import Variable
from mapper.errors import InputError, LimitError, NestmapError, Problem, UnsatisfiableError
from mapper.measurement import Outcome
from mapper.pipeline import Subject
from mapper.solver.space import Space
from nestmap.tuning.sketch_subjects import PossibleSketch, Tuned, is_sketch
from nestmap.tuning.solved_ahead import SketchAhead

Assignment = Mapping[Variable, int]


class Source:
    """One subject to draw from: its space, and its program's name in the store.

    The ``space`` may be given as what derives it: a subject that promises little is perhaps never
    drawn from. So may the subject, a sketch that its program may have, and with it its hash.
    ``known`` are candidates of tuning records, which are tried first, or what finds them in the
    space.
    ``history`` is what became of candidates before, with their bytes: a strategy that learns starts
    from it. ``promise`` says by how much its best is likely to be slower than that of the most
    promising subject (``has_record``: by records of it). ``ahead`` derives and solves a sketch
    aside.
    """

    def __init__(
        self,
        index: int,
        subject: Tuned,
        space: Space | Callable[[Subject], Space],
        program_hash: str = "",
        known: tuple[Assignment, ...] | Callable[[Subject, Space], tuple[Assignment, ...]] = (),
        history: tuple[tuple[Assignment, Outcome, int], ...] = (),
        promise: float = 1.0,
        ahead: SketchAhead | None = None,
        has_record: bool = False,
    ) -> None:
        self.index = index
        self.tuned = subject
        self.history = history
        self.promise = promise
        self.ahead = ahead
        self.has_record = has_record
        self.refusal: NestmapError | None = None
        self._program_hash = program_hash
        self._space = space
        self._known = known

    @property
    def name(self) -> str:
        """What the subject is called among those of its run."""
        return self.tuned.variant or self.tuned.label

    @property
    def is_sketch(self) -> bool:
        """Whether the subject is a program under a sketch."""
        return is_sketch(self.tuned)

    @property
    def exists(self) -> bool:
        """Whether there is the subject: a sketch that its program may have may not apply, or be too
        large (:attr:`refusal`)."""
        return self._derived is not None

    @property
    def subject(self) -> Subject:
        """The subject; InputError where there is none."""
        if self._derived is None:
            raise InputError(Problem("variant", "the sketch does not apply", self.name))
        return self._derived

    @cached_property
    def _derived(self) -> Subject | None:
        if not isinstance(self.tuned, PossibleSketch):
            return self.tuned
        try:
            if self.ahead is not None and (begun := self.ahead.begun()) is not None:
                return begun.subject
            return self.tuned.derive()
        except (LimitError, UnsatisfiableError) as error:
            self.refusal = error
            return None

    @cached_property
    def program_hash(self) -> str:
        """The hash of what is mapped, as in the store."""
        return self._program_hash or self.subject.hash()

    @cached_property
    def space(self) -> Space:
        """The subject's space."""
        begun = self.ahead.begun() if self.ahead is not None and self.ahead.is_begun else None
        if begun is not None and begun.space is not None:
            return begun.space
        return self._space if isinstance(self._space, Space) else self._space(self.subject)

    @cached_property
    def known(self) -> tuple[Assignment, ...]:
        """Candidates to try first, all of them in the space."""
        return self._known(self.subject, self.space) if callable(self._known) else self._known


#: Told of every assignment without a kernel, and of a space that cannot be drawn from.
Refused = Callable[[Source, NestmapError], None]


def ignore_refusals(source: Source, error: NestmapError) -> None:
    """For callers that do not care."""
    del source, error
