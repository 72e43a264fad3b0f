"""Replays: recordings of layers and of spaces, quality by evaluations, kept runs, repairs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.searches.campaign import (
    Run,
    curve_of,
    measure,
    own_trace,
    read_runs,
    run_of,
    write_runs,
)
from bench.searches.contestants import OWN, WITH_TRANSFER, Trace, goal_of
from bench.searches.layer_recording import (
    described_anew,
    group_of_recording,
    is_archived,
    record_layer,
    space_of_layer,
)
from bench.searches.peers.repair import nearest_row
from bench.searches.plots import write_plots
from bench.searches.recording import Recording, read_recording, write_recording
from bench.searches.replay import Arena, first_at, is_layer, quality, teaching, volume
from bench.searches.tables import overview, summaries, table, verdict
from bench.searches.terms import term_from_json, variable_of
from bench.space_solving.cases import ROOT
from mapper.constraint_rules.predicate import (
    FloorDiv,
    IntConst,
    LocalSizeVariable,
    Maximum,
    Modulo,
    ParameterVariable,
    Product,
    Sum,
)
from mapper.errors import InputError
from mapper.measurement import CompileError, Outcome
from mapper.search.goal import Front
from nestmap.tuning.descriptions import COLUMNS
from tests.unit.tuning.fakes import TINY, ScriptedDevice, timed

RECORDINGS = ROOT / "bench" / "recordings"
POINTS = 24
WIDE = replace(TINY, height=12, width=12, name="wide")


def _answer(number: int, candidate: str) -> Outcome:
    """Every seventh fails, the others differ; the 11th is the fastest."""
    return CompileError("no") if number % 7 == 3 else timed(1.0 + (number - 11) ** 2)


@pytest.fixture(scope="module")
def layer() -> Recording:
    return record_layer(TINY, "partial", ScriptedDevice(_answer), points=POINTS, seconds=1e6)


@pytest.fixture(scope="module")
def other() -> Recording:
    """Another layer on the same device."""
    device = ScriptedDevice(_answer)
    return record_layer(WIDE, "partial", device, points=POINTS, seconds=1e6)


@pytest.fixture(scope="module")
def arena(layer: Recording, other: Recording) -> Arena:
    return Arena.of(layer, [layer, other])


def test_a_recorded_layer_comes_back_from_its_file(layer: Recording, tmp_path: Path) -> None:
    path = tmp_path / "layer.json.gz"
    write_recording(path, layer)
    again = read_recording(path)
    assert again.rows == POINTS
    assert again.failures == dict.fromkeys(range(3, POINTS, 7), "compile-error")
    assert again.best_ms == again.time_ms[11] == 1.0
    assert np.array_equal(again.values, layer.values)
    assert np.array_equal(again.memory_bytes, layer.memory_bytes)
    assert (again.memory_bytes > 0).all()


def test_a_layer_is_recorded_alike_from_the_same_seed() -> None:
    def rows(seed: int) -> set[tuple[int, ...]]:
        device = ScriptedDevice(_answer)
        found = record_layer(TINY, "high-level", device, points=8, seconds=1e6, seed=seed)
        return set(found.row_of)

    assert rows(0) == rows(0) != rows(1)


def test_recording_ends_with_its_time() -> None:
    ticks = iter(range(10_000))
    device = ScriptedDevice(_answer)
    found = record_layer(
        TINY, "high-level", device, points=POINTS, seconds=10.0, clock=lambda: float(next(ticks))
    )
    assert 1 < found.rows < POINTS
    with pytest.raises(InputError, match="no candidate was timed"):
        failing = ScriptedDevice(lambda number, candidate: CompileError("no"))
        record_layer(TINY, "high-level", failing, points=3, seconds=1e6)


@pytest.mark.parametrize("search", ["random", "evolution", "model-guided"])
def test_every_search_of_ours_finds_all_of_a_small_recording_once(
    arena: Arena, search: str
) -> None:
    trace = own_trace(arena, search, 1, 1000)
    assert sorted(trace.rows) == list(range(POINTS))
    assert trace == replace(own_trace(arena, search, 1, 1000), seconds=trace.seconds)


def test_a_search_of_a_layer_looks_for_the_front_and_knows_a_guess(arena: Arena) -> None:
    assert isinstance(goal_of(arena), Front)
    described = arena.describe(arena.recording.values[:5])
    assert described.guess is not None
    assert described.columns.shape == (5, COLUMNS)


def test_other_layers_of_the_device_teach_and_the_layer_itself_does_not(
    layer: Recording, other: Recording, arena: Arena
) -> None:
    cut = replace(layer, name="tiny@2x2/direct")
    elsewhere = replace(other, device="another")
    of_no_layer = replace(other, document={"schema": "nestmap/space/1"})
    assert teaching(layer, [layer, cut, elsewhere, of_no_layer, other]) == [other]
    assert teaching(of_no_layer, [other]) == []
    assert [group.name for group in arena.teachers] == ["wide/partial"]
    described = arena.learned(0)(layer.values[:5])
    assert described.columns.shape == (5, COLUMNS + 1)
    assert described.guess is not None and described.columns[:, -1].tolist() == (
        described.guess.tolist()
    )


def test_searches_with_transfer_are_run_where_something_teaches(
    layer: Recording, other: Recording, tmp_path: Path
) -> None:
    paths = [tmp_path / "layer.json.gz", tmp_path / "other.json.gz"]
    for path, recording in zip(paths, (layer, other), strict=True):
        write_recording(path, recording)
    every = [(path, read_recording(path)) for path in paths]
    chosen = {OWN: [WITH_TRANSFER, "random"]}
    for teachers, expected in (
        ([], {"random"}),
        (every[:1], {"random"}),
        (every, {WITH_TRANSFER, "random"}),
    ):
        done: dict[tuple[str, str, str, int], Run] = {}
        measure(
            every[:1], chosen, range(1), 3, Path("/nowhere"), done, lambda run: None,
            learn_from=teachers,
        )  # fmt: skip
        assert {search for _, _, search, _ in done} == expected


def test_what_is_known_of_a_recorded_layer_can_be_found_out_anew(layer: Recording) -> None:
    document: dict[str, Any] = {**layer.document, "schema": "nestmap/recorded-layer/1"}
    for field in ("features", "parameters", "known"):
        del document[field]
    old = replace(layer, document=document)
    assert is_layer(old)
    with pytest.raises(InputError, match="nestmap bench search describe"):
        Arena.of(old)
    again = described_anew(old)
    assert again.document == layer.document
    assert np.array_equal(again.time_ms, layer.time_ms, equal_nan=True)


def test_a_layer_recorded_under_other_rules_is_refused(layer: Recording) -> None:
    variables = (("elsewhere", layer.variables[0][1]), *layer.variables[1:])
    with pytest.raises(InputError, match="other variables; found elsewhere"):
        Arena.of(replace(layer, variables=variables))
    document: dict[str, Any] = {**layer.document, "known": [[0.0]]}
    with pytest.raises(InputError, match="known"):
        Arena.of(replace(layer, document=document))


def test_quality_and_volume_rise_to_one(arena: Arena) -> None:
    found = quality(arena.recording, [3, 0, 11, 5], 6)
    assert found.tolist() == [0.0, 1.0 / 122.0, 1.0, 1.0, 1.0, 1.0]
    assert (first_at(found, 0.95), first_at(found[:2], 0.95)) == (3, None)
    share = volume(arena, range(POINTS), POINTS)
    assert (np.diff(share) >= 0).all() and share[-1] == pytest.approx(1.0)


def test_kept_runs_give_the_same_curves(arena: Arena, tmp_path: Path) -> None:
    trace = own_trace(arena, "random", 4, POINTS)
    run = run_of(arena, OWN, trace)
    write_runs(tmp_path / "runs.json", [run], {"evaluations": POINTS})
    (again,) = read_runs(tmp_path / "runs.json").values()
    assert again == run
    for front, curve in (
        (False, quality(arena.recording, trace.rows, POINTS)),
        (True, volume(arena, trace.rows, POINTS)),
    ):
        assert np.array_equal(curve_of(arena, again, POINTS, front=front), curve)
    (tmp_path / "other.json").write_text('{"schema": "x"}')
    with pytest.raises(InputError, match="no results"):
        read_runs(tmp_path / "other.json")


def test_tables_and_plots_say_who_reached_what(arena: Arena, tmp_path: Path) -> None:
    lucky = Trace("tpe", 0, (11, 0, 1), 0.1)
    late = Trace("model-guided", 0, (0, 1, 11), 0.1)
    never = Trace("random", 0, (0, 1, 2), 0.1)
    runs = [
        run_of(arena, project, trace)
        for project, trace in (("optuna", lucky), (OWN, late), (OWN, never))
    ]
    found = summaries(arena, runs, 25)
    assert [(s.search, float(s.reached[0])) for s in found] == [
        ("tpe", 1.0), ("model-guided", 3.0), ("random", np.inf),
    ]  # fmt: skip
    lines = table(found, 25).splitlines()
    assert "never" in lines[-1] and "| 1 (1 to 1) |" in lines[2]
    assert verdict(found, 25) == [
        "at 25: 1.000, level with 1.000 (optuna: tpe); means 1.000 and 1.000"
    ]
    assert overview([(arena.recording, found)]).splitlines()[-1] == (
        f"| {arena.recording.name} | {arena.recording.device} | {POINTS} | 1 | 3 (3 to 3) | "
        "0 (0 to 0) | – | – | – | optuna: tpe | 1 (1 to 1) | 0 (0 to 0) |"
    )
    assert overview([(arena.recording, found[2:])]).endswith("| – | – | – | – | – | – | – | – |")
    paths = write_plots(tmp_path, arena, runs, found)
    assert len(paths) == 3
    assert all(path.read_text().startswith("<svg") for path in paths)


def test_suggestions_of_others_become_the_nearest_rows_that_are_left(layer: Recording) -> None:
    places = layer.positions[5].tolist()
    assert nearest_row(layer, places, ()) == 5
    second = nearest_row(layer, places, {5})
    away = (layer.positions != layer.positions[5]).sum(axis=1)
    away[5] = 1000
    assert second is not None and away[second] == away.min()
    assert nearest_row(layer, places, range(POINTS)) is None


@pytest.mark.parametrize("name", ["hub_convolution_a100", "vgg16_7_quick_partial_pocl"])
def test_recordings_of_the_repository_can_be_replayed(name: str) -> None:
    arena = Arena.of(read_recording(RECORDINGS / f"{name}.json.gz"))
    listed = arena.candidates.listed
    assert listed is not None and arena.space is not None
    assert len(listed) == arena.recording.rows >= 300
    assert arena.recording.complete == name.startswith("hub")
    assert len(own_trace(arena, "random", 0, 5).rows) == 5


_LAYERS = sorted(path.relative_to(RECORDINGS).as_posix() for path in RECORDINGS.glob("*/*.gz"))


@pytest.mark.parametrize("name", _LAYERS)
def test_recorded_layers_have_the_variables_of_today(name: str) -> None:
    """What a change of a variant breaks here has to be recorded again."""
    recording = read_recording(RECORDINGS / name)
    _, variables = space_of_layer(recording)
    assert len(variables) == len(recording.variables)
    # And they can teach others.
    assert group_of_recording(recording).timed > 40


def test_a_space_whose_program_is_gone_is_what_was_kept_of_it() -> None:
    archived = read_recording(RECORDINGS / "h200" / "vgg16_24_tiled-slices_h200.json.gz")
    assert is_archived(archived)
    space, variables = space_of_layer(archived)
    assert [values for _, values in variables] == [values for _, values in archived.variables]
    # Names of maps and of parameters may be alike.
    assert len({variable for variable, _ in variables}) == len(variables)
    assert space.constraints and Arena.of(archived).known is not None
    with pytest.raises(InputError, match="its program cannot be made any more"):
        described_anew(archived)


@pytest.mark.parametrize("terms", [["tm", ["?", 1, 2]], [["+", "nothing", 1]], [None]])
def test_a_term_that_is_none_is_refused(terms: list[object]) -> None:
    archived = read_recording(RECORDINGS / "h200" / "vgg16_24_tiled-slices_h200.json.gz")
    wrong = replace(archived, document={**archived.document, "terms": terms})
    with pytest.raises(InputError, match="is no term"):
        space_of_layer(wrong)


def test_terms_are_read_as_they_were_written() -> None:
    tile, size = ParameterVariable("tile"), LocalSizeVariable("out", 1)
    term = Sum((Product((tile, size)), FloorDiv(tile, IntConst(2)), Modulo(size, tile),
                Maximum((tile, IntConst(3)))))  # fmt: skip
    names = {str(variable): variable for variable in (tile, size)}
    written = ["+", ["*", "tile", str(size)], ["//", "tile", 2], ["%", str(size), "tile"],
               ["max", "tile", 3]]  # fmt: skip
    assert term_from_json(written, names) == term
    kinds = (("tile", "parameter"), ("out.1", "local size"))
    assert [variable_of(name, kind) for name, kind in kinds] == [tile, size]
