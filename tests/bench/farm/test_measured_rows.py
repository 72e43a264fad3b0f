"""Measurements that the bench writes are as the store would have written them."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import create_engine, inspect

from bench.farm.measured_rows import LABEL, plan_of, sizes, write_measurements
from db.engine import address_of, open_engine
from db.farm.farm import Farm
from db.farm.fronts import front_statement
from db.farm.selection import Selection
from mapper.measurement import Timed


def _indexes(path: Path) -> set[str | None]:
    engine = create_engine(address_of(path))
    try:
        return {index["name"] for index in inspect(engine).get_indexes("measurements")}
    finally:
        engine.dispose()


def test_written_measurements_read_like_any_others(tmp_path: Path) -> None:
    path = tmp_path / "farm.sqlite3"
    Farm.open(path).close()
    indexes = _indexes(path)
    told: list[int] = []
    engine = open_engine(address_of(path))
    with Farm.open(path) as farm:
        studies = write_measurements(farm, engine, 2, 300, 1, told.append)
        page = farm.measurements.page(Selection(study_ids=frozenset(studies[:1])), limit=500)
        front = farm.fronts.front(Selection(label=LABEL))
        every = farm.measurements.page(Selection(label=LABEL), limit=1_000)
        plan = plan_of(engine, front_statement(Selection(study_ids=frozenset(studies))))
    size = sizes(engine)["database_bytes"]
    engine.dispose()  # the last connection: what is in the log goes into the file
    assert size == path.stat().st_size
    assert told == [300, 600]
    assert _indexes(path) == indexes
    assert any("ix_measurements_study_id_time_ms_memory_bytes" in line for line in plan)
    assert len({one.measurement.candidate_id for one in page}) == 300
    points: set[tuple[float, int]] = set()
    for one in every:
        assert isinstance(one.measurement.outcome, Timed)
        points.add((one.measurement.outcome.time_ms, one.measurement.memory_bytes))
    assert len(every) == 600
    # The definition, in n^2; an index that was not made anew would not change it, so see above.
    best = {
        point
        for point in points
        if not any(a <= point[0] and b <= point[1] and (a, b) != point for a, b in points)
    }
    assert {(point.time_ms, point.memory_bytes) for point in front} == best
    assert len(best) > 3
