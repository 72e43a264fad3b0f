"""The target of PyPI's PoCL is found out once for a processor, and the next narrower one is taken
where kernels come out wrong."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Never

import pytest
from typer.testing import CliRunner

from mapper.device_profile import device_name
from mapper.errors import DeviceError
from nestmap import demo
from nestmap.cli import app
from nestmap.cli.output import write_problems
from nestmap.device_limits import limits_of_device
from tests.unit.worker.test_opencl_devices import DEBIAN, NVIDIA, PYPI, device
from worker.devices import pocl_target, probed_target
from worker.devices.names import is_profile
from worker.devices.opencl import find_device, profile_of, select_device
from worker.devices.pocl_target import cache_folder, cpu_flags, selectable
from worker.devices.probed_target import remedies, resolve

pytestmark = pytest.mark.kernels

HASWELL = frozenset(
    [
        "sse2",
        "pni",
        "ssse3",
        "cx16",
        "sse4_1",
        "popcnt",
        "avx",
        "f16c",
        "avx2",
        "fma",
        "bmi1",
        "bmi2",
        "abm",
    ]
)
INTEL = device(4, "Intel(R) OpenCL", "OpenCL 3.1 LINUX", "AMD EPYC")
SERVER = HASWELL | {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"}


class Probes:
    """Stands for the probe's child: what it says of each target, and which were asked for."""

    def __init__(self, **said: dict[str, Any]) -> None:
        self.said = {name.replace("_", "-"): answer for name, answer in said.items()}
        self.asked: list[str] = []

    def __call__(self, target: str) -> dict[str, Any]:
        self.asked.append(target)
        return self.said[target]


def right(target: str, library: str, told: str = "generic", left: str = "") -> dict[str, Any]:
    return {"target": target, "library": library, "told": told, "left": left, "fault": ""}


