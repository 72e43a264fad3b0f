"""The judge of a farm's past finds each broken promise, and nothing in a clean one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.chaos.history import Claimed, JobPast, Past, RunPast, faults_of

LOST = Claimed(1, 0.0, 30.0, "expired")
DONE = Claimed(2, 31.0, 32.0, "done")
JOB = JobPast("job", "measure", "run", "done", 3, (LOST, DONE), 1)
PROPOSE = JobPast("propose", "propose", "run", "done", 3, (Claimed(1, 0.0, 1.0, "done"),))
RUN = RunPast("run", "finished", 1, 0, 1)
CLEAN = Past({"key": ["run", "run"]}, [RUN], [JOB, PROPOSE], 1)


def test_a_clean_past_has_no_faults():
    assert faults_of(CLEAN) == []


@pytest.mark.parametrize(
    ("past", "said"),
    [
        (replace(CLEAN, accepted={"key": ["run", "other"]}), "answered with runs"),
        (replace(CLEAN, accepted={"key": ["run"], "b": ["gone"]}), "run gone is lost"),
        (replace(CLEAN, runs=[RUN, replace(RUN, id="twin", measured=0, budget=None)]), "twice"),
        (replace(CLEAN, runs=[replace(RUN, state="running")]), "never ended: running"),
        (replace(CLEAN, runs=[replace(RUN, measured=2)]), "says 2 measured, jobs say 1"),
        (replace(CLEAN, runs=[replace(RUN, lost=1)]), "says 1 lost, jobs say 0"),
        (replace(CLEAN, runs=[replace(RUN, budget=5)]), "before its budget"),
        (replace(CLEAN, measurements=2), "2 measurements of 1"),
        (replace(CLEAN, jobs=[replace(JOB, state="queued")]), "never ended: queued"),
        (replace(CLEAN, jobs=[replace(JOB, attempts=(DONE,))]), "has attempts [2]"),
        (replace(CLEAN, jobs=[replace(JOB, most_attempts=1)]), "given out 2 times"),
        (
            replace(CLEAN, jobs=[replace(JOB, attempts=(replace(LOST, ending="done"), DONE))]),
            "was done 2 times",
        ),
        (replace(CLEAN, jobs=[replace(JOB, measurements=2)]), "with 2 measurements"),
        (
            replace(CLEAN, jobs=[replace(JOB, attempts=(replace(LOST, ended_at=31.5), DONE))]),
            "while attempt 1 ran",
        ),
        (
            replace(CLEAN, jobs=[replace(JOB, attempts=(LOST, replace(DONE, ended_at=None)))]),
            "attempt 2 of job job never ended",
        ),
    ],
)
def test_each_broken_promise_is_found(past: Past, said: str):
    assert any(said in fault for fault in faults_of(past)), faults_of(past)
