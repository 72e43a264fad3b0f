"""PoCL compiles for what its kernel library was built for, on any x86-64 processor; and nothing of
a driver is touched that is not known."""

from __future__ import annotations

import ctypes
import ctypes.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mapper.cpu_targets import vector_bits
from worker.devices import pocl_target
from worker.devices.pocl_target import (
    LIBRARIES,
    cpu_flags,
    first_choice,
    is_known_build,
    library_by_flags,
    library_of_target,
    processor_name,
    selectable,
    target_in,
    told_name,
    wheel_library,
    write_target,
)

pytestmark = pytest.mark.kernels

SSE2 = "fpu sse sse2"
CORE2 = f"{SSE2} pni ssse3 cx16"
NEHALEM = f"{CORE2} sse4_1 sse4_2 popcnt"
SANDY = f"{NEHALEM} avx"
IVY = f"{SANDY} f16c rdrand"
BULLDOZER = f"{SANDY} xop fma4 sse4a abm"
HASWELL = f"{IVY} avx2 fma bmi1 bmi2 abm movbe"
KNIGHTS_LANDING = f"{HASWELL} avx512f avx512cd avx512er avx512pf"
SKYLAKE_X = f"{HASWELL} avx512f avx512cd avx512bw avx512dq avx512vl"
ICE_LAKE = f"{SKYLAKE_X} avx512ifma avx512vbmi avx512_vnni"


@pytest.mark.parametrize(
    ("processor", "flags", "told", "target", "library"),
    [
        ("AMD Zen 1", HASWELL + " sse4a", "znver1", "haswell", "avx2"),
        ("AMD Zen 2", HASWELL + " clwb", "znver2", "haswell", "avx2"),
        ("AMD Zen 3", HASWELL + " vaes", "znver3", "haswell", "avx2"),
        ("AMD Zen 4: LLVM 14 takes it for its forerunner", ICE_LAKE, "znver3", "skylake-avx512",
         "avx512"),
        ("AMD Zen 5: LLVM 14 cannot place it", ICE_LAKE, "generic", "skylake-avx512", "avx512"),
        ("AMD Bulldozer", BULLDOZER, "bdver1", "bdver1", "avx_fma4"),
        ("Intel Haswell, client", HASWELL, "haswell", "haswell", "avx2"),
        ("Intel Skylake, client", HASWELL, "skylake", "skylake", "avx2"),
        ("Intel Alder Lake, client", HASWELL, "alderlake", "alderlake", "avx2"),
        ("Intel Lunar Lake, client, newer than LLVM 14", HASWELL, "generic", "haswell", "avx2"),
        ("Intel Ice Lake, client", ICE_LAKE, "icelake-client", "icelake-client", "avx512"),
        ("Intel Skylake, server", SKYLAKE_X, "skylake-avx512", "skylake-avx512", "avx512"),
        ("Intel Cascade Lake, server", SKYLAKE_X, "cascadelake", "cascadelake", "avx512"),
        ("Intel Sapphire Rapids, server", ICE_LAKE, "sapphirerapids", "sapphirerapids", "avx512"),
        ("Intel Granite Rapids, server, newer than LLVM 14", ICE_LAKE, "generic",
         "skylake-avx512", "avx512"),
        ("a server whose hypervisor hides AVX-512", HASWELL, "icelake-server", "haswell", "avx2"),
        ("Intel Knights Landing: less than its library needs", KNIGHTS_LANDING, "knl", "haswell",
         "avx2"),
        ("Intel Ivy Bridge", IVY, "ivybridge", "ivybridge", "avx_f16c"),
        ("Intel Sandy Bridge", SANDY, "sandybridge", "sandybridge", "avx"),
        ("Intel Nehalem: SSE only", NEHALEM, "nehalem", "nehalem", "sse41"),
        ("Intel Core 2: SSE only", CORE2, "core2", "core2", "ssse3"),
        ("the oldest x86-64: SSE2 only", SSE2, "x86-64", "x86-64", "sse2"),
        ("SSE2 only, with a name that is not known", SSE2, "generic", "x86-64", "sse2"),
        ("a system that shows no flags", "", "generic", "x86-64", "sse2"),
    ],
)  # fmt: skip
def test_the_target_of_every_kind_of_processor(
    processor: str, flags: str, told: str, target: str, library: str
) -> None:
    chosen, taken = first_choice(frozenset(flags.split()), told)
    assert (chosen, taken.name) == (target, library), processor
    # What decides whether lanes are lost: both pass vectors in the same registers.
    assert vector_bits(chosen) == vector_bits(taken.target)


