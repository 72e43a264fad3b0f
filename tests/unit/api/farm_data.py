"""A run with measured candidates, made through the repositories as a farm makes it."""

from __future__ import annotations

from typing import Any

from db.canonical import canonical_json, content_hash
from db.farm.farm import Farm
from db.farm.run_records import (
    ArtifactContent,
    DeviceState,
    NewRun,
    Proposal,
    ProposedCandidate,
    Run,
    StudySpec,
)
from db.farm.states import JobKind
from db.records import CandidateRecord
from mapper.measurement import Outcome

PROGRAM = '{"schema":"nestmap/program/1","kernels":[]}'
#: As many runs and candidates as a test makes.
UNBOUNDED: dict[str, Any] = {
    "most_open": 1_000_000, "most_candidates": 10**9, "most_bytes": 2**50,
}  # fmt: skip
SOURCE = b"kernel void k() {}"
DEVICE = DeviceState("PoCL", {"driver": "3.0"})


def new_run(farm: Farm, board_id: str, label: str = "vgg16/7", *, priority: int = 0) -> Run:
    """A queued run."""
    new = NewRun(board_id, label, "somebody", {"subject": {"name": label}}, priority=priority,
                 **UNBOUNDED)  # fmt: skip
    return farm.runs.create(new).value


def candidate(number: int, memory_bytes: int = 4096) -> CandidateRecord:
    """The candidate of a number."""
    return CandidateRecord(
        program_hash=content_hash(canonical_json({"schema": "nestmap/program/1", "kernels": []})),
        parameters={"theta": number},
        mapping={"row": 20, "column": 10},
        local_sizes={"k": [8, 1, 1]},
        source_hash=content_hash(SOURCE.decode()),
        memory_bytes=memory_bytes,
        nestmap_version="0.1.0",
    )


def propose(farm: Farm, *memory_bytes: int, first: int = 0, exhausted: bool = False) -> None:
    """End the open propose job with a candidate for each number of bytes."""
    claim = farm.jobs.claim_work((JobKind.PROPOSE,), "test", lease_s=30)
    assert claim is not None
    source = content_hash(SOURCE.decode())
    candidates = tuple(
        ProposedCandidate(
            0,
            candidate(first + number, size),
            {"schema": "nestmap/measure-job/1", "timeout_s": 5.0, "source": {"artifact": source}},
            (source,),
        )
        for number, size in enumerate(memory_bytes)
    )
    study = StudySpec("nestmap/program/1", PROGRAM, "direct", "strict", 0)
    farm.results.finish_propose(
        claim.lease,
        Proposal(DEVICE, (study,), candidates, (ArtifactContent(SOURCE),), exhausted),
    )


def measure(farm: Farm, board_id: str, *outcomes: Outcome) -> None:
    """Measure as many candidates as there are outcomes, in order."""
    for outcome in outcomes:
        claim = farm.jobs.claim_for_board(board_id, lease_s=30)
        assert claim is not None
        farm.results.finish_measure(claim.lease, outcome, facts={"temperature": 50})
