"""Which candidates come next for one subject in its variants on one device.

A :class:`Tuner` knows no clock, process or store: the same sources, device and trials, told in the
same order between the same questions, give the same candidates. The command line, the service's
runs, the demo and the recorder all ask one; who measures what it gives is their business
(:mod:`nestmap.tuning.run` here, boards of a farm elsewhere).
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mapper.device_profile import DeviceProfile
from mapper.measurement import Outcome
from mapper.solver.limits import Watch
from nestmap.tuning.candidates import Candidate, Draw
from nestmap.tuning.finalists import NEAR
from nestmap.tuning.guided import GuidedStrategy
from nestmap.tuning.progress import Point, Tally
from nestmap.tuning.sources import Refused, Source, ignore_refusals
from nestmap.tuning.strategy import MakeStrategy


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate and what became of it."""

    candidate: Candidate
    outcome: Outcome


class Tuner:
    """A strategy with what it has brought so far; what sources' histories hold counts too.

    ``most_bytes`` leaves out of front, finalists and count what allocates more: an earlier run of
    the same study may have had another goal.

    :meth:`ask` may take seconds and is one thread's; :meth:`tell` only notes, and may be called
    from another thread meanwhile: the next question takes the notes into account.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        device: DeviceProfile,
        seed: int = 0,
        *,
        make: MakeStrategy = GuidedStrategy,
        draw: Draw | None = None,
        refused: Refused = ignore_refusals,
        watch: Callable[[], Watch] = Watch,
        most_bytes: int | None = None,
    ) -> None:
        self._most_bytes = most_bytes
        self.sources = tuple(sources)
        self.tally = Tally(tuple(source.name for source in sources))
        self.exhausted = False
        self._known: dict[tuple[int, str], Outcome] = {}
        self._notes: queue.SimpleQueue[Trial] = queue.SimpleQueue()
        for source in self.sources:
            for assignment, outcome, memory_bytes in source.history:
                past = Candidate(source.index, source.subject, source.program_hash, assignment)
                self._known[source.index, past.id] = outcome
                self._count(past, outcome, memory_bytes)
        self._strategy = make(self.sources, device, seed, draw, refused, watch=watch)

    def ask(self, count: int = 1) -> list[Candidate]:
        """Up to ``count`` candidates that were not asked for before; fewer where there are no
        more, which :attr:`exhausted` says too."""
        while not self._notes.empty():
            trial = self._notes.get()
            self._strategy.tell(trial.candidate, trial.outcome)
        found: list[Candidate] = []
        while len(found) < count and not self.exhausted:
            candidate = self._strategy.ask()
            if candidate is None:
                self.exhausted = True
                break
            known = self._known.get((candidate.subject_index, candidate.id))
            if known is None:
                found.append(candidate)
            else:
                self._strategy.tell(candidate, known)
        return found

    def tell(self, trials: Iterable[Trial]) -> None:
        """Note what became of candidates."""
        for trial in trials:
            candidate, outcome = trial.candidate, trial.outcome
            memory_bytes = candidate.plan.memory_bytes
            self._known[candidate.subject_index, candidate.id] = outcome
            self._count(candidate, outcome, memory_bytes)
            self._notes.put(trial)

    def _count(self, candidate: Candidate, outcome: Outcome, memory_bytes: int) -> None:
        """What allocates more than is wanted was tried, but is no answer."""
        if self._most_bytes is not None and memory_bytes > self._most_bytes:
            return
        self.tally.add(candidate.subject_index, candidate.id, outcome, memory_bytes)

    @property
    def tried(self) -> int:
        """Candidates that are told of, and those of the histories."""
        return self.tally.tried

    def outcome(self, candidate: Candidate) -> Outcome | None:
        """What is known of a candidate."""
        return self._known.get((candidate.subject_index, candidate.id))

    def finalists(self, count: int) -> list[Point]:
        """The fastest that are near enough to the best to be it; none where it stands alone."""
        best = self.tally.best
        near = [p for p in self.tally.fastest if best and p.time_ms <= NEAR * best.time_ms]
        return near[:count] if len(near) > 1 else []

    def front(self) -> list[Point]:
        """Every right candidate that none beats in time and memory, fastest first."""
        return list(self.tally.front)
