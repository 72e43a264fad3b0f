"""Choosing an OpenCL device by its spec string, and what the driver tells of it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from mapper.errors import DeviceError
from mapper.profiles import load_profile
from worker.devices.facts import device_facts, machine_state
from worker.devices.opencl import (
    CPU_PRIVATE_BYTES,
    POCL_WORK_GROUP,
    OpenClDevice,
    find_device,
    list_devices,
    profile_of,
    select_device,
)


def device(index: int, platform: str, version: str, name: str, kind: str = "cpu") -> OpenClDevice:
    return OpenClDevice(index, platform, version, name, "OpenCL 3.0", "1", kind, None)


PYPI = device(1, "Portable Computing Language", "OpenCL 3.0 PoCL 3.0-rc2 Linux, RELOC", "pthread")
OLDER = device(2, "Portable Computing Language", "OpenCL 2.0 PoCL 1.8 Linux", "pthread")
DEBIAN = device(0, "Portable Computing Language", "OpenCL 3.0 PoCL 3.1+debian Linux", "pthread")
NVIDIA = device(3, "NVIDIA CUDA", "OpenCL 3.0 CUDA 12.4", "NVIDIA H200", "gpu")
AMD = device(4, "AMD Accelerated Parallel Processing", "OpenCL 2.1 AMD-APP", "gfx90a", "gpu")
MALI = device(5, "ARM Platform", "OpenCL 2.0 v1.r18p0", "Mali-G72", "gpu")
POCLS = (DEBIAN, PYPI, OLDER)


def test_host_prefers_the_newest_pocl_that_no_distribution_built() -> None:
    assert select_device("host", POCLS) is PYPI
    assert select_device("pocl", POCLS) is PYPI
    assert select_device("host", (DEBIAN, OLDER)) is OLDER


def test_host_is_the_first_device_when_there_is_more_than_pocl() -> None:
    assert select_device("host", (NVIDIA, DEBIAN)) is NVIDIA
    assert select_device("pocl", (NVIDIA, DEBIAN)) is DEBIAN


@pytest.mark.parametrize(
    ("spec", "chosen"),
    [
        ("opencl:nvidia/h200", NVIDIA),
        ("opencl:nvidia", NVIDIA),
        ("opencl:/h200", NVIDIA),
        ("opencl:3.1+debian/", DEBIAN),
        ("opencl:2", OLDER),
        ("3", NVIDIA),
        ("nvidia", NVIDIA),
        ("h200", NVIDIA),
        ("nvidia h200", NVIDIA),
    ],
)
def test_specs_by_part_of_name_and_by_index(spec: str, chosen: OpenClDevice) -> None:
    assert select_device(spec, (*POCLS, NVIDIA)) is chosen


@pytest.mark.parametrize("spec", ["", "nv", "h100", "opencl:", "opencl:amd/", "9", "opencl:/h100"])
def test_spec_that_fits_nothing_lists_what_is_there(spec: str) -> None:
    with pytest.raises(DeviceError) as caught:
        select_device(spec, (*POCLS, NVIDIA))
    (problem,) = caught.value.problems
    assert "NVIDIA H200" in problem.found
    assert "opencl:<platform>/<device>" in problem.allowed


def test_own_spec_finds_the_device_again() -> None:
    for found in list_devices():
        assert select_device(found.spec, (found,)) == found


@pytest.mark.kernels
def test_profile_comes_from_the_driver() -> None:
    pocl = find_device("pocl")
    profile = profile_of(pocl)
    assert profile.max_work_group_size == min(pocl.handle.max_work_group_size, POCL_WORK_GROUP)
    assert profile.local_bytes == pocl.handle.local_mem_size
    assert profile.max_alloc_bytes == pocl.handle.max_mem_alloc_size
    assert profile.private_bytes == CPU_PRIVATE_BYTES
    assert pocl.platform_version in profile.source
    assert profile.lanes == 1 and profile.local_memory == "ordinary"
    assert profile.vector_bytes == 4 * max(profile.vector_widths)


@pytest.mark.parametrize(
    ("found", "told", "known"),
    [
        (NVIDIA, {"warp_size_nv": 32, "local_mem_type": 1}, (32, 255, 4, "own")),
        (AMD, {"wavefront_width_amd": 64, "local_mem_type": 1}, (64, None, None, "own")),
        (MALI, {"local_mem_type": 2}, (None, None, None, "ordinary")),
    ],
)
def test_what_suits_a_device_is_asked_of_its_driver(
    found: OpenClDevice, told: dict[str, int], known: tuple[object, ...]
) -> None:
    sizes = dict.fromkeys(("max_mem_alloc_size", "global_mem_size", "local_mem_size"), 65_536)
    handle = SimpleNamespace(
        **sizes, **told, max_work_item_sizes=[64, 64, 64], max_work_group_size=64,
        max_compute_units=2, extensions="",
    )  # fmt: skip
    profile = profile_of(replace(found, handle=handle))
    assert known == (
        profile.lanes, profile.vector_registers, profile.vector_bytes, profile.local_memory,
    )  # fmt: skip
    # What the shipped profiles of GPUs say too: a load brings 128 bits.
    assert profile.vector_widths == load_profile("h200").vector_widths


@pytest.mark.kernels
def test_a_group_on_pocl_has_its_private_memory_on_the_stack_of_a_thread() -> None:
    code = (
        "from worker.devices.opencl import find_device, profile_of; "
        "print(profile_of(find_device('pocl')).kernel_private_bytes)"
    )
    found: list[int] = []
    for kibibytes in ("8192", "2048"):
        limited = ["bash", "-c", 'ulimit -s "$0" && exec "$@"', kibibytes]
        run = subprocess.run([*limited, sys.executable, "-c", code], capture_output=True, text=True)
        found.append(int(run.stdout))
    assert found == [24_576, 6_144]


@pytest.mark.kernels
def test_facts_name_driver_and_versions() -> None:
    facts = device_facts(find_device("pocl"))
    assert all(isinstance(value, str) and value for value in facts.values())
    assert {"driver.version", "platform.version", "device.max_clock_mhz", "system"} <= set(facts)


def test_machine_state_reads_what_a_board_shows(tmp_path: Path) -> None:
    for path, text in {
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
        "sys/class/thermal/thermal_zone0/temp": "41000\n",
        "sys/class/thermal/thermal_zone1/temp": "",
        "sys/class/devfreq/e82c0000.mali/cur_freq": "767000000\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert machine_state(tmp_path) == {
        "cpu.governor": "performance",
        "thermal.thermal_zone0.millicelsius": "41000",
        "devfreq.e82c0000.mali.clock_hz": "767000000",
    }


def test_importing_the_worker_does_not_import_pyopencl() -> None:
    code = (
        "import sys, worker.measuring, worker.devices.opencl, worker.oclgrind, worker.run_plan; "
        "sys.exit('pyopencl' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_missing_pyopencl_is_a_device_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    with pytest.raises(DeviceError, match="pyopencl cannot be imported"):
        list_devices()