def wrong(target: str, fault: str) -> dict[str, Any]:
    return {"target": target, "library": "avx512", "told": "generic", "left": "", "fault": fault}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A cache of its own for each test, and a process that has asked for nothing."""
    monkeypatch.setenv(pocl_target.CACHE_SETTING, str(tmp_path / "cache"))
    monkeypatch.delenv(probed_target.SETTING, raising=False)
    monkeypatch.setattr(probed_target, "cpu_flags", lambda: SERVER)
    probed_target._resolve.cache_clear()
    yield
    probed_target._resolve.cache_clear()


def asking(monkeypatch: pytest.MonkeyPatch, **said: dict[str, Any]) -> Probes:
    probes = Probes(**said)
    monkeypatch.setattr(probed_target, "_probed", probes)
    return probes


def test_what_the_probe_passed_is_remembered_for_later_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probes = asking(monkeypatch, native=right("skylake-avx512", "avx512"))
    first = resolve()
    assert (first.target, first.library, first.told) == ("skylake-avx512", "avx512", "generic")
    assert first.note == "set: PoCL takes generic by itself"
    probed_target._resolve.cache_clear()  # as another process
    assert resolve() == first
    assert probes.asked == ["native"]


def test_another_processor_driver_or_target_is_asked_for_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probes = asking(
        monkeypatch, native=right("skylake-avx512", "avx512"), haswell=right("haswell", "avx2")
    )
    resolve()
    assert resolve("haswell").target == "haswell"
    monkeypatch.setattr(probed_target, "processor_name", lambda: "another")
    probed_target._resolve.cache_clear()
    resolve()
    assert probes.asked == ["native", "haswell", "native"]


def test_the_next_narrower_target_is_tried_where_kernels_come_out_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probes = asking(
        monkeypatch,
        native=wrong("skylake-avx512", "fma(x, y, z) of float16: lanes 8 are wrong"),
        haswell={"fault": "the probe ended with signal 4"},
        x86_64=right("x86-64", "sse2"),
    )
    monkeypatch.setattr(
        probed_target, "selectable", lambda flags: ("skylake-avx512", "haswell", "x86-64")
    )
    choice = resolve()
    assert choice.target == "x86-64"
    assert "as skylake-avx512: fma(x, y, z) of float16: lanes 8 are wrong" in choice.note
    assert "as haswell: the probe ended with signal 4" in choice.note
    assert probes.asked == ["native", "haswell", "x86-64"]


def test_where_no_target_works_the_error_names_processor_driver_and_remedies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probes = asking(
        monkeypatch,
        native=wrong("skylake-avx512", "nothing builds"),
        haswell=wrong("haswell", "nothing builds either"),
        x86_64=wrong("x86-64", "nor this"),
    )
    with pytest.raises(DeviceError):
        resolve()
    with pytest.raises(DeviceError) as caught:
        resolve()
    (problem,) = caught.value.problems
    for word in ("family", "PoCL 3.0-rc2", "LLVM 14.0.6", "as haswell: nothing builds either"):
        assert word in problem.found
    for word in ("pocl-opencl-icd", "intel-opencl-rt", "intel-cmplr-lib-rt", "--device"):
        assert word in problem.remedy
    # A process asks once; the next one asks again, since something may have been installed.
    assert probes.asked == ["native", "haswell", "x86-64"]


def test_nobody_is_given_another_target_than_the_one_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probes = asking(monkeypatch, haswell=wrong("haswell", "lanes 3 are wrong"))
    with pytest.raises(DeviceError, match="as haswell: lanes 3 are wrong"):
        resolve("haswell")
    assert probes.asked == ["haswell"]


def test_a_target_that_cannot_be_executed_is_refused_with_those_that_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probed_target, "cpu_flags", lambda: HASWELL)
    for name in ("skylake-avx512", "pentium", "avx512 on my machine"):
        with pytest.raises(DeviceError, match=f"its target is wrong.*{name}") as caught:
            resolve(name)
        (problem,) = caught.value.problems
        assert problem.allowed.startswith("native, haswell, ")
    with pytest.raises(DeviceError, match="its target is missing behind @"):
        resolve(device_name("pocl@").target)


def test_a_target_is_the_same_in_capital_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    probes = asking(monkeypatch, haswell=right("haswell", "avx2"))
    assert resolve("Haswell") == resolve("haswell")
    monkeypatch.setenv(probed_target.SETTING, "HASWELL")
    assert resolve().target == "haswell"
    assert probes.asked == ["haswell"]


def test_what_the_environment_asks_for_in_vain_is_said_with_the_variables_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(probed_target.SETTING, "nonsense")
    for ask in (resolve, probed_target.check_setting):
        with pytest.raises(DeviceError, match=r"^NESTMAP_POCL_TARGET: .*'nonsense'.*haswell"):
            ask()
    asking(monkeypatch, haswell=right("haswell", "avx2"))
    assert resolve("haswell").target == "haswell"


def test_an_answer_that_is_kept_costs_later_commands_no_child_and_no_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Under 50 ms: what takes longer is a child, or loading the driver; a file is read.
    asking(monkeypatch, native=right("skylake-avx512", "avx512"))
    first = resolve()
    probed_target._resolve.cache_clear()  # as another process

    def refuse(*arguments: Any, **options: Any) -> Never:
        pytest.fail(f"more than a file was asked: {arguments}")

    reads: list[int] = []
    entries = probed_target._entries
    monkeypatch.setattr(probed_target, "_entries", lambda: reads.append(1) or entries())
    monkeypatch.setattr(probed_target, "_probed", refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(ctypes, "CDLL", refuse)
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    assert [resolve() for _ in range(3)] == [first] * 3
    assert reads == [1]


REMEDY = re.compile(r"(?:[A-Z_]+=\S+ )*(\S+/python\S*) -m (nestmap\S*) (.*)")


@pytest.mark.parametrize("others", [(), ("opencl:NVIDIA CUDA/NVIDIA H200",)])
def test_remedies_are_commands_that_this_installation_has(others: tuple[str, ...]) -> None:
    lines = [line for line in remedies(others).splitlines() if not line.startswith("# ")]
    taken: list[str] = []
    for line in lines:
        # What a shell would take otherwise than as it stands here: nothing but a redirection.
        assert not set(line) & set("`$;&|(<*?!") or "'" in line, line
        words = shlex.split(line)
        if (found := REMEDY.fullmatch(line)) is None:
            assert line.split("apt-get")[0] in ("", "sudo ") or words[0] in (
                sys.executable, "mkdir", "echo"), line  # fmt: skip
            continue
        assert words[words.index("-m") - 1] == sys.executable
        options = shlex.split(found[3])
        spec = device_name(options[options.index("--device") + 1])
        taken.append(spec.plain)
        if found[2] == "nestmap.demo":
            assert demo.options().parse_args(options).device == spec.plain
        else:
            assert CliRunner().invoke(app, options).exit_code == 0
    there = (NVIDIA, PYPI, DEBIAN, INTEL)
    chosen = [select_device(spec, there) for spec in taken if not is_profile(spec)]
    assert chosen == [DEBIAN, INTEL, *([NVIDIA] if others else [])]
    assert others or limits_of_device(taken[-1]).name == "mali-g72"


def test_remedies_name_the_device_since_host_stays_what_it_is() -> None:
    # A second driver beside PyPI's PoCL never changes what `host` means.
    for present in ((PYPI, DEBIAN), (INTEL, PYPI), (DEBIAN, INTEL, PYPI)):
        assert select_device("host", present) is PYPI
    demos = [line for line in remedies().splitlines() if "nestmap.demo" in line]
    assert len(demos) == 2 and all("--device opencl:" in line for line in demos)


def test_commands_of_a_remedy_are_printed_whole_a_line_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asking(monkeypatch, haswell=wrong("haswell", "lanes 3 are wrong " * 100))
    with pytest.raises(DeviceError) as caught:
        resolve("haswell")
    write_problems("device", caught.value.problems, as_json=False)
    first, *commands = capsys.readouterr().err.splitlines()
    assert first.startswith("error: device: PyPI's PoCL compiles no right kernel")
    assert commands == remedies().splitlines()


def test_the_environment_chooses_where_the_spec_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    probes = asking(monkeypatch, penryn=right("penryn", "sse41"), haswell=right("haswell", "avx2"))
    monkeypatch.setenv(probed_target.SETTING, "penryn")
    assert resolve().target == "penryn"
    assert resolve("haswell").target == "haswell"
    assert probes.asked == ["penryn", "haswell"]


def test_a_record_that_does_not_fit_is_left_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    asking(monkeypatch, native=right("cascadelake", "avx512", "cascadelake", "it has 2 pointers"))
    choice = resolve()
    assert choice.target == "cascadelake"
    assert choice.note == "as PoCL found it, because it has 2 pointers"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": "other"}', '{"schema": "nestmap/pocl-targets/1"}']
)
def test_a_damaged_cache_is_written_anew(
    text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/pocl-targets.json").write_text(text)
    asking(monkeypatch, native=right("skylake-avx512", "avx512"))
    resolve()
    kept = json.loads((tmp_path / "cache/pocl-targets.json").read_text())
    assert [entry["target"] for entry in kept["entries"].values()] == ["skylake-avx512"]


def test_a_cache_that_cannot_be_written_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(pocl_target.CACHE_SETTING, str(tmp_path / "file/below"))
    asking(monkeypatch, native=right("skylake-avx512", "avx512"))
    assert resolve().target == "skylake-avx512"


def test_the_cache_is_the_users_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder().name == "cache"
    monkeypatch.delenv(pocl_target.CACHE_SETTING)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/nestmap")


OPEN = """
import json, sys
from worker.devices.opencl import open_device, find_device, profile_of
opened = open_device(sys.argv[1])
profile = profile_of(opened)
print(json.dumps([opened.target, opened.spec, profile.vector_widths, profile.target]))
"""


def opened(spec: str, **environment: str) -> list[Any]:
    """What a process that opens a device says of it."""

    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", OPEN, spec],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        env={**os.environ, **environment},
        check=False,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def test_a_device_is_opened_for_the_target_behind_its_name() -> None:
    narrow = selectable(cpu_flags())[-1]
    target, spec, widths, stated = opened(f"pocl@{narrow}+half")
    assert (target, stated, widths) == (narrow, narrow, [1, 2, 4])
    assert spec.endswith(f"@{narrow}+half")
    assert opened("pocl", NESTMAP_POCL_TARGET=narrow)[0] == narrow


def test_a_second_target_in_one_process_is_refused() -> None:
    code = (
        "from worker.devices.opencl import open_device\n"
        "from mapper.errors import DeviceError\n"
        "open_device('pocl')\n"
        "try:\n    open_device('pocl@x86-64')\n"
        "except DeviceError as error:\n    print(error)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True, text=True, cwd=Path(__file__).parents[3], check=False, timeout=120,
    )  # fmt: skip
    assert "one target in a process" in ended.stdout, ended.stderr


def test_the_profile_is_as_wide_as_what_is_compiled_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probed_target, "cpu_flags", cpu_flags)
    widest = max(profile_of(find_device("pocl")).vector_widths)
    assert widest == {"avx512": 16, "avx2": 8}.get(resolve().library, widest)
