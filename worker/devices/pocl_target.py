"""Which processor PoCL compiles for: what PyPI's build gets wrong, and how it is set right.

``pocl-binary-distribution`` 3.0 (PoCL 3.0-rc2 with LLVM 14, of 2022) is what a machine with
nothing but Python has. It decides two things by itself. By the processor's *flags* it takes one of
eight kernel libraries, the functions that OpenCL has built in; each was built for one target
(:data:`LIBRARIES`). By LLVM's *name* for the processor it takes the target that kernels are
compiled for. LLVM 14 knows no AMD Zen 4 (it says ``znver3``, which has no AVX-512) and places no
Zen 5 at all (``generic``, which its compiler refuses). Then library and kernels disagree on how 16
floats are passed, in one register or in two: lanes are lost, the compiler aborts, or nothing
builds. PoCL 3.1 targets what its library was built for, and so do we:

- The name is a field of the driver's device record (``llvm_cpu``, a ``char *``) that is read at
  each build. It is replaced before the first. Nothing is touched unless everything is as in the
  build that we know: the platform's version, the exported function that tells the name, a record
  that belongs to that library, and exactly one pointer in it to that very name.
- Another library than PoCL's own choice, for a narrower target, is had by showing PoCL a folder in
  which every library is that one: it looks for them beside itself, by the path that it was loaded
  from.

Which target that is, is found out once for a processor (:mod:`worker.devices.probed_target`).
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import importlib.util
import os
import re
import shutil
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mapper.cpu_targets import vector_bits
from mapper.errors import DeviceError, Problem

#: What PoCL found by itself is asked for by this name.
NATIVE = "native"
#: The build that this module knows, as the platform's version has it.
KNOWN_BUILD = ("PoCL 3.0-rc2", "LLVM 14.0.6")
#: Where answers are kept; children, whose other caches are private, are told.
CACHE_SETTING = "NESTMAP_CACHE_DIR"
_NAME_FUNCTION = "pocl_get_llvm_cpu_name"
#: The field is at byte 640 of that build's record; behind the record other objects begin.
_RECORD_BYTES = 1024
_AVX = frozenset({"avx", "cx16", "popcnt"})
_AVX2 = _AVX | {"avx2", "abm", "f16c", "fma", "bmi1", "bmi2"}


@dataclass(frozen=True, slots=True)
class KernelLibrary:
    """One of PoCL's kernel libraries: the target that it was built for and that kernels are then
    compiled for, the processor's flags by which PoCL takes it, and those that its code needs.

    Flags are called as in /proc/cpuinfo.
    """

    name: str
    target: str
    taken_by: frozenset[str]
    also_needs: frozenset[str] = frozenset()

    def runs_on(self, flags: frozenset[str]) -> bool:
        """Whether a processor with these flags can execute it."""
        return self.taken_by | self.also_needs <= flags


#: In PoCL's order: of those whose flags are there the last is taken. (``x86-64`` is what the first
#: is compiled for here; it was built for ``athlon64``, which passes vectors the same way and adds
#: 3DNow!, which today's processors have not.)
LIBRARIES = (
    KernelLibrary("sse2", "x86-64", frozenset({"sse2"})),
    KernelLibrary("ssse3", "core2", frozenset({"ssse3", "cx16"})),
    KernelLibrary("sse41", "penryn", frozenset({"sse4_1", "cx16"})),
    KernelLibrary("avx", "sandybridge", _AVX),
    KernelLibrary("avx_f16c", "ivybridge", _AVX | {"f16c"}),
    KernelLibrary("avx_fma4", "bdver1", _AVX | {"xop", "fma4"}),
    KernelLibrary("avx2", "haswell", _AVX2),
    KernelLibrary(
        "avx512",
        "skylake-avx512",
        frozenset({"avx512f"}),
        _AVX2 | {"avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    ),
)
#: What may be asked for, on a processor that can execute it; widest first.
TARGETS = tuple(library.target for library in reversed(LIBRARIES))
#: LLVM's names of processors that have all that a library's code needs, by that library. Only names
#: whose vectors are as wide as the library's; with others PoCL's two choices disagree. AMD's Zen is
#: left out: LLVM inlines no function of the library for Haswell into code for it, which costs 5 to
#: 13 % on a Zen 3.
_KIN: dict[str, str] = {
    **dict.fromkeys(
        ("cascadelake", "cooperlake", "cannonlake", "icelake-client", "icelake-server",
         "rocketlake", "tigerlake", "sapphirerapids"),
        "avx512",
    ),
    **dict.fromkeys(("broadwell", "skylake", "alderlake", "bdver4"), "avx2"),
    **dict.fromkeys(("bdver2", "bdver3"), "avx_fma4"),
    "btver2": "avx_f16c",
    **dict.fromkeys(
        ("nehalem", "westmere", "silvermont", "goldmont", "goldmont-plus", "tremont"), "sse41"
    ),
    **dict.fromkeys(("bonnell", "btver1"), "ssse3"),
    **dict.fromkeys(("athlon64", "k8", "k8-sse3", "amdfam10", "nocona"), "sse2"),
    **{library.target: library.name for library in LIBRARIES},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Choice:
    """The target that kernels are compiled for, the kernel library that fits it, what PoCL found by
    itself, and one sentence that says how this came about."""

    target: str
    library: str
    told: str
    note: str


def library_by_flags(flags: frozenset[str]) -> KernelLibrary:
    """The library that PoCL 3.0 takes on a processor with these flags (``getX86KernelLibName``)."""
    return next(lib for lib in reversed(LIBRARIES) if lib.taken_by <= flags or lib is LIBRARIES[0])


def library_of_target(target: str) -> KernelLibrary | None:
    """The library whose functions fit code for a target; None for a name that is not known."""
    name = _KIN.get(target)
    return next((library for library in LIBRARIES if library.name == name), None)


def selectable(flags: frozenset[str]) -> tuple[str, ...]:
    """The targets that may be asked for on a processor with these flags, widest first."""
    return tuple(lib.target for lib in reversed(LIBRARIES) if lib.runs_on(flags))


def first_choice(flags: frozenset[str], told: str) -> tuple[str, KernelLibrary]:
    """Target and library for a processor with these flags that LLVM 14 calls ``told``.

    PoCL's own choices where they agree; else the target of the library that its flags take, or of
    the widest that the processor can execute.
    """
    taken = library_by_flags(flags)
    named = library_of_target(told)
    if (
        named is not None
        and named.runs_on(flags)
        and taken.runs_on(flags)
        and vector_bits(told) == vector_bits(taken.target)
    ):
        return told, taken
    fitting = next(lib for lib in reversed(LIBRARIES) if lib.runs_on(flags) or lib is LIBRARIES[0])
    return fitting.target, fitting


def cpu_flags(root: Path = Path("/")) -> frozenset[str]:
    """The processor's flags as Linux shows them; none where it does not."""
    return frozenset(_cpuinfo(root).get("flags", "").split())


