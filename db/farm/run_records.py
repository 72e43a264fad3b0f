"""Values of runs: what is asked, what is proposed, how far it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from db.farm.records import StoredResponse
from db.farm.states import RunState
from db.records import CandidateRecord
from mapper.measurement import Outcome


@dataclass(frozen=True, slots=True)
class NewRun:
    """A tuning request.

    ``request`` is the API's JSON, handed to whoever proposes. A budget of neither candidates
    nor seconds lasts until the space is exhausted. A new ``propose`` job is added when fewer
    than ``low_water`` measure jobs are open. Higher ``priority`` comes first, -100 to 100, whoever
    owns the others: whoever lets others make runs keeps what is above 0 from them.

    Candidates are made for ``board_id``. ``stand_ins`` are boards of the same profile that
    measure them too, whenever they have nothing of their own to do.

    ``principal``, the token that asks, has ``most_open`` runs that have not ended,
    ``most_candidates`` in all its stored runs, and ``most_bytes`` stored (:mod:`db.farm.owners`)
    at most.
    """

    board_id: str
    label: str
    principal: str
    request: Mapping[str, Any]
    budget_candidates: int | None = None
    budget_seconds: float | None = None
    priority: int = 0
    low_water: int = 4
    stand_ins: tuple[str, ...] = ()
    most_open: int = field(kw_only=True)
    most_candidates: int = field(kw_only=True)
    most_bytes: int = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is: read from one row.

    ``outcomes`` counts measurements by kind (all six of ``mapper.measurement``); ``lost`` are
    candidates whose jobs failed for good; ``active_s`` are the seconds that the run has spent
    neither queued nor paused.
    """

    proposed: int
    outcomes: Mapping[str, int]
    lost: int
    best_ms: float | None
    best_memory_bytes: int | None
    best_candidate_id: str | None
    active_s: float

    @property
    def measured(self) -> int:
        """Measurements of every kind."""
        return sum(self.outcomes.values())

    @property
    def tried(self) -> int:
        """What counts against a budget of candidates: measured and lost ones."""
        return self.measured + self.lost


@dataclass(frozen=True, slots=True)
class Run:
    """A tuning run. ``reason`` says why it ended: ``candidates``, ``seconds``, ``exhausted``,
    ``cancelled``, or a text for a failed one. ``exhausted``: the strategy has no more."""

    id: str
    board_id: str
    label: str
    principal: str
    request: Mapping[str, Any]
    state: RunState
    reason: str
    priority: int
    low_water: int
    budget_candidates: int | None
    budget_seconds: float | None
    exhausted: bool
    progress: Progress
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Accepted(Generic[T]):
    """What a request with or without an idempotency key led to.

    ``repeated``: the key had come before; nothing was changed, and ``response`` is the first
    one. ``value`` is as it is now.
    """

    value: T
    response: StoredResponse | None
    repeated: bool


@dataclass(frozen=True, slots=True)
class DeviceState:
    """A device with one state of its software, as studies need it: only facts that do not
    change from run to run (see :meth:`db.store.Store.add_device`)."""

    name: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StudySpec:
    """The study of a variant within a run; its label is made from the run's, so that no two
    runs share a study. ``program_json`` is the program (``program_schema`` names its form)."""

    program_schema: str
    program_json: str
    variant: str
    mode: str
    seed: int


@dataclass(frozen=True, slots=True)
class ArtifactContent:
    """Bytes to be stored under their SHA-256."""

    data: bytes = field(repr=False)
    media_type: str = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class ProposedCandidate:
    """A candidate to measure.

    ``study`` indexes :attr:`Proposal.studies`; ``record.program_hash`` must be the hash of that
    study's program. ``payload`` is what the board gets (``nestmap/measure-job/1``);
    ``artifacts`` are the hashes that it refers to: each must be stored already or come with the
    proposal.
    """

    study: int
    record: CandidateRecord
    payload: Mapping[str, Any]
    artifacts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a ``propose`` job found.

    ``exhausted``: there are no more candidates after these. ``strategy_state`` is kept with
    the run and given to the next ``propose`` job (JSON, at most 4 MiB). ``report`` goes into
    the event (refused assignments, say).
    """

    device: DeviceState
    studies: tuple[StudySpec, ...]
    candidates: tuple[ProposedCandidate, ...]
    artifacts: tuple[ArtifactContent, ...] = ()
    exhausted: bool = False
    strategy_state: Any = None
    report: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class OwnedStudy:
    """A study of a run with what it is about."""

    study_id: int
    program_hash: str
    variant: str
    mode: str
    seed: int
    device: DeviceState


@dataclass(frozen=True, slots=True)
class RunHistory:
    """All that a strategy may want to know before it proposes.

    ``measured`` maps ``(study id, candidate id)`` to the outcome; ``open_candidates`` are those
    proposed and not ended, ``lost_candidates`` those whose jobs failed or were cancelled.
    """

    run: Run
    strategy_state: Any
    studies: tuple[OwnedStudy, ...]
    measured: Mapping[tuple[int, str], Outcome]
    open_candidates: frozenset[tuple[int, str]]
    lost_candidates: frozenset[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class EarlierBest:
    """A candidate that was fast in an earlier run of the same subject; ``chosen`` is what was
    chosen."""

    variant: str
    chosen: dict[str, Any]
    time_ms: float


@dataclass(frozen=True, slots=True)
class EarlierStudy:
    """A variant that another run measured; ``label`` is that run's, ``program_json`` the program
    as it is stored."""

    label: str
    program_json: str
    variant: str
    mode: str
    measured: tuple[tuple[CandidateRecord, Outcome], ...]
