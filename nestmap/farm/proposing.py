"""A ``propose`` job: what the store knows goes to a solver child, what it finds comes back."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from api.solver_child import MAX_REQUEST_BYTES
from api.solver_pool import SolverLimits, SolverPool
from db.farm.farm import Farm
from db.farm.job_records import Job
from db.farm.records import Board
from db.farm.run_records import (
    ArtifactContent,
    DeviceState,
    EarlierBest,
    EarlierStudy,
    OwnedStudy,
    Proposal,
    ProposedCandidate,
    RunHistory,
    StudySpec,
)
from db.records import CandidateRecord
from mapper.errors import InputError, NestmapError, StoreError
from mapper.measurement import Outcome, Timed
from worker.measuring.wire import outcome_to_json

#: A batch is at least as large as what may be waiting, so that what is told of it is complete.
MOST_CANDIDATES = 64
_LEAST_CANDIDATES = 4
#: Candidates of earlier runs that a run with ``transfer`` learns from: a new child describes each
#: of them again, in tens of milliseconds, before it proposes anything.
MOST_EARLIER = 600
MOST_OF_A_STUDY = 60
#: Of a request, for what the pool adds: its number and the limits.
_LIMITS_BYTES = 64 * 1024
#: What a run starts from of each study of an earlier run of its subject.
BEST_OF_A_STUDY = 8


class NotSeenError(NestmapError):
    """The device has not said yet what it is: a proposal has to wait for its first call."""


async def propose(job: Job, farm: Farm, pool: SolverPool, limits: SolverLimits) -> Proposal:
    """The next candidates of the job's run.

    Raises SolverProblem where the child finds none, InputError for a run that is not to be had,
    NotSeenError for one whose device has never called.
    """
    if job.run_id is None:
        raise InputError("a propose job without a run")
    history = await asyncio.to_thread(farm.runs.history, job.run_id)
    earlier: tuple[EarlierStudy, ...] = ()
    if history.run.request.get("transfer"):
        earlier = await asyncio.to_thread(
            partial(farm.runs.earlier, job.run_id, most=MOST_EARLIER, of_a_study=MOST_OF_A_STUDY)
        )
    best: tuple[EarlierBest, ...] = ()
    if not history.strategy_state:
        # What a run starts from is settled by its first proposal, and in its state from then on.
        best = await asyncio.to_thread(
            partial(farm.runs.earlier_best, job.run_id, of_a_study=BEST_OF_A_STUDY)
        )
    board = await asyncio.to_thread(farm.boards.board, history.run.board_id)
    if board.profile is None and not board.facts:
        raise NotSeenError(f"device {board.id} has not called yet, so nothing is known of it")
    with tempfile.TemporaryDirectory(prefix="nestmap-propose-") as folder:
        request = await asyncio.to_thread(propose_request, history, board, folder, earlier, best)
        answer = await pool.ask_when_free(request, limits, job.principal)
        return await asyncio.to_thread(_proposal, answer.items, answer.end, Path(folder))


def propose_request(
    history: RunHistory,
    board: Board,
    spool: str,
    earlier: Sequence[EarlierStudy] = (),
    best: Sequence[EarlierBest] = (),
) -> dict[str, Any]:
    """What a child is asked: all that the store knows of a run, of those ``earlier`` that it learns
    from, and what was ``best`` in those of its subject.

    A request has an end (``MAX_REQUEST_BYTES``). Where a run has become too long for it, or boards
    have told too much, the fastest and the newest outcomes are told, and the others are not.
    """
    run = history.run
    state = history.strategy_state if isinstance(history.strategy_state, dict) else {}
    variant_of = _variants(history.studies, state)
    measured = [
        ([variant_of[study], candidate, outcome_to_json(outcome)], outcome)
        for (study, candidate), outcome in history.measured.items()
        if study in variant_of
    ]
    lost = [[variant_of[s], c] for s, c in sorted(history.lost_candidates) if s in variant_of]
    told: dict[str, Any] = {"state": state, "best": [asdict(one) for one in best]}
    request = {
        "kind": "propose",
        "run_id": run.id,
        "run": dict(run.request),
        "device": {"profile": board.limits, "facts": _texts(board.facts)},
        "history": told,
        "count": _count(history),
        "spool": spool,
    }
    room = _Room(MAX_REQUEST_BYTES - _LIMITS_BYTES - _size(request))
    told["earlier"] = room.first([_earlier(study) for study in earlier], share=4)
    told["lost"] = room.first(lost, share=4)
    told["measured"] = room.best_and_newest(measured)
    return request


class _Room:
    """Bytes of a request that are left for what it tells of the past."""

    def __init__(self, most_bytes: int) -> None:
        self._left = max(0, most_bytes)

    def first(self, entries: list[Any], share: int) -> list[Any]:
        """The first of the entries, as many as go into that part of what is left."""
        most, used = self._left // share, 0
        for number, entry in enumerate(entries):
            size = _size(entry)
            if used + size > most:
                self._left -= used
                return entries[:number]
            used += size
        self._left -= used
        return entries

    def best_and_newest(self, entries: list[tuple[list[Any], Outcome]]) -> list[Any]:
        """Of entries, oldest first, all or else the fastest into half of what is left, and the
        newest of the others; in their order."""
        sizes = [_size(entry) for entry, _ in entries]
        if sum(sizes) <= self._left:
            return [entry for entry, _ in entries]
        times = {n: o.time_ms for n, (_, o) in enumerate(entries) if isinstance(o, Timed)}
        kept: set[int] = set()
        used, half = 0, self._left // 2
        for most, places in (
            (half, sorted(times, key=lambda n: times[n])),
            (self._left, range(len(entries) - 1, -1, -1)),
        ):
            for place in places:
                if place in kept:
                    continue
                if used + sizes[place] > most:
                    break
                kept.add(place)
                used += sizes[place]
        return [entries[place][0] for place in sorted(kept)]


def _size(value: Any) -> int:
    """Bytes of a value in a request, with what stands between it and the next."""
    return len(json.dumps(value)) + 2


def _earlier(study: EarlierStudy) -> dict[str, Any]:
    return {
        "name": f"{study.label}/{study.variant}",
        "program": json.loads(study.program_json),
        "mode": study.mode,
        "measured": [
            [record.chosen, outcome.time_ms if isinstance(outcome, Timed) else None]
            for record, outcome in study.measured
        ],
    }


def _count(history: RunHistory) -> int:
    """How many to propose: it depends on the run and on what it has proposed, not on times."""
    run = history.run
    wanted = min(MOST_CANDIDATES, max(_LEAST_CANDIDATES, 2 * run.low_water))
    if run.budget_candidates is None:
        return wanted
    return max(1, min(wanted, run.budget_candidates - run.progress.proposed))


def _variants(studies: Iterable[OwnedStudy], state: dict[str, Any]) -> dict[int, int]:
    """For each study the place of its variant among the run's.

    Studies of one variant on several states of the device's software are one to the strategy.
    """
    known = state.get("programs", [])
    return {s.study_id: known.index(s.program_hash) for s in studies if s.program_hash in known}


def _texts(facts: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in facts.items() if name != "profile"}


def _proposal(items: list[dict[str, Any]], end: dict[str, Any], folder: Path) -> Proposal:
    """The child's items, with the bytes of the artifacts that it has written."""
    artifacts: list[ArtifactContent] = []
    candidates: list[ProposedCandidate] = []
    try:
        for item in items:
            if "artifact" in item:
                entry = item["artifact"]
                data = (folder / entry["hash"]).read_bytes()
                artifacts.append(ArtifactContent(data, entry["media_type"]))
            else:
                entry = item["candidate"]
                candidates.append(
                    ProposedCandidate(
                        entry["study"],
                        CandidateRecord(**entry["record"]),
                        entry["payload"],
                        tuple(entry["artifacts"]),
                    )
                )
        studies = tuple(
            StudySpec(
                s["program_schema"], json.dumps(s["program"]), s["variant"], s["mode"], s["seed"]
            )
            for s in end["studies"]
        )
        return Proposal(
            DeviceState(end["device"]["name"], end["device"]["facts"]),
            studies,
            tuple(candidates),
            tuple(artifacts),
            end["exhausted"],
            end["state"],
            end["report"],
        )
    except (KeyError, TypeError, OSError) as error:
        raise StoreError(f"a solver child's proposal is none: {error!r}") from error