def processor_name(root: Path = Path("/")) -> str:
    """The processor as Linux shows it: maker's name, family and model."""
    info = _cpuinfo(root)
    return (
        f"{info.get('model name', 'unknown')} "
        f"(family {info.get('cpu family', '?')}, model {info.get('model', '?')})"
    )


def _cpuinfo(root: Path) -> dict[str, str]:
    """The first processor's lines."""
    try:
        text = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    lines = text.partition("\n\n")[0].splitlines()
    pairs = (line.partition(":") for line in lines)
    return {key.strip(): value.strip() for key, _, value in pairs}


def is_known_build(platform_version: str) -> bool:
    """Whether a platform is the build of PoCL that this module knows."""
    return all(part in platform_version for part in KNOWN_BUILD) and wheel_library() is not None


def target_in(device_version: str) -> str:
    """The target that another PoCL says it compiles for in its device's version; empty if none."""
    found = re.search(r"HSTR: \S*?-linux-gnu-(\S+)", device_version)
    return found.group(1) if found else ""


@cache
def wheel_library() -> Path | None:
    """PyPI's libpocl, which lies beside pyopencl; None where it is not installed."""
    spec = importlib.util.find_spec("pyopencl")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / ".libs"
    return next(iter(sorted(folder.glob("libpocl-*.so"))), None)


# Applying: in the process that builds kernels.

_loaded_as: str | None = None
_set_to: dict[int, str] = {}


def load(choice: Choice) -> None:
    """Have PyPI's PoCL loaded with the library of a choice, before any other OpenCL call; nothing
    happens where it is loaded already (:func:`apply` says so where it matters)."""
    global _loaded_as
    if _loaded_as is not None:
        return
    _loaded_as = library_by_flags(cpu_flags()).name
    if choice.library != _loaded_as and _mapped_library() is None:
        # The loader finds it loaded already, by its inode, whatever path it looks at.
        ctypes.CDLL(str(_view_of(choice.library)))
        _loaded_as = choice.library


def cache_folder() -> Path:
    """Where nestmap keeps what it found out about this machine, and PoCL with other libraries."""
    own = os.environ.get(CACHE_SETTING, "")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "nestmap"


