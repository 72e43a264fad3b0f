"""The strategy of a run, taken up where the last proposal left it.

A run proposes in batches. The strategy is told outcomes a batch late: when batch k is asked for,
everything of batch k - 2 has ended, while some of batch k - 1 may still be measured. What it
knows then depends on the run alone and not on who was faster, so that one seed and one device
give one sequence of candidates wherever and however often proposals are made.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mapper.constraint_rules.predicate import Variable
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, LimitError, NestmapError, UnsatisfiableError
from mapper.measurement import Crash, Outcome
from mapper.pipeline import Subject
from mapper.solver.limits import Watch
from mapper.solver.sampling import sample, sample_of
from mapper.solver.space import Space
from mapper.tuning_records import TuningRecord
from nestmap.seeds import derived_seed
from nestmap.tasks.known_spaces import KnownPart
from nestmap.tasks.run_requests import Place
from nestmap.tuning.candidates import Candidate
from nestmap.tuning.guided import GuidedStrategy
from nestmap.tuning.learned import LearnedModel
from nestmap.tuning.sources import Source
from nestmap.tuning.starting_points import source_of
from nestmap.tuning.strategy import MakeStrategy, random_strategy
from nestmap.tuning.tuner import Trial, Tuner

#: What the strategy hears of a candidate whose jobs failed for good.
LOST = Crash(1, "no attempt to measure it ended")
_REFUSALS_KEPT = 20
_MOST_SEARCHES = 8
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Variant:
    """One subject of a run: its space as the child knows it."""

    subject: Subject
    part: KnownPart
    program_hash: str


class RunSearch:
    """A strategy with the batches that it has given.

    It can be thrown away at any time: another one that asks for the same batches with the same
    outcomes gives the same candidates.
    """

    def __init__(
        self,
        variants: Sequence[Variant],
        profile: DeviceProfile,
        facts: Mapping[str, str],
        strategy: str,
        seed: int,
        watch: Watch,
        learned: LearnedModel | None = None,
        best: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self._watch = watch
        self._variants = variants
        self._best = best
        self.refused: list[str] = []
        self.batches: list[tuple[Candidate, ...]] = []
        self._told = 0
        self._tuner = Tuner(
            self._sources(profile, facts),
            profile,
            seed,
            make=_maker(strategy, learned),
            draw=self.draw,
            refused=self.refuse,
            watch=self.watch,
        )

    @property
    def exhausted(self) -> bool:
        """Whether there are no more candidates."""
        return self._tuner.exhausted

    def watch(self) -> Watch:
        """The limits of the request that is worked on."""
        return self._watch

    def use(self, watch: Watch) -> None:
        """Keep to the limits of another request from now on."""
        self._watch = watch
        for variant in self._variants:
            variant.part.lend(watch)

    def batch(self, count: int, outcomes: Mapping[Place, Outcome], lost: frozenset[Place]) -> None:
        """Ask for the next batch, at most ``count``, and keep it in :attr:`batches`."""
        while self._told < len(self.batches) - 1:
            for candidate in self.batches[self._told]:
                place = (candidate.subject_index, candidate.id)
                outcome = outcomes.get(place) or (LOST if place in lost else None)
                if outcome is not None:
                    self._tuner.tell([Trial(candidate, outcome)])
            self._told += 1
        found: list[Candidate] = []
        while len(found) < count and not self._tuner.exhausted:
            self._watch.tick()
            for candidate in self._tuner.ask(count - len(found)):
                if self._has_kernels(candidate):
                    found.append(candidate)
        self.batches.append(tuple(found))

    def _has_kernels(self, candidate: Candidate) -> bool:
        try:
            _ = candidate.plan
        except InputError as error:
            self.refuse(self._tuner.sources[candidate.subject_index], error)
            return False
        return True

    def refuse(self, source: Source, error: NestmapError) -> None:
        """Note an assignment that has no kernel, or a space that gives none."""
        if isinstance(error, LimitError) and self._watch.left_s == 0:
            # The request was too short: that says nothing about the space.
            raise error
        name = source.subject.variant or source.subject.label
        if len(self.refused) < _REFUSALS_KEPT:
            self.refused.append(f"{name}: {error}")

    def draw(self, space: Space, count: int, seed: int) -> Sequence[Mapping[Variable, int]]:
        """As ``nestmap.tuning.candidates.draw_with_sampler``, from spaces that are known."""
        part = next(v.part for v in self._variants if v.part.space is space)
        found: list[Mapping[Variable, int]] = []
        for attempt in range(_ATTEMPTS):
            drawn_seed = derived_seed(seed, attempt)
            try:
                try:
                    drawn = sample_of(part.solved(), space, count, drawn_seed, watch=self._watch)
                except LimitError:
                    # Too large to be taken apart: then by the solver, as ``sample`` does it.
                    drawn = sample(space, count, drawn_seed, watch=self._watch)
                found += drawn
                return found
            except LimitError:
                if self._watch.left_s == 0:
                    raise
                if found:
                    return found
        raise UnsatisfiableError("nothing was drawn")

    def _sources(self, profile: DeviceProfile, facts: Mapping[str, str]) -> list[Source]:
        return [
            source_of(
                variant.subject,
                variant.part.space,
                profile,
                facts,
                variant.program_hash,
                index=index,
                own=_records(variant.subject, self._best, profile.target),
            )
            for index, variant in enumerate(self._variants)
        ]


def _records(
    subject: Subject, best: Sequence[Mapping[str, Any]], target: str
) -> list[TuningRecord]:
    """What was fast in earlier runs, as records of a subject: only what was chosen and how long it
    took is looked at."""
    layer = subject.layer
    if layer is None:
        return []
    return [
        TuningRecord(
            layer=layer, variant=one["variant"], choices=one["chosen"],
            time_ms=float(one["time_ms"]), spread=0.0, trials=0, tflops=0.0, extra_bytes=0,
            prepared_bytes=0, relative_error=0.0, source_hash="", device="", driver="",
            target=target, commit="", date="",
        )
        for one in best
    ]  # fmt: skip


class Searches:
    """The searches of the latest runs, so that a proposal need not go through all before it."""

    def __init__(self) -> None:
        self._searches: OrderedDict[str, RunSearch] = OrderedDict()

    def take(self, key: str, sizes: Sequence[int]) -> RunSearch | None:
        """The search that has given batches of these sizes, or the first of them; it is not
        kept meanwhile."""
        found = self._searches.pop(key, None)
        given = [] if found is None else [len(batch) for batch in found.batches]
        return found if given == list(sizes[: len(given)]) else None

    def keep(self, key: str, search: RunSearch) -> None:
        """A search for the next proposal of its run."""
        self._searches[key] = search
        if len(self._searches) > _MOST_SEARCHES:
            self._searches.popitem(last=False)


def _maker(name: str, learned: LearnedModel | None) -> MakeStrategy:
    """What makes the strategy of a name (run_requests.STRATEGIES)."""
    match name:
        case "auto" | "guided" | "analytic":
            return partial(GuidedStrategy, analytic=name == "analytic", learned=learned)
        case "random":
            return random_strategy()
        case _:
            raise AssertionError(f"no strategy {name}")
