"""The command line with ``--url`` against ``nestmap serve`` writes what it writes without."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from nestmap import Client
from nestmap.cli import app
from nestmap.cli.exit_codes import ExitCode
from tests.integration.test_serve import LAYER, service

TREE = Path(__file__).parents[2] / "examples" / "cc22_convolution_tree.json"
SPACE = {
    "schema": "nestmap/space/1",
    "name": "small",
    "source": "a test",
    "parameters": {"number": [1, 2, 4], "layout": ["row", "column"]},
    "constraints": [],
}
SCHEDULE = {
    "schema": "nestmap/schedule/1",
    "name": "tiles",
    "steps": [
        {"primitive": "split", "map_id": "filter", "size": "bm"},
        {"primitive": "move_inside", "map_id": "row"},
    ],
}
FILES = {
    "small.json": LAYER,
    "wider.json": {**LAYER, "name": "wider", "filters": 2 * LAYER["filters"]},
    "space.json": SPACE,
    "bad.json": {"row": 30, "column": 30, "filter": 30},
    "loops.json": {"row": 0, "column": 0, "filter": 0},
    "part.json": {"row": 20, "column": 10, "filter": 0},
    "odd.json": {"row": 99},
    "good.schedule": {**SCHEDULE, "steps": SCHEDULE["steps"][:1]},
    "bad.schedule": SCHEDULE,
}
PRODUCT = str(Path(__file__).parents[2] / "examples" / "product.txt")
HIGH = ("small.json", "--variant", "high-level")
FEW = ("--pin", "convolution.0=1,2", "--pin", "convolution.1=1", "--pin", "convolution.2=1")
NOTHING = ("--pin", "row=0", "--pin", "column=0", "--pin", "filter=0")


@dataclass(frozen=True)
class Served:
    """A running service with a device that invents times, and a folder with files to ask about."""

    folder: Path
    url: str
    token_file: str
    device: str

    def local(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments))

    def remote(self, *arguments: str) -> Result:
        more = ["--url", self.url, "--token-file", self.token_file]
        return CliRunner().invoke(app, [*arguments, *more])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    for name, value in FILES.items():
        (folder / name).write_text(json.dumps(value))
    with service(folder, "--worker-device", "null") as started:
        token_file = started.event("token")["file"]
        device = started.event("worker")["device"]
        url = started.event("listening")["url"]
        started.event("ready")
        yield Served(folder, url, token_file, device)


@pytest.fixture(autouse=True)
def among_files(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(served.folder)
    for name in ("NESTMAP_URL", "NESTMAP_TOKEN", "NESTMAP_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("solve", *HIGH), 0),
        (("solve", *HIGH, "--limit", "3", "--json"), 0),
        (("solve", *HIGH, "--prefer", "row=W0:2", "--limit", "2"), 0),
        (("solve", *HIGH, "--sample", "4", "--seed", "3", "--json"), 0),
        (("solve", *HIGH, "--sample", "3", "--stratify"), 0),
        (("solve", *HIGH, "--count"), 0),
        (("solve", *HIGH, "--count", "--stratify", "--up-to-symmetry", "--json"), 0),
        (("solve", *HIGH, "--count", "--joint", "--device", "mali-g72+half"), 0),
        (("solve", *HIGH, "--best", "2", *FEW), 0),
        (("solve", *HIGH, "--best", "1", *FEW, "--json"), 0),
        (("solve", "space.json", "--best", "2"), 2),
        (("solve", *HIGH, "--count", "--where", "code(row) in [W0, W1]", "--free-grid"), 0),
        (("solve", *HIGH, "--where", "code(row) == W0", "--where", "code(row) == S"), 5),
        (("solve", *HIGH, "--count", "--suits", "all", "--no-sequential-fusion", "--json"), 0),
        (("solve", "space.json", "--where", "number > 1", "--json"), 0),
        (("check", "small.json", "loops.json", "--variant", "high-level"), 0),
        (("kernel", "small.json", "loops.json", "--variant", "high-level"), 0),
        (("solve", *HIGH, *NOTHING), 5),
        (("solve", *HIGH, *NOTHING, "--json"), 5),
        (("solve", *HIGH, "--pin", "row=nothing"), 2),
        (("solve", str(TREE), "--mode", "paper", "--limit", "3"), 0),
        (("solve", str(TREE), "--mode", "paper", "--count", "--json"), 0),
        (("solve", "space.json", "--json"), 0),
        (("solve", "space.json", "--count"), 0),
        (("check", "small.json", "part.json", "--variant", "high-level"), 0),
        (("check", "small.json", "bad.json", "--variant", "high-level"), 1),
        (("check", "small.json", "bad.json", "--variant", "high-level", "--json"), 1),
        (("check", "small.json", "bad.json", "--variant", "high-level", *NOTHING), 1),
        (("check", "small.json", "odd.json", "--variant", "high-level"), 2),
        (("constraints", *HIGH), 0),
        (("constraints", *HIGH, "--mode", "paper", "--json"), 0),
        (("derive", "small.json", "good.schedule"), 0),
        (("derive", "small.json", "good.schedule", "--last", "--json"), 0),
        (("derive", "small.json", "bad.schedule", "--json"), 2),
        (("sketches", "small.json", "--device", "h200"), 0),
        (("kernel", *HIGH), 0),
        (("kernel", *HIGH, "--prefer", "row=W0,W1", "--json"), 0),
        (("kernel", *HIGH, "--mode", "paper", "--explain"), 0),
        (("kernel", "small.json", "part.json", "--variant", "high-level", "--plan"), 0),
        (("kernel", "small.json", "bad.json", "--variant", "high-level", "--json"), 1),
        (("kernel", *HIGH, *NOTHING), 5),
        (("solve", PRODUCT, "--variant", "as-is", "--count", "--json"), 0),
        (("solve", PRODUCT, "--variant", "tile-column", "--suits", "all", "--count"), 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_a_command_writes_the_same_with_a_service(
    served: Served, arguments: tuple[str, ...], code: int
):
    here, there = served.local(*arguments), served.remote(*arguments)
    assert there.stdout == here.stdout
    assert there.stderr == here.stderr
    assert there.exit_code == here.exit_code == code


def test_a_program_is_tuned_there_under_its_sketches(served: Served):
    asked = ("tune", PRODUCT, "--candidates", "6", "--json", "--device", served.device)
    tuned = served.remote(*asked)
    assert tuned.exit_code == 0, tuned.stderr
    found = json.loads(tuned.stdout)
    assert found["tried"] == 6
    best = found["front"][0]
    Path("entry.json").write_text(json.dumps(best))
    assert best["variant"] and best["schedule"]["steps"]
    built = served.local("kernel", PRODUCT, "entry.json", "--device", "null")
    assert built.exit_code == 0, built.stderr
    wrong = served.remote(*asked, "--variant", "tile-nothing")
    assert wrong.exit_code == 2
    assert "tile-nothing" in wrong.stderr and "as-is" in wrong.stderr
    one = served.remote(*asked, "--variant", "as-is")
    assert one.exit_code == 0, one.stderr
    assert {point["variant"] for point in json.loads(one.stdout)["front"]} == {""}


def test_what_is_asked_for_holds_for_all_that_is_tried_there(served: Served):
    asked = ("tune", *HIGH, "--where", "code(row) == S", "--candidates", "2", "--json")
    tuned = served.remote(*asked, "--device", served.device)
    assert tuned.exit_code == 0, tuned.stderr
    assert {point["mapping"]["row"] for point in json.loads(tuned.stdout)["front"]} == {0}
    wrong = served.remote("tune", *HIGH, "--where", "code(r) == S", "--device", served.device)
    assert wrong.exit_code == 2 and "--where" in wrong.stderr


def test_a_run_is_made_on_a_device_and_its_front_is_that_of_the_store(served: Served):
    asked = ("tune", *HIGH, "--candidates", "6", "--strategy", "random", "--json", "--out", "best")
    tuned = served.remote(*asked, "--device", served.device)
    assert tuned.exit_code == 0, tuned.stderr
    found = json.loads(tuned.stdout)
    assert (found["ended_by"], found["tried"]) == ("candidates", 6)
    assert sorted(path.name for path in Path("best").iterdir()) == ["small.cl", "small.plan.json"]
    with Client(served.url, token_file=served.token_file) as client:
        points = client.front(run=found["run"])["points"]
        source = client.candidate(points[0]["candidate"])["source_hash"]
    assert [(p["time_ms"], p["candidate"]) for p in found["front"]] == [
        (p["time_ms"], p["candidate"]) for p in points
    ]
    assert found["front"][0]["mapping"] and len(source) == 64
    store = str(served.folder / "store.sqlite3")
    for more in ((), ("--json",), ("--study", "1"), ("--study", "99"), ("small",), ("nothing",),
                 ("--device", "null"), ("--device", "elsewhere")):  # fmt: skip
        here, there = served.local("front", *more, "--db", store), served.remote("front", *more)
        assert (there.stdout, there.stderr) == (here.stdout, here.stderr)
        assert there.exit_code == here.exit_code
    listed = json.loads(served.remote("devices", "--json").stdout)
    assert [device["id"] for device in listed["devices"]] == [served.device]
    assert "pocl" in [profile["name"] for profile in listed["profiles"]]
    assert "target" in served.remote("devices").stdout


def test_a_run_with_transfer_learns_from_what_the_service_has_of_another_layer(served: Served):
    common = ("--variant", "high-level", "--device", served.device, "--json")
    # So many of one layer are what there is to learn from at least.
    eight = ("--candidates", "8", "--strategy", "random", "--seed", "11")
    assert served.remote("tune", "small.json", *eight, *common).exit_code == 0
    tuned = served.remote("tune", "wider.json", "--transfer", "--candidates", "2", *common)
    assert tuned.exit_code == 0, tuned.stderr
    found = json.loads(tuned.stdout)
    assert (found["ended_by"], found["tried"]) == ("candidates", 2)
    with Client(served.url, token_file=served.token_file) as client:
        assert client.run(found["run"])["request"]["transfer"] is True


@pytest.mark.parametrize(
    ("detach", "states", "codes"),
    # Whatever was measured by then is the result: perhaps nothing.
    [(True, ("queued", "running"), (130,)), (False, ("cancelling", "cancelled"), (0, 1))],
)
def test_ctrl_c_cancels_a_run_unless_it_is_detached(
    served: Served, detach: bool, states: tuple[str, ...], codes: tuple[int, ...]
):
    process = subprocess.Popen(
        [sys.executable, "-m", "nestmap", "tune", *HIGH, "--seed", str(int(detach)), "--seconds",
         "500", "--strategy", "random", "--url", served.url, *(["--detach"] if detach else [])],
        env={**os.environ, "NESTMAP_TOKEN_FILE": served.token_file, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        run = process.stderr.readline().split()[2]
        with Client(served.url, token_file=served.token_file) as client:
            assert client.run(run)["state"] in ("queued", "running")
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
            assert process.returncode in codes, errors
            assert client.run(run)["state"] in states
            assert "Traceback" not in errors and run in errors
            client.cancel_run(run)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("solve", *HIGH, "--memory-limit", "5"), "--memory-limit"),
        (("kernel", *HIGH, "--best"), "--best"),
        (("front", "--db", "x.sqlite3"), "--db"),
        (("tune", *HIGH, "--db", "x.sqlite3"), "--db"),
        (("tune", *HIGH, "--finalists", "0"), "--finalists"),
        (("tune", *HIGH, "--no-baselines"), "--baselines"),
    ],
)
def test_an_option_without_a_meaning_for_a_service_is_named(
    served: Served, arguments: tuple[str, ...], option: str
):
    result = served.remote(*arguments)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert f"error: {option}: has no meaning for a service" in result.stderr


def test_what_keeps_a_service_from_answering_has_an_exit_code_of_its_own(served: Served):
    # The token's file is not shown, nor what it holds.
    wrong = served.folder / "wrong"
    wrong.write_text("nm_unknown.secret")
    result = served.local("constraints", *HIGH, "--url", served.url, "--token-file", str(wrong))
    assert result.exit_code == ExitCode.SERVICE
    assert "secret" not in result.output + result.stderr
    result = served.local("tune", *HIGH, "--url", served.url, "--token-file", served.token_file,
                          "--device", "elsewhere")  # fmt: skip
    assert result.exit_code == ExitCode.DEVICE and served.device in result.stderr
    result = served.local("solve", *HIGH, "--token-file", str(wrong))
    assert result.exit_code == ExitCode.BAD_INPUT and "--url" in result.stderr
    result = served.local("tune", *HIGH, "--detach")
    assert result.exit_code == ExitCode.BAD_INPUT and "--detach" in result.stderr
    result = served.local("solve", *HIGH, "--url", "ftp://host")
    assert result.exit_code == ExitCode.BAD_INPUT
