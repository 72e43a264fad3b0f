"""The search of one variant of the convolution template.

All that is particular to the template (tiles, their codes, their costs) is behind
:class:`TemplateSearch`, a :class:`~nestmap.tuning.guided.Search` like the one that learns.
"""

from __future__ import annotations

from collections.abc import Callable

from mapper.constraint_rules.predicate import ParameterVariable
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, NestmapError
from mapper.measurement import Outcome, Timed
from mapper.rewrites.catalogue import CHAINS
from mapper.search.goal import Goal
from mapper.solver.limits import Watch
from nestmap.seeds import derived_seed
from nestmap.tuning.candidates import MOST_TOO_LARGE, Candidate, fits
from nestmap.tuning.proposals.blocked_proposals import Assignment, BlockedProposals
from nestmap.tuning.sketch_subjects import Tuned
from nestmap.tuning.sources import Refused, Source

#: Candidates of a family for each variant, for searches that do not draw tiles.
STARTING_CANDIDATES = 6
_FIRST_SEED = 0
#: Assignments that are drawn at once.
_AHEAD = 2


def is_template(subject: Tuned) -> bool:
    """Whether a subject is a layer in a variant of the template."""
    return subject.layer is not None and subject.variant in CHAINS


def draws_tiles(source: Source) -> bool:
    """Whether a source is of the template and has its tiles: in the paper's mode sizes are what
    they are."""
    tile = ParameterVariable("tr")
    return is_template(source.tuned) and any(name == tile for name, _ in source.space.variables)


def first_candidates(source: Source, device: DeviceProfile) -> tuple[Assignment, ...]:
    """What a search that does not draw tiles itself tries first: what is known, then a few
    candidates of the device's family."""
    subject = source.subject
    if subject.layer is None or not draws_tiles(source):
        return source.known
    proposals = BlockedProposals(
        subject.layer,
        subject.variant,
        subject,
        source.space,
        device,
        source.family,
        _FIRST_SEED,
        source.known,
    )
    return tuple(proposals.propose(len(source.known) + STARTING_CANDIDATES))


class TemplateSearch:
    """Tiles drawn and changed, with the codes of a family of devices; known ones first."""

    def __init__(
        self,
        source: Source,
        device: DeviceProfile,
        seed: int,
        goal: Goal,
        refused: Refused,
        watch: Callable[[], Watch] = Watch,
    ) -> None:
        assert source.subject.layer is not None
        self.index = source.index
        self.exhausted = False
        self._source = source
        self._goal = goal
        self._refused = refused
        self._watch = watch
        self._waiting: list[Candidate] = []
        self._ids: set[str] = set()
        self._proposals = BlockedProposals(
            source.subject.layer,
            source.subject.variant,
            source.subject,
            source.space,
            device,
            source.family,
            derived_seed(seed, source.program_hash, len(source.history)) % 2**31,
            source.known,
            hints=source.hints,
            recoded=True,
            watch=watch,
        )
        for assignment, outcome, _ in source.history:
            self._learn(
                Candidate(self.index, source.subject, source.program_hash, assignment), outcome
            )

    def next(self) -> Candidate | None:
        """The next candidate; None where there are no more, which :attr:`exhausted` says too."""
        too_large = 0
        while too_large < MOST_TOO_LARGE:
            self._watch().look()
            if not self._waiting:
                subject, program = self._source.subject, self._source.program_hash
                self._waiting = [
                    Candidate(self.index, subject, program, assignment)
                    for assignment in self._proposals.propose(_AHEAD if self._ids else 1)
                ]
                if not self._waiting:
                    break
            candidate = self._waiting.pop(0)
            if candidate.id in self._ids:
                continue
            self._ids.add(candidate.id)
            if self._admits(candidate):
                return candidate
            too_large += 1
        self.exhausted = True
        return None

    def _admits(self, candidate: Candidate) -> bool:
        try:
            return fits(candidate, self._goal)
        except InputError as error:
            self.refuse(error)
            return False

    def refuse(self, error: NestmapError) -> None:
        """Note an assignment that has no kernel."""
        self._refused(self._source, error)

    def tell(self, candidate: Candidate, outcome: Outcome) -> None:
        """Learn what became of a candidate; what was exhausted may have children of it."""
        self._learn(candidate, outcome)
        self.exhausted = False

    def _learn(self, candidate: Candidate, outcome: Outcome) -> None:
        self._ids.add(candidate.id)
        time_ms = outcome.time_ms if isinstance(outcome, Timed) else None
        self._proposals.tell(candidate.assignment, time_ms)