def test_only_what_the_processor_executes_may_be_asked_for() -> None:
    assert selectable(frozenset(HASWELL.split())) == (
        "haswell", "ivybridge", "sandybridge", "penryn", "core2", "x86-64",
    )  # fmt: skip
    assert selectable(frozenset(SKYLAKE_X.split()))[:2] == ("skylake-avx512", "haswell")
    assert "skylake-avx512" not in selectable(frozenset(KNIGHTS_LANDING.split()))
    assert selectable(frozenset(SSE2.split())) == ("x86-64",)


def test_every_library_of_the_wheel_is_known_and_its_target_too() -> None:
    library = wheel_library()
    assert library is not None
    shipped = library.parents[2].glob("pocl_binary_distribution/.libs/share/pocl/kernel-*.bc")
    names = {path.stem.rpartition("-gnu-")[2] for path in shipped}
    assert names == {known.name for known in LIBRARIES}
    for known in LIBRARIES:
        assert library_of_target(known.target) is known


def test_other_pocls_say_their_target_themselves() -> None:
    assert target_in("OpenCL 3.0 PoCL HSTR: pthread-x86_64-pc-linux-gnu-haswell") == "haswell"
    assert target_in("OpenCL 3.0 PoCL HSTR: cpu-aarch64-linux-gnu-cortex-a76") == "cortex-a76"
    assert target_in("OpenCL 3.0 CUDA") == ""


