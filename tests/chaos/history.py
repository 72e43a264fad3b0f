"""What must be true of a farm's database after whatever happened to its processes: a pure judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ENDED_JOBS = frozenset({"done", "failed", "cancelled"})
ENDED_RUNS = frozenset({"finished", "cancelled", "failed"})
#: Ends of an attempt that its own holder made.
TAKEN_BACK = frozenset({"done", "failed"})


@dataclass(frozen=True, slots=True)
class Claimed:
    """One attempt at a job; times in seconds, ``ending`` is None while it is under way."""

    number: int
    claimed_at: float
    ended_at: float | None
    ending: str | None


@dataclass(frozen=True, slots=True)
class JobPast:
    """A job: ``result_of`` is how many measurements are stored for its study and candidate."""

    id: str
    kind: str
    run: str | None
    state: str
    most_attempts: int
    attempts: tuple[Claimed, ...]
    measurements: int = 0


@dataclass(frozen=True, slots=True)
class RunPast:
    """A run with the counters of its row."""

    id: str
    state: str
    measured: int
    lost: int
    budget: int | None


@dataclass(frozen=True, slots=True)
class Past:
    """All that a farm remembers, and what clients were told: ``accepted`` is the run that each
    idempotency key was answered with; ``measurements`` is how many there are in all."""

    accepted: Mapping[str, Sequence[str]]
    runs: Sequence[RunPast]
    jobs: Sequence[JobPast]
    measurements: int


def faults_of(past: Past) -> list[str]:
    """Every promise that was broken, in words; nothing if all were kept."""
    return [*_of_requests(past), *_of_runs(past), *_of_jobs(past)]


def _of_requests(past: Past) -> list[str]:
    found: list[str] = []
    runs = {run.id for run in past.runs}
    for key, answers in past.accepted.items():
        if len(set(answers)) > 1:
            found.append(f"key {key} was answered with runs {sorted(set(answers))}")
        found += [f"accepted run {run} is lost" for run in set(answers) if run not in runs]
    known = {run for answers in past.accepted.values() for run in answers}
    found += [f"run {run} was stored twice for one key" for run in runs - known]
    return found


def _of_runs(past: Past) -> list[str]:
    found: list[str] = []
    measured: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for job in past.jobs:
        if job.kind == "measure" and job.run is not None:
            measured[job.run] += job.state == "done"
            failed[job.run] += job.state == "failed"
    for run in past.runs:
        if run.state not in ENDED_RUNS:
            found.append(f"run {run.id} never ended: {run.state}")
        if run.measured != measured[run.id]:
            found.append(f"run {run.id} says {run.measured} measured, jobs say {measured[run.id]}")
        if run.lost != failed[run.id]:
            found.append(f"run {run.id} says {run.lost} lost, jobs say {failed[run.id]}")
        if (
            run.state == "finished"
            and run.budget is not None
            and run.measured + run.lost < run.budget
        ):
            found.append(f"run {run.id} ended before its budget of {run.budget}")
    if past.measurements != sum(measured.values()):
        found.append(f"{past.measurements} measurements of {sum(measured.values())} jobs done")
    return found


def _of_jobs(past: Past) -> list[str]:
    found: list[str] = []
    for job in past.jobs:
        if job.state not in ENDED_JOBS:
            found.append(f"job {job.id} never ended: {job.state}")
        numbers = [attempt.number for attempt in job.attempts]
        if numbers != list(range(1, len(numbers) + 1)):
            found.append(f"job {job.id} has attempts {numbers}")
        if len(numbers) > job.most_attempts:
            found.append(f"job {job.id} was given out {len(numbers)} times")
        done = [attempt for attempt in job.attempts if attempt.ending == "done"]
        if len(done) != (job.state == "done"):
            found.append(f"job {job.id} is {job.state} and was done {len(done)} times")
        if job.kind == "measure" and job.measurements != (job.state == "done"):
            found.append(f"job {job.id} is {job.state} with {job.measurements} measurements")
        for earlier, later in zip(job.attempts, job.attempts[1:], strict=False):
            if earlier.ended_at is None or earlier.ended_at > later.claimed_at:
                found.append(f"job {job.id} was given out again while attempt {earlier.number} ran")
        if job.state in ENDED_JOBS:
            found += [
                f"attempt {attempt.number} of job {job.id} never ended"
                for attempt in job.attempts
                if attempt.ended_at is None
            ]
    return found
