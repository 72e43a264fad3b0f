"""What of the machine a measuring child needs to see: its programs, its drivers, its devices."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from worker.devices.pocl_target import cache_folder

_PACKAGE_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("mapper", "worker", "nestmap")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/sys")
_SETTINGS = (
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "OpenCL", "alternatives", "localtime", "passwd",
    "group", "nsswitch.conf", "nvidia", "clinfo.conf",
)  # fmt: skip
_VENDORS = Path("/etc/OpenCL/vendors")
_PLAIN_DEVICES = ("null", "zero", "full", "random", "urandom")
_DRIVERS_DEVICES = (
    "dri", "mali*", "kfd", "nvidia*", "dma_heap", "ion", "kgsl-3d0", "galcore", "pvr_sync", "kgd",
    "accel", "dxg",
)  # fmt: skip
#: Of a process table that shows other users' processes too.
_OF_PROCESSES = (
    "cpuinfo", "meminfo", "stat", "version", "filesystems", "devices", "modules", "driver", "self",
    "sys/vm/overcommit_memory", "sys/kernel/osrelease", "sys/kernel/ostype",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class VisiblePaths:
    """Absolute paths that exist: read only, and device nodes or folders of them."""

    read: tuple[Path, ...]
    devices: tuple[Path, ...]
    processes: tuple[Path, ...]


def visible_paths(more: Iterable[str] = ()) -> VisiblePaths:
    """What a child of this interpreter sees; ``more`` is what the machine's owner adds to read."""
    read = (
        *(Path(text) for text in _SYSTEM),
        *(Path("/etc") / name for name in _SETTINGS),
        *_of_python(),
        *_of_drivers(),
        cache_folder(),
        *(Path(text) for text in more),
    )
    patterns = (*_PLAIN_DEVICES, *_DRIVERS_DEVICES)
    devices = (path for pattern in patterns for path in sorted(Path("/dev").glob(pattern)))
    processes = (Path("/proc") / name for name in _OF_PROCESSES)
    return VisiblePaths(tuple(_outermost(read)), tuple(_there(devices)), tuple(_there(processes)))


def _of_python() -> Iterator[Path]:
    """The interpreter, its packages and our own; never a whole folder of sources."""
    yield from map(Path, {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix})
    here = Path.cwd()
    for text in sys.path:
        path = Path(text).absolute()
        # Where the agent was started, and a checkout of ours, hold more than modules.
        if path not in (here, *here.parents, _PACKAGE_ROOT) or path.name.endswith("-packages"):
            yield path
    for name in _PACKAGES:
        yield _PACKAGE_ROOT / name


def _of_drivers() -> Iterator[Path]:
    """Folders of the OpenCL drivers that are registered, and where the loader looks beside."""
    for text in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        if text:
            yield Path(text)
    vendors = Path(os.environ.get("OCL_ICD_VENDORS", "") or _VENDORS)
    yield vendors
    for file in sorted(vendors.glob("*.icd")) if vendors.is_dir() else ():
        with contextlib.suppress(OSError):
            library = Path(file.read_text(encoding="utf-8", errors="replace").strip())
            if library.is_absolute() and library.exists():
                yield library.parent
                yield library.resolve().parent
    for file in sorted(Path("/etc/ld.so.conf.d").glob("*.conf")):
        with contextlib.suppress(OSError):
            for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
                if line.startswith("/"):
                    yield Path(line.strip())


def _there(paths: Iterable[Path]) -> Iterator[Path]:
    """Those that exist, as absolute paths, each once."""
    seen: set[Path] = set()
    for path in paths:
        path = path.absolute()
        if path not in seen and path.exists():
            seen.add(path)
            yield path


def _outermost(paths: Iterable[Path]) -> list[Path]:
    """Those that exist and do not lie in another of them; the whole machine is never one."""
    there = {path for path in _there(paths) if path != Path("/")}
    return sorted(path for path in there if not any(parent in there for parent in path.parents))
