"""Fronts, bounds, series and pages: SQL says what plain Python says."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.farm.errors import AbsentError
from db.farm.farm import Farm
from db.farm.measurements import growing_volumes
from db.farm.selection import Selection
from db.records import CandidateRecord, Study
from mapper.errors import InputError
from mapper.measurement import Crash, Timed, Timeout
from tests.unit.db.farm_values import (
    FACTS,
    Clock,
    claim,
    finish,
    propose,
    some_board,
    some_run,
    timed,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
#: ``(time_ms, memory_bytes, candidate, study, minutes)``
Point = tuple[float, int, str, int, int]


def beats(a: Point, b: Point) -> bool:
    return a[0] <= b[0] and a[1] <= b[1] and (a[0], a[1]) != (b[0], b[1])


def front_oracle(points: list[Point]) -> list[Point]:
    """By the definition, in quadratic time."""
    kept = [p for p in points if not any(beats(other, p) for other in points)]
    return sorted(kept, key=lambda p: p[:3])


def filled(
    farm: Farm, count: int, values: int, studies: int = 3
) -> tuple[list[Study], list[Point]]:
    """Studies of two programs on two devices with points of few distinct values, so that ties
    in one and both coordinates are common."""
    generator = random.Random(count * values)
    programs = [farm.store.add_program("p/1", f'{{"p": {n}}}') for n in (0, 1)]
    devices = [farm.store.add_device(name, {}) for name in ("a", "b")]
    made = [
        farm.store.open_study(
            programs[n % 2], devices[n // 2], mode="strict", seed=0, label=f"l{n}", variant="v"
        )
        for n in range(studies)
    ]
    points: list[Point] = []
    for number in range(count):
        study = made[generator.randrange(studies)]
        memory, minutes = generator.randrange(values), generator.randrange(60)
        record = CandidateRecord(study.program_hash, {"n": number}, {}, [], "0" * 64, 1, "0.1")
        outcome = Timed((generator.randrange(values) * 1000,), 0.0, 1.0)
        at = NOW + timedelta(minutes=minutes)
        if number % 7 == 0:
            farm.store.add_measurement(study, record, Timeout(1.0), 0, at)
            continue
        farm.store.add_measurement(study, record, outcome, memory, at)
        points.append((outcome.time_ms, memory, record.id, study.id, minutes))
    return made, points


def test_a_program_s_front_has_what_was_measured_of_it_under_schedules(farm: Farm):
    written = {"kernels": []}
    texts = [
        ("nestmap/program/1", written),
        ("nestmap/scheduled/1", {"program": written, "schedule": ["split"]}),
        ("nestmap/scheduled/1", {"program": {"kernels": ["other"]}, "schedule": []}),
    ]
    device = farm.store.add_device("d", {})
    hashes = [farm.store.add_program(schema, json.dumps(value)) for schema, value in texts]
    for number, program in enumerate(hashes):
        study = farm.store.open_study(
            program, device, mode="strict", seed=0, label="l", variant=f"v{number}"
        )
        record = CandidateRecord(program, {"n": number}, {}, [], "0" * 64, 1, "0.1")
        farm.store.add_measurement(study, record, Timed((1000 - number,), 0.0, 1.0), number)
    for wanted in (Selection(program=hashes[0]), Selection(programs=frozenset({hashes[0]}))):
        assert {p.program_hash for p in farm.fronts.front(wanted)} == {*hashes[:2]}
    assert {p.program_hash for p in farm.fronts.front(Selection(program=hashes[1]))} == {hashes[1]}
    both = Selection(program=hashes[1], programs=frozenset({hashes[0]}))
    assert {p.program_hash for p in farm.fronts.front(both)} == {hashes[1]}


@pytest.mark.parametrize(("count", "values"), [(0, 1), (40, 4), (60, 8), (60, 1000)])
def test_every_front_equals_the_oracle(farm: Farm, count: int, values: int):
    studies, points = filled(farm, count, values)
    program = studies[0].program_hash
    selections: list[tuple[Selection, Callable[[Point], bool]]] = [
        (Selection(), lambda p: True),
        (Selection(study_ids=frozenset({studies[1].id})), lambda p: p[3] == studies[1].id),
        (Selection(study_ids=frozenset()), lambda p: False),
        (
            Selection(programs=frozenset({program})),
            lambda p: p[3] in {s.id for s in studies if s.program_hash == program},
        ),
        (
            Selection(device_ids=frozenset({studies[2].device_id})),
            lambda p: p[3] == studies[2].id,
        ),
        (Selection(label="l1"), lambda p: p[3] == studies[1].id),
        (
            Selection(since=NOW + timedelta(minutes=10), until=NOW + timedelta(minutes=30)),
            lambda p: 10 <= p[4] < 30,
        ),
        (Selection(mode="proven"), lambda p: False),
        (Selection(candidate_id="0" * 64), lambda p: False),
        *(
            (Selection(candidate_id=one), lambda p, one=one: p[2] == one)
            for one in {p[2] for p in points[:2]}
        ),
    ]
    for selection, fits in selections:
        chosen = [p for p in points if fits(p)]
        found = farm.fronts.front(selection)
        assert [(p.time_ms, p.memory_bytes, p.candidate_id) for p in found] == [
            p[:3] for p in front_oracle(chosen)
        ]
        for point in found:
            assert (point.variant, point.program_hash) == (
                "v",
                farm.store.study(point.study_id).program_hash,
            )
    for study in studies:
        own = [p for p in points if p[3] == study.id]
        assert [(p.time_ms, p.memory_bytes, p.candidate_id) for p in farm.store.front(study)] == [
            p[:3] for p in front_oracle(own)
        ]


def test_the_fastest_of_each_program_equals_the_oracle(farm: Farm):
    studies, points = filled(farm, 60, 6)
    program_of = {study.id: study.program_hash for study in studies}
    early = Selection(until=NOW + timedelta(minutes=30))
    first = Selection(device_ids=frozenset({studies[0].device_id}))
    for selection, fits in (
        (Selection(), lambda p: True),
        (first, lambda p: p[3] != studies[2].id),
        (early, lambda p: p[4] < 30),
        (Selection(study_ids=frozenset()), lambda p: False),
    ):
        expected: dict[str, Point] = {}
        for p in sorted(filter(fits, points), key=lambda p: p[:3]):
            expected.setdefault(program_of[p[3]], p)
        found = farm.fronts.fastest_by_program(selection)
        assert {
            program: (point.time_ms, point.memory_bytes, point.candidate_id, point.study_id)
            for program, point in found.items()
        } == {program: p[:4] for program, p in expected.items()}


def test_the_best_within_a_bound_equals_the_oracle(farm: Farm):
    _, points = filled(farm, 50, 9)
    for bound in range(-1, 10):
        most_bytes, most_ms = max(bound, 0), max(bound, 0) / 1000
        under = [p for p in points if p[1] <= most_bytes]
        fastest = farm.fronts.fastest(Selection(), most_bytes=most_bytes)
        expected = min(under, key=lambda p: p[:3], default=None)
        assert (fastest and fastest.candidate_id) == (expected and expected[2])
        quick = [p for p in points if p[0] <= most_ms]
        smallest = farm.fronts.smallest(Selection(), most_ms=most_ms)
        expected = min(quick, key=lambda p: (p[1], p[0], p[2]), default=None)
        assert (smallest and smallest.candidate_id) == (expected and expected[2])
    best = farm.fronts.fastest(Selection())
    assert best is not None
    assert best.time_ms == min(p[0] for p in points)
    for wrong in (-1, 2**63):
        with pytest.raises(InputError, match="most_bytes"):
            farm.fronts.fastest(Selection(), most_bytes=wrong)
    with pytest.raises(InputError, match="most_ms"):
        farm.fronts.smallest(Selection(), most_ms=float("nan"))


def test_runs_boards_and_layers_have_fronts(farm: Farm, clock: Clock):
    hikey, pi = some_board(farm), some_board(farm, "pi")
    runs = []
    for number, (board, label) in enumerate(
        [(hikey, "vgg16/0"), (hikey, "vgg16/1"), (pi, "vgg16/0")]
    ):
        run = some_run(farm, board, label=label, low_water=1)
        propose(farm, [number])
        finish(farm, claim(farm, board), 1_000 * (number + 1))
        farm.runs.cancel(run.id)
        runs.append(run)

    def times(selection: Selection) -> list[float]:
        return [point.time_ms for point in farm.fronts.front(selection)]

    assert times(Selection(run_id=runs[1].id)) == [0.002]
    assert times(Selection(board_id=pi.id)) == [0.003]
    assert times(Selection(board_id=hikey.id, label="vgg16/1")) == [0.002]
    # Of two boards, and nobody has found again what one of them says.
    assert times(Selection(label="vgg16/0")) == []
    claims = farm.fronts.claims(Selection(label="vgg16/0"))
    assert [point.time_ms for point in claims] == [0.001, 0.003]  # the later ones allocate less
    assert times(Selection(board_id=hikey.id)) == [0.001, 0.002]
    assert times(Selection(run_id="run_none")) == []


# Pages and counts


def test_pages_of_measurements_neither_skip_nor_repeat(farm: Farm):
    board = some_board(farm)
    run = some_run(farm, board, low_water=1)
    propose(farm, range(7))
    for number in range(7):
        claimed = claim(farm, board)
        outcome = Crash(-11, "boom\x00\udc80") if number == 3 else timed(1_000 + number)
        farm.results.finish_measure(claimed.lease, outcome, facts=FACTS)
    selection = Selection(run_id=run.id)
    for newest_first in (False, True):
        found, after = [], None
        while page := farm.measurements.page(
            selection, limit=3, after=after, newest_first=newest_first
        ):
            found += [each.measurement.id for each in page]
            after = found[-1]
        assert found == sorted(found, reverse=newest_first)
        assert len(set(found)) == 7
    (crash,) = farm.measurements.page(Selection(kind="crash"))
    assert crash.measurement.outcome == Crash(-11, "boom\x00\udc80")
    assert (crash.run_id, crash.board_id, crash.variant) == (run.id, board.id, "direct")
    assert farm.measurements.measurement(crash.measurement.id) == crash
    assert farm.measurements.counts(selection)["timed"] == 6
    assert farm.measurements.counts(Selection(board_id=board.id)) == dict(
        farm.runs.run(run.id).progress.outcomes
    )
    with pytest.raises(AbsentError, match="no such measurement"):
        farm.measurements.measurement(10**15)


def test_measurements_without_a_run_are_found_too(farm: Farm):
    studies, points = filled(farm, 20, 5)
    page = farm.measurements.page(Selection(study_ids=frozenset({studies[0].id})))
    assert {each.measurement.candidate_id for each in page} >= {
        p[2] for p in points if p[3] == studies[0].id
    }
    assert {(each.run_id, each.board_id) for each in page} == {(None, None)}
    hour = Selection(since=NOW, until=NOW + timedelta(hours=1))
    assert sum(farm.measurements.counts(hour).values()) == 20
    assert sum(farm.measurements.counts(Selection(until=NOW)).values()) == 0


def test_selections_refuse_what_makes_no_sense():
    cases: tuple[dict[str, Any], ...] = (
        {"kind": "slow"},
        {"run_id": "a\0"},
        {"label": "\udc80"},
        {"since": datetime(2026, 1, 1)},
        {"study_ids": frozenset({2**63})},
        {"programs": frozenset(map(str, range(1_001)))},
    )
    for wrong in cases:
        with pytest.raises(InputError, match=next(iter(wrong))):
            Selection(**wrong)


# Series


def test_improvements_are_the_records_in_their_order(farm: Farm):
    studies, points = filled(farm, 60, 50)
    for selection, chosen in (
        (Selection(), points),
        (
            Selection(study_ids=frozenset({studies[0].id})),
            [p for p in points if p[3] == studies[0].id],
        ),
    ):
        best, expected = float("inf"), []
        for point in chosen:
            if point[0] < best:
                best = point[0]
                expected.append((point[0], point[2]))
        found = farm.measurements.improvements(selection)
        assert [(each.time_ms, each.candidate_id) for each in found] == expected
        numbers = [each.number for each in found]
        assert numbers == sorted(set(numbers))
    # failures count as tries: number 1 is a timeout, so that the first record is number 2
    assert farm.measurements.improvements(Selection())[0].number == 2


def area(points: list[tuple[float, float]], reference: tuple[float, float]) -> int:
    """Unit cells that some point dominates: integers only."""
    return sum(
        any(p[0] <= x and p[1] <= y for p in points)
        for x in range(int(reference[0]))
        for y in range(int(reference[1]))
    )


cells = st.tuples(st.integers(0, 7), st.integers(0, 7))


@given(st.lists(cells, max_size=15), cells)
def test_hypervolume_equals_counting_cells(
    points: list[tuple[float, float]], reference: tuple[float, float]
):
    growing = dict(growing_volumes(points, reference))
    volume = 0.0
    for index in range(len(points)):
        before, volume = volume, growing.get(index, volume)
        assert volume == area(points[: index + 1], reference)
        assert (index in growing) == (volume > before)


def test_hypervolume_of_a_run_only_grows(farm: Farm):
    _, points = filled(farm, 60, 40)
    series = farm.measurements.hypervolume(Selection())
    assert (series.reference_ms, series.reference_bytes) == (
        max(p[0] for p in points),
        max(p[1] for p in points),
    )
    volumes = [each.hypervolume for each in series.volumes]
    assert volumes == sorted(volumes)
    sizes = [(p[0], p[1]) for p in points]
    worst = (series.reference_ms, series.reference_bytes)
    assert volumes[-1] == pytest.approx(list(growing_volumes(sizes, worst))[-1][1])
    thin = farm.measurements.hypervolume(Selection(), limit=3).volumes
    assert (len(thin), thin[0], thin[-1]) == (3, series.volumes[0], series.volumes[-1])
    assert farm.measurements.hypervolume(Selection(mode="none")).volumes == ()
    tight = farm.measurements.hypervolume(Selection(), reference=(0.0, 0.0))
    assert tight.volumes == ()