def test_the_processor_is_read_from_what_linux_shows(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(
        "processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC 9755\n"
        "flags\t\t: sse2 avx\n\nprocessor\t: 1\nflags\t\t: none\n"
    )
    assert cpu_flags(tmp_path) == {"sse2", "avx"}
    assert processor_name(tmp_path) == "AMD EPYC 9755 (family 26, model 2)"
    assert cpu_flags(tmp_path / "none") == frozenset()
    # An Arm board has features, and is no business of ours.
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\nFeatures\t: neon\n")
    assert cpu_flags(tmp_path) == frozenset()


OPENED = """
import json, sys
import pyopencl as cl
from worker.devices import pocl_target
from worker.devices.linker import provide_linker
from worker.devices.pocl_probe import fault_of
provide_linker()
platform = next(p for p in cl.get_platforms() if pocl_target.is_known_build(p.version))
device = platform.get_devices()[0]
record = device.int_ptr
target, library = pocl_target.first_choice(pocl_target.cpu_flags(), pocl_target.told_name())
"""


def in_a_child(code: str, tmp_path: Path, within_s: float = 60) -> subprocess.CompletedProcess[str]:
    """Run code behind :data:`OPENED` in a process that a wrong target may end."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", OPENED + code],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        env={**_environment(), "POCL_CACHE_DIR": str(tmp_path)},
        check=False,
        timeout=within_s,
    )


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key != "NESTMAP_POCL_TARGET"}


@pytest.mark.parametrize("wrong", ["generic", "znver3"])
def test_a_wrong_name_in_the_record_breaks_kernels_and_the_right_one_mends_them(
    wrong: str, tmp_path: Path
) -> None:
    write = f"assert pocl_target.write_target(record, {wrong!r}) == ''\n"
    fits = vector_bits(wrong) == vector_bits(library_by_flags(cpu_flags()).target)
    # Where a name is known and wrong, LLVM may search as long as it is let: not worth a minute.
    endless = wrong != "generic" and not fits
    try:
        broken = in_a_child(
            write + "print(json.dumps({'fault': fault_of(device)}))",
            tmp_path / "broken",
            within_s=5 if endless else 60,
        )
        ended_well = broken.returncode == 0
        fault = json.loads(broken.stdout)["fault"] if ended_well else broken.stderr or "it crashed"
    except subprocess.TimeoutExpired:
        # LLVM may also search for ever for code that passes a vector in what is not there.
        fault = "the compiler did not end"
    # Where vectors are as wide as in the library the name is no fault (znver3 on a Zen 3).
    assert bool(fault) is not fits, fault
    if wrong == "generic":
        assert "unknown target CPU 'generic'" in fault
    mended = in_a_child(
        write + f"left = pocl_target.write_target(record, target, found={wrong!r})\n"
        "print(json.dumps({'left': left, 'fault': fault_of(device)}))",
        tmp_path / "mended",
    )
    assert mended.returncode == 0, mended.stderr
    assert json.loads(mended.stdout) == {"left": "", "fault": ""}


@pytest.mark.parametrize("target", [lib.target for lib in LIBRARIES])
def test_kernels_come_out_right_for_every_target_that_the_processor_executes(
    target: str, tmp_path: Path
) -> None:
    if target not in selectable(cpu_flags()):
        # Said, not skipped: no processor executes all of them.
        library = library_of_target(target)
        assert library is not None and not library.runs_on(cpu_flags())
        return
    ended = subprocess.run(
        [sys.executable, "-m", "worker.devices.pocl_probe", target],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        env={**_environment(), "POCL_CACHE_DIR": str(tmp_path), "POCL_KERNEL_CACHE": "0"},
        check=False,
        timeout=120,
    )
    said = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    assert said[-1] == {"fault": ""}, (said, ended.stderr)
    assert (said[0]["target"], said[0]["left"]) == (target, "")


# What does not fit is left as it is. The record of these tests is a copy that nobody builds with.

UNTOUCHED = """
import ctypes
import ctypes.util
size = 1024
copy = (ctypes.c_uint64 * (size // 8)).from_buffer_copy(ctypes.string_at(record, size))
told = pocl_target.told_name()
with open("/proc/self/mem", "rb", buffering=0) as memory:
    places = [place for place, text in pocl_target._texts(memory, record, len(told) + 1)
              if text == told.encode() + b"\\0"]
assert len(places) == 1
field = (places[0] - record) // 8
{change}
before = bytes(copy)
left = pocl_target.write_target(ctypes.addressof(copy), "penryn")
print(json.dumps([left, bytes(copy) == before]))
"""


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ("", ""),
        ("copy[field] = 0", "0 pointers"),
        ("copy[field + 1] = copy[field]", "2 pointers"),
        ("copy[0] = ctypes.addressof(copy)", "not of PyPI's libpocl"),
        ("pocl_target._NAME_FUNCTION = 'pocl_no_such_function'", "exports no"),
        ("pocl_target.wheel_library = lambda: None", "is not loaded"),
    ],
)
def test_nothing_is_touched_unless_everything_is_as_it_is_known(
    change: str, left: str, tmp_path: Path
) -> None:
    ended = in_a_child(UNTOUCHED.format(change=change), tmp_path)
    assert ended.returncode == 0, ended.stderr
    said, same = json.loads(ended.stdout)
    assert left in said and bool(said) is bool(left)
    assert same is bool(left)


def test_a_place_that_is_no_memory_is_left_alone() -> None:
    assert write_target(8, "haswell") != ""
    assert write_target(2**63, "haswell") != ""


def test_other_builds_of_pocl_are_not_taken_for_the_known_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = "OpenCL 3.0 PoCL 3.0-rc2  Linux, Release, RELOC, LLVM 14.0.6, SLEEF, DISTRO"
    assert is_known_build(known)
    assert not is_known_build(known.replace("3.0-rc2", "3.1+debian"))
    assert not is_known_build(known.replace("14.0.6", "15.0.6"))
    monkeypatch.setattr(pocl_target, "wheel_library", lambda: None)
    assert not is_known_build(known)


def test_told_name_is_empty_where_nothing_tells(tmp_path: Path) -> None:
    assert told_name(str(tmp_path / "libpocl.so")) == ""
    assert told_name(ctypes.util.find_library("c") or "libc.so.6") == ""
