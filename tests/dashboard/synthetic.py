"""Runs with many invented measurements, written straight into an SQLite store: what is looked at
is how pages and reads do with many, not how these came about."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import insert, update

from db.codecs import pack_trials
from db.engine import address_of, open_engine
from db.farm.farm import Farm
from db.farm.run_records import NewRun
from db.farm.states import RunState
from db.farm.tables import RunRow, RunStudyRow
from db.tables import CandidateRow, MeasurementRow

_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
_FAILED = (
    ("compile-error", {"message": "error: use of undeclared identifier"}),
    ("resource-error", {"message": "CL_OUT_OF_RESOURCES"}),
    ("timeout", {"after_s": 10.0}),
)
_CODES = (0, 1, 10, 11, 20, 21, 30, 31)


def write_run(store: Path, points: int, seed: int = 0, failures: int = 0) -> str:
    """A finished run of ``vgg16/7`` in two variants with so many timed measurements; its id.

    Times and memory are lognormal, and what is faster tends to take more memory, so that the
    front has a few dozen points.
    """
    drawn = random.Random(seed)
    with Farm.open(store) as farm:
        board = farm.boards.find("synthetic") or farm.boards.add("synthetic").board
        new = NewRun(
            board.id,
            f"{points} synthetic kernels",
            "tests",
            {"subject": {"name": "vgg16/7"}},
            most_open=1_000,
            most_candidates=10**9,
            most_bytes=2**40,
        )
        run_id = farm.runs.create(new).value.id
        device = farm.store.add_device("synthetic device", {"points": points})
        studies: list[int] = []
        programs: list[str] = []
        for variant in ("direct", "partial"):
            program = farm.store.add_program("nestmap/synthetic/1", json.dumps(variant))
            label = f"{run_id} {variant}"
            study = farm.store.open_study(
                program, device, mode="strict", seed=seed, label=label, variant=variant
            )
            studies.append(study.id)
            programs.append(program)
    rows = [_row(drawn, place, seed) for place in range(points + failures)]
    candidates: list[dict[str, Any]] = []
    measurements: list[dict[str, Any]] = []
    for place, row in enumerate(rows):
        variant = place % 2
        candidates.append(_candidate(drawn, row, programs[variant]))
        measurements.append(_measurement(row, studies[variant], place, place >= points))
    engine = open_engine(address_of(store), durable=False)
    try:
        with engine.begin() as connection:
            connection.execute(insert(CandidateRow), candidates)
            connection.execute(insert(MeasurementRow), measurements)
            connection.execute(
                insert(RunStudyRow), [{"run_id": run_id, "study_id": one} for one in studies]
            )
            best = min(rows[:points], key=lambda row: row["time_ns"])
            connection.execute(
                update(RunRow)
                .where(RunRow.id == run_id)
                .values(
                    state=RunState.FINISHED, reason="candidates", timed=points, timeout=failures,
                    proposed=points + failures, best_ms=best["time_ns"] / 1e6,
                    best_memory_bytes=best["memory_bytes"], best_candidate_id=best["id"],
                    started_at=_BEGAN, ended_at=_BEGAN + timedelta(seconds=points),
                    active_s=float(points),
                )
            )  # fmt: skip
    finally:
        engine.dispose()
    return run_id


def _row(drawn: random.Random, place: int, seed: int) -> dict[str, Any]:
    time_ns = int(drawn.lognormvariate(1.0, 1.0) * 1e6) + 1
    scattered = (place * 0x9E3779B97F4A7C15 + seed) % 2**64
    return {
        "id": f"{scattered:016x}{seed:016x}{place:032x}",
        "time_ns": time_ns,
        "memory_bytes": int(drawn.lognormvariate(15.0, 1.0) * (1 + 2e6 / time_ns)),
    }


def _candidate(drawn: random.Random, row: dict[str, Any], program: str) -> dict[str, Any]:
    return {
        "id": row["id"],
        "program_hash": program,
        "parameters": {name: drawn.choice((1, 2, 4, 8, 16)) for name in ("theta", "rho", "kappa")},
        "mapping": {str(28 + number): drawn.choice(_CODES) for number in range(12)},
        "local_sizes": {"convolution": [drawn.choice((4, 8, 16)), drawn.choice((1, 2, 4)), 1]},
        "source_hash": "0" * 64,
        "memory_bytes": row["memory_bytes"],
        "nestmap_version": "synthetic",
    }


def _measurement(row: dict[str, Any], study_id: int, place: int, failed: bool) -> dict[str, Any]:
    kind, detail = _FAILED[place % len(_FAILED)]
    if not failed:
        kind, detail = "timed", {"facts": {}, "max_relative_error": 1e-6, "compile_ms": 100.0}
    time_ns: int = row["time_ns"]
    return {
        "study_id": study_id,
        "candidate_id": row["id"],
        "kind": kind,
        "detail": detail,
        "trials": None if failed else pack_trials((time_ns,) * 19 + (time_ns + 1,)),
        "time_ms": None if failed else time_ns / 1e6,
        "memory_bytes": row["memory_bytes"],
        "source_hash": "0" * 64,
        "nestmap_version": "synthetic",
        "started_at": _BEGAN + timedelta(seconds=place),
    }