def _view_of(name: str) -> Path:
    """libpocl in a folder where every kernel library is the named one, made once."""
    library = wheel_library()
    assert library is not None
    site = library.parents[2]
    shown = library.relative_to(site)
    made = hashlib.sha256(f"{library} {library.stat().st_mtime_ns}".encode()).hexdigest()[:16]
    view = cache_folder() / f"pocl-{name}-{made}"
    if not (view / shown).exists():
        try:
            view.parent.mkdir(parents=True, exist_ok=True)
            fresh = Path(tempfile.mkdtemp(prefix=f"{view.name}-", dir=view.parent))
        except (OSError, RuntimeError):
            view = fresh = Path(tempfile.mkdtemp(prefix="nestmap-pocl-"))
            atexit.register(shutil.rmtree, view, ignore_errors=True)
        _link(site, shown, name, fresh)
        if fresh != view:
            try:
                fresh.rename(view)
            except OSError:
                # Another process was faster; its folder is the same.
                shutil.rmtree(fresh, ignore_errors=True)
    return view / shown


def _link(site: Path, shown: Path, name: str, view: Path) -> None:
    """Fill a folder with links to what PoCL needs of the installed packages."""
    (view / shown).parent.mkdir(parents=True)
    (view / shown).symlink_to(site / shown)
    data = Path("pocl_binary_distribution/.libs/share/pocl")
    (view / data).mkdir(parents=True)
    libraries = data.parents[1]
    for entry in (site / libraries).iterdir():
        if entry.name != data.parents[0].name:
            (view / libraries / entry.name).symlink_to(entry)
    for entry in (site / data).iterdir():
        kernel = re.fullmatch(r"(kernel-.*-gnu-).*\.bc", entry.name)
        target = site / data / f"{kernel.group(1)}{name}.bc" if kernel else entry
        (view / data / entry.name).symlink_to(target)


def apply(choice: Choice, record: int) -> str:
    """Write a choice's target into the device record at this address, before the first build.

    Returns why it was left as it is; empty when it was set or is right already. DeviceError if
    this process compiles for another target already.
    """
    present = _set_to.setdefault(record, choice.target)
    if present != choice.target or _loaded_as not in (None, choice.library):
        raise DeviceError(
            Problem(
                "device",
                f"this process cannot compile for {choice.target}",
                f"it compiles for {present} with the kernel library {_loaded_as}",
                "one target in a process",
            )
        )
    return write_target(record, choice.target)


def write_target(record: int, target: str, found: str | None = None) -> str:
    """The write itself; ``found`` is what the record says now, where not what PoCL tells."""
    library = _mapped_library()
    if library is None:
        return "PyPI's libpocl is not loaded"
    path, low, high = library
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        head = _read(memory, record, 8)
        # An OpenCL object begins with the table of its own driver's functions.
        if head is None or not low <= struct.unpack("<Q", head)[0] < high:
            return "the device's record is not of PyPI's libpocl"
        told = found if found is not None else told_name(path)
        if not told:
            return f"libpocl exports no {_NAME_FUNCTION}"
        if told == target:
            return ""
        places = [place for place, text in _texts(memory, record, len(told) + 1)
                  if text == told.encode() + b"\0"]  # fmt: skip
    if len(places) != 1:
        return f"its record has {len(places)} pointers to {told!r}, not one"
    copy = ctypes.CDLL(None).strdup
    copy.restype = ctypes.c_void_p
    # Of C's heap, as what it replaces: PoCL may free it.
    ctypes.c_uint64.from_address(places[0]).value = copy(target.encode())
    return ""


def told_name(path: str | None = None) -> str:
    """LLVM's name for the processor, as PyPI's libpocl tells it; empty if it tells none."""
    mapped = _mapped_library()
    path = path or (mapped[0] if mapped else None)
    if path is None:
        return ""
    try:
        function = getattr(ctypes.CDLL(path), _NAME_FUNCTION)
    except (OSError, AttributeError):
        return ""
    function.restype = ctypes.c_void_p
    pointer = function()
    return ctypes.string_at(pointer).decode(errors="replace") if pointer else ""


def _mapped_library() -> tuple[str, int, int] | None:
    """PyPI's libpocl in this process: its path, its first address and the one behind its last."""
    wanted = wheel_library()
    if wanted is None:
        return None
    ranges: list[int] = []
    real = str(wanted.resolve())
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        if line.endswith(real):
            ranges += (int(part, 16) for part in line.split(maxsplit=1)[0].split("-"))
    return (real, min(ranges), max(ranges)) if ranges else None


def _texts(memory: Any, record: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Every place in a record that holds a pointer, with so many bytes of what it points at."""
    for place in range(record, record + _RECORD_BYTES, 8):
        value = _read(memory, place, 8)
        if value is None:
            return
        pointer = struct.unpack("<Q", value)[0]
        text = _read(memory, pointer, size) if pointer else None
        if text is not None:
            yield place, text


def _read(memory: Any, address: int, size: int) -> bytes | None:
    """Bytes of this process; None where it has none."""
    try:
        memory.seek(address)
        data = memory.read(size)
    except (OSError, ValueError, OverflowError):
        return None
    return data if len(data) == size else None
