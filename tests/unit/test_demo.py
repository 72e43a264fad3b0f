"""What the demo says of the machine first, and of its best kernel last."""

from __future__ import annotations

from pathlib import Path

import pytest

from mapper.layer_spec import LayerSpec
from nestmap import demo
from nestmap.cli.exit_codes import ExitCode
from nestmap.demo import _compared, _machine, run_demo
from nestmap.tuning.baselines import Contestant
from worker.devices.pocl_target import library_of_target

BEST = Contestant("tuned", 2.0, 100.0, 0, 1.0)
SMALL = LayerSpec(8, 7, 7, 8, pad_top=1, pad_left=1, pad_bottom=1, pad_right=1, name="small")


def test_the_machine_is_processor_cores_driver_and_target() -> None:
    facts = {
        "cpu.model": "AMD EPYC",
        "cpu.cores_allowed": "2",
        "platform.name": "Portable Computing Language",
        "driver.version": "3.0-rc2",
        "device.name": "pthread",
        "device.target": "skylake-avx512",
    }
    assert _machine(facts) == (
        "AMD EPYC; 2 cores; Portable Computing Language, driver 3.0-rc2; "
        "kernels compiled for skylake-avx512"
    )


def test_a_machine_that_tells_little_is_not_made_up() -> None:
    assert _machine({"device.name": "Mali-G72", "device.target": ""}) == (
        "Mali-G72; ? cores; ?, driver ?"
    )
    assert _machine({}).startswith("unknown processor; ")


@pytest.mark.parametrize(
    ("ratio", "time_ms", "said"),
    [
        (2.5, 5.0, "the best kernel is 2.50 times as fast as im2col + GEMM, 2.00 ms to its 5.00"),
        (1.0, 2.0, "the best kernel is 1.00 times as fast as im2col + GEMM, 2.00 ms to its 2.00"),
        (0.8, 1.6, "the best kernel is 1.25 times SLOWER than im2col + GEMM, 2.00 ms to its 1.60"),
    ],
)
def test_the_best_kernel_is_compared_in_words(ratio: float, time_ms: float, said: str) -> None:
    assert _compared(BEST, Contestant("im2col + GEMM", time_ms, 40.0, 0, ratio)) == said


def test_what_could_not_be_compared_says_why() -> None:
    failed = Contestant("im2col + GEMM", None, None, 0, None, "no BLAS")
    assert _compared(BEST, failed) == "im2col + GEMM could not be compared: no BLAS"


@pytest.mark.kernels
def test_the_first_line_is_the_machine_and_the_last_lines_compare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "named_layer", lambda name: SMALL)
    assert run_demo(8.0, 0, tmp_path / "out", "pocl") is ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    target = lines[0].rpartition("; kernels compiled for ")[2]
    assert library_of_target(target) and "Portable Computing Language, driver " in lines[0]
    started = lines.index(f"On this machine ({lines[0]}):")
    compared = lines[started + 1 :]
    assert all(line.startswith("the best kernel is ") for line in compared)
    for name in ("sequential loops", "im2col + GEMM", "GEMM alone"):
        assert any(f" {name}, " in line for line in compared), compared
    assert (tmp_path / "out/demo.sqlite3").exists() and list((tmp_path / "out").glob("*.cl"))
