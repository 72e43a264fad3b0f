"""What the commands answer, as JSON and as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from db.records import CandidateRecord
from db.store import Store
from mapper.measurement import Timed
from nestmap.cli import app
from nestmap.cli.devices import _of_service
from worker.devices.pocl_target import library_of_target

TREE = str(Path(__file__).parents[3] / "examples" / "cc22_convolution_tree.json")
SMALL = ["vgg16/7", "--variant", "high-level"]


def run(*args: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, list(args), input=stdin)


def json_lines(*args: str) -> list[Any]:
    result = run(*args, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_paper_count_is_the_published_one():
    (found,) = json_lines("solve", TREE, "--count", "--mode", "paper")
    assert found["count"] == 41_094
    assert found["complete"] is True
    assert found["mode"] == "paper"
    assert list(found["table4"].values()) == [32, 13, 34, 1, 34, 9]
    assert sum(found["table4"].values()) == 123
    assert found["constraints"] == {
        "private-memory-scoping": 32,
        "shared-memory-scoping": 13,
        "duplicate-scheduling": 34,
        "thread-dimensionality": 1,
        "local-hierarchy": 34,
        "exhaustive-indexing": 9,
    }
    assert found["preferences"] == {"sequential-fusion": 25}


LISTING_3 = {
    "tree": {
        "id": "A", "trip": 4, "reads": ["global"], "writes": "global",
        "perfectly_nested": False,
        "nested": [
            {
                "id": "C", "trip": 4, "reads": ["global"], "writes": "global",
                "perfectly_nested": False,
                "nested": [
                    {
                        "id": "D", "trip": 4, "reads": ["global"], "writes": "global",
                        "perfectly_nested": True, "nested": [],
                    }
                ],
            },
            {
                "id": "B", "trip": 4, "reads": ["global"], "writes": "global",
                "perfectly_nested": False, "nested": [],
            },
        ],
    }
}  # fmt: skip


@pytest.mark.parametrize("mode", ["paper", "strict"])
def test_json_lines_are_all_mappings_of_a_tree_each_once(tmp_path: Path, mode: str):
    path = tmp_path / "tree.json"
    path.write_text(json.dumps(LISTING_3))
    found = json_lines("solve", str(path), "--mode", mode)
    (counted,) = json_lines("solve", str(path), "--mode", mode, "--count")
    assert len(found) == counted["count"] == len({str(line["mapping"]) for line in found})
    if mode == "paper":
        assert counted["count"] == 40


def test_a_count_out_of_time_is_a_lower_bound():
    layer = ("vgg16/7", "--variant", "direct", "--device", "mali-g72")
    result = run("solve", *layer, "--count", "--time-limit", "0.5", "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 5
    assert found["complete"] is False
    assert "count" not in found
    assert 0 <= found["at_least"] < 1_027_200


def test_solve_gives_ten_and_says_that_there_are_more():
    result = run("solve", TREE)
    assert result.exit_code == 0
    assert "mapping 10" in result.stdout
    assert "mapping 11" not in result.stdout
    assert "there are more" in result.stderr


def test_every_variant_of_a_layer_is_solved_at_once():
    for variant in ("direct", "partial", "high-level"):
        found = json_lines("solve", "vgg16/24", "--variant", variant, "--limit", "2")
        assert len(found) == 2


def test_pins_hold():
    found = json_lines("solve", TREE, "--mode", "paper", "--limit", "3", "--pin", "28=W0",
                       "--pin", "51=10")  # fmt: skip
    assert {(m["mapping"]["28"], m["mapping"]["51"]) for m in found} == {(20, 10)}


def test_everything_that_solve_says_passes_check(tmp_path: Path):
    for mapping in json_lines("solve", *SMALL, "--sample", "3", "--seed", "5"):
        path = tmp_path / "mapping.json"
        path.write_text(json.dumps(mapping))
        assert json_lines("check", SMALL[0], str(path), *SMALL[1:])[0]["valid"] is True


def test_one_seed_gives_one_sample():
    args = ("solve", *SMALL, "--sample", "3", "--seed", "7")
    assert json_lines(*args) == json_lines(*args)


def test_an_impossible_pin_is_unsatisfiable():
    result = run("solve", *SMALL, "--pin", "row=S", "--pin", "column=S", "--pin", "filter=S",
                 "--pin", "convolution.0=3")  # fmt: skip
    assert result.exit_code == 5
    assert "no mapping satisfies" in result.stderr


def test_the_drawing_shows_schedules_and_trips():
    result = run("solve", *SMALL, "--limit", "1")
    assert "row" in result.stdout
    assert "112" in result.stdout


def test_check_names_rules_and_assumes_local_sizes(tmp_path: Path):
    (mapping,) = json_lines("solve", TREE, "--limit", "1")
    path = tmp_path / "mapping.json"
    path.write_text(json.dumps(mapping["mapping"]))
    (verdict,) = json_lines("check", TREE, str(path))
    assert verdict["valid"] is True
    assert list(verdict["assumed"]["local_sizes"].values()) == [[1, 1, 1]]

    mapping["mapping"]["283"] = "L0"
    path.write_text(json.dumps(mapping))
    result = run("check", TREE, str(path), "--json")
    verdict = json.loads(result.stdout)
    assert result.exit_code == 1
    assert verdict["valid"] is False
    broken = {violation["rule"] for violation in verdict["violations"]}
    assert "private-memory-scoping" in broken
    assert set(verdict["violations"][0]) == {
        "rule", "maps", "buffer", "sentence", "remedy", "constraint"
    }  # fmt: skip


def test_check_completes_parameters_that_are_not_given():
    args = ("vgg16/24", "--variant", "partial")
    (mapping,) = json_lines("solve", *args, "--sample", "1")
    result = run("check", *args, "-", "--json", stdin=json.dumps({"mapping": mapping["mapping"]}))
    verdict = json.loads(result.stdout)
    assert verdict["valid"] is True
    assert "theta" in verdict["assumed"]["parameters"]


def test_constraints_have_ids_texts_and_sources():
    found = json_lines("constraints", TREE, "--mode", "paper")
    assert len({constraint["id"] for constraint in found}) == len(found)
    assert set(found[0]) == {
        "id", "rule", "subjects", "buffer", "predicate", "provenance", "sentence", "remedy"
    }  # fmt: skip
    assert "CC'22" in found[0]["provenance"]


def test_kernel_source_plan_and_file(tmp_path: Path):
    (plan,) = json_lines("kernel", *SMALL, "--seed", "2")
    assert plan["memory_bytes"] == sum(buffer["bytes"] for buffer in plan["buffers"])
    out = tmp_path / "kernel.cl"
    result = run("kernel", *SMALL, "--seed", "2", "--out", str(out))
    assert result.exit_code == 0
    assert out.read_text() == plan["source"]
    assert run("kernel", *SMALL, "--seed", "2").stdout.rstrip() == plan["source"].rstrip()
    assert "13434880 bytes" in run("kernel", *SMALL, "--seed", "2", "--plan").stdout


def test_an_invalid_mapping_has_no_kernel(tmp_path: Path):
    path = tmp_path / "mapping.json"
    path.write_text(json.dumps({"row": "W0", "column": "W0", "filter": "S"}))
    result = run("kernel", SMALL[0], str(path), *SMALL[1:])
    assert result.exit_code == 1
    assert "duplicate-scheduling" in result.stderr
    assert result.stdout == ""


def test_devices_shows_one_profile_or_says_what_there_is():
    (found,) = json_lines("devices", "--device", "mali-g72", "--mode", "paper", "--seed", "1")
    assert [profile["name"] for profile in found["profiles"]] == ["mali-g72"]
    assert found["devices"] == []
    assert run("devices", "--device", "nothing-like-it").exit_code == 3


@pytest.mark.kernels
def test_devices_lists_profiles_and_devices_with_their_targets():
    (found,) = json_lines("devices")
    assert {"pocl", "mali-g72", "h200"} <= {profile["name"] for profile in found["profiles"]}
    (pocl,) = [d for d in found["devices"] if "3.0-rc2" in d["platform_version"]]
    assert library_of_target(pocl["target"])
    assert pocl["target_note"].startswith(("set: PoCL takes", "as PoCL found it"))
    shown = run("devices").stdout
    assert f"target of {pocl['index']}: {pocl['target']}, {pocl['target_note']}" in shown


class OneDevice:
    """A service with one device."""

    def profiles(self) -> list[dict[str, Any]]:
        return []

    def devices(self) -> list[dict[str, Any]]:
        named = {"id": "dev_1", "name": "board", "profile": None, "state": "active", "reason": ""}
        return [{**named, "last_seen": None, "facts": {"device.target": "skylake-avx512"}}]


def test_devices_of_a_service_are_shown_with_their_targets(capsys: pytest.CaptureFixture[str]):
    _of_service(OneDevice(), None, False)  # pyright: ignore[reportArgumentType]
    text = capsys.readouterr().out
    assert "target" in text[: text.index("dev_1")] and "skylake-avx512" in text


@pytest.mark.kernels
def test_a_target_that_the_environment_asks_for_in_vain_ends_devices(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("NESTMAP_POCL_TARGET", "nonsense")
    result = run("devices")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "NESTMAP_POCL_TARGET: its target is wrong" in result.stderr
    # What needs no driver is not stopped by it.
    assert run("devices", "--device", "mali-g72").exit_code == 0
    # A target by name goes before the variable.
    monkeypatch.setenv("NESTMAP_POCL_TARGET", "X86-64")
    (found,) = json_lines("devices", "--device", "opencl:3.0-rc2")
    assert found["devices"][0]["target"] == "x86-64"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "store.sqlite3"
    with Store.open(path) as store:
        device = store.add_device("a", {})
        for number, variant in enumerate(("direct", "partial")):
            program = store.add_program("s", json.dumps({"n": number}))
            study = store.open_study(
                program, device, mode="strict", seed=0, label="vgg16/7", variant=variant
            )
            for time_ms, memory in ((4, 100), (2, 300 - 150 * number), (3, 250)):
                candidate = CandidateRecord(
                    program, {"t": time_ms}, {}, {}, "source", memory, "0.1.0"
                )
                store.add_measurement(study, candidate, Timed((time_ms * 10**6,), 0.0, 1.0), memory)
    return path


def test_the_variants_of_a_layer_share_a_front(database: Path):
    (found,) = json_lines("front", "vgg16/7", "--db", str(database))
    points = [(point["time_ms"], point["memory_bytes"]) for point in found["points"]]
    assert points == [(2.0, 150), (4.0, 100), (4.0, 100)]
    assert all(len(point["candidate"]) == 64 for point in found["points"])


def test_a_front_of_a_device_a_mode_and_a_seed(database: Path):
    def front(*options: str) -> int:
        return run("front", "--db", str(database), *options).exit_code

    assert front("--device", "A", "--mode", "strict") == 0
    assert front("--device", "another") == 2
    assert front("--mode", "paper") == 2
    assert front("--seed", "12345") == 2


def test_a_study_has_its_own_front(database: Path):
    (found,) = json_lines("front", "--db", str(database), "--study", "1")
    assert [p["memory_bytes"] for p in found["points"]] == [300, 250, 100]
    text = run("front", "--db", str(database), "--study", "1").stdout
    assert "*" in text
    assert run("front", "vgg16/9", "--db", str(database)).exit_code == 2
    assert run("front", "--db", str(database), "--study", "99").exit_code == 2


def test_counts_by_dimensions_sum_to_the_whole_and_symmetry_leaves_fewer():
    (whole,) = json_lines("solve", TREE, "--count", "--mode", "paper", "--stratify")
    assert sum(whole["by_dimensions"].values()) == whole["count"] == 41_094
    (left,) = json_lines("solve", TREE, "--count", "--mode", "paper", "--up-to-symmetry")
    assert left["count"] == 6_921


def test_the_joint_count_is_that_of_all_assignments_listed():
    layer = ("vgg16/7", "--variant", "high-level", "--device", "mali-g72", "--pin", "row=W0",
             "--pin", "column=L0,L1")  # fmt: skip
    (counted,) = json_lines("solve", *layer, "--count", "--joint")
    listed = json_lines("solve", *layer, "--limit", "0")
    assert counted["of"] == "assignments"
    assert counted["count"] == len({json.dumps(line) for line in listed}) > 20


def test_a_stratified_sample_has_as_many_of_each_stratum():
    found = json_lines("solve", TREE, "--mode", "paper", "--sample", "21", "--stratify")
    used = [
        frozenset(code % 10 for code in line["mapping"].values() if code >= 10) for line in found
    ]
    assert {used.count(dimensions) for dimensions in used} == {3}
    assert len(set(used)) == 7


@pytest.mark.parametrize(
    "options",
    [("--joint",), ("--stratify", "--limit", "3"),
     ("--count", "--up-to-symmetry", "--space")],
)  # fmt: skip
def test_options_that_ask_for_what_is_not_there_are_refused(options: tuple[str, ...]):
    subject = TREE
    if "--space" in options:
        options, subject = options[:-1], str(Path("bench/spaces/gemm.json"))
    result = run("solve", subject, *options)
    assert result.exit_code == 2 and "error:" in result.stderr
