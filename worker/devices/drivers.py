"""OpenCL drivers of GPUs that this machine has and OpenCL's loader does not know of.

A driver is registered by a file in ``/etc/OpenCL/vendors`` that names its library. Containers often
have NVIDIA's libraries mounted without that file. So a folder of such files is written, with what
is registered and what is found beside, and ``OCL_ICD_VENDORS`` points there; nothing is done where
its user has set it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from stat import S_ISDIR

from worker.devices.pocl_target import cache_folder

SETTING = "OCL_ICD_VENDORS"
#: With any of these the loader does as it is told. (OCL_ICD_FILENAMES only adds to what it finds,
#: and containers set it for libraries that it then does not find.)
_SETTINGS = (SETTING, "OPENCL_VENDOR_PATH")
NVIDIA = "libnvidia-opencl.so.1"
_FOLDERS = (
    "usr/local/nvidia/lib64", "usr/local/nvidia/lib", "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib64/nvidia", "usr/local/lib", "usr/lib",
    "usr/lib/wsl/lib", "run/opengl-driver/lib",
)  # fmt: skip
_VENDORS = "etc/OpenCL/vendors"
#: A second compiler for the processor beside the wheel's PoCL is loaded where it is asked for only.
_OF_PROCESSORS = ("pocl", "intelocl")
_LDCONFIG = ("/sbin/ldconfig", "-p")
_LDCONFIG_S = 10.0


def provide_drivers(root: Path = Path("/")) -> None:
    """Have the loader find the GPUs' drivers that are here; to be called before its first use."""
    if any(os.environ.get(name) for name in _SETTINGS):
        return
    wanted = wanted_drivers(root, wheel_has_loader(), os.environ)
    if wanted:
        with contextlib.suppress(OSError, RuntimeError):
            os.environ[SETTING] = str(_written(wanted))


def wanted_drivers(root: Path, own_loader: bool, environment: Mapping[str, str]) -> dict[str, str]:
    """The libraries that the loader should know of, by the names of their files; none where it
    finds all of them by itself. ``own_loader``: pyopencl's wheel has brought its loader, which
    knows the wheel's PoCL and nothing of the system's."""
    system = _registered(root / _VENDORS)
    found = {} if _is_there(system, "nvidia") else _nvidia(root, environment)
    if not own_loader:
        return {**system, **found} if found else {}
    gpus = {
        name: library
        for name, library in system.items()
        if not any(part in Path(library).name.lower() for part in _OF_PROCESSORS)
    }
    return {**gpus, **found}


def missing(root: Path = Path("/")) -> str:
    """What a GPU that is here lacks, and the remedy; empty where nothing is known to lack."""
    nodes = [path for path in (root / "dev").glob("nvidia[0-9]*") if path.name[6:].isdecimal()]
    if nodes and not nvidia_library(root, os.environ):
        return (
            f"there is {nodes[0]} but no {NVIDIA}: start the container with "
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility (docker run --gpus all -e …)"
        )
    return ""


def remedy(root: Path = Path("/")) -> str:
    """What to do where a device is missing."""
    return missing(root) or (
        "for a driver that is not found: mkdir -p ~/.icd; echo /path/to/its/library.so > "
        f"~/.icd/own.icd; export {SETTING}=$HOME/.icd; for the CPU pip install 'pyopencl[pocl]'"
    )


def wheel_has_loader() -> bool:
    """Whether pyopencl is a wheel with a loader of its own."""
    spec = importlib.util.find_spec("pyopencl")
    if spec is None or spec.origin is None:
        return False
    return any((Path(spec.origin).parent / ".libs").glob("libOpenCL*"))


def nvidia_library(
    root: Path, environment: Mapping[str, str], cached: Callable[[], str] | None = None
) -> str:
    """NVIDIA's library: its name where the dynamic linker knows it, else its path; empty where it
    is not here."""
    known = (cached or _linker_cache)() if root == Path("/") or cached else ""
    for line in known.splitlines():
        name, _, path = line.strip().partition(" => ")
        if name.split(" ")[0] == NVIDIA and Path(path).exists():
            return path
    given = [Path(text) for text in environment.get("LD_LIBRARY_PATH", "").split(":") if text]
    for folder in (*given, *(root / name for name in _FOLDERS)):
        path = folder / NVIDIA
        if path.exists():
            return str(path)
    return ""


def _nvidia(root: Path, environment: Mapping[str, str]) -> dict[str, str]:
    library = nvidia_library(root, environment)
    return {"nvidia.icd": library} if library else {}


def _is_there(drivers: Mapping[str, str], part: str) -> bool:
    """Whether one of the registered libraries has this in its name; those of other folders count
    only where they exist."""
    return any(
        part in library.lower() and (not library.startswith("/") or Path(library).exists())
        for library in drivers.values()
    )


def _registered(folder: Path) -> dict[str, str]:
    """The libraries that a folder's files name."""
    found: dict[str, str] = {}
    for file in sorted(folder.glob("*.icd")) if folder.is_dir() else ():
        with contextlib.suppress(OSError):
            library = file.read_text(encoding="utf-8", errors="replace").strip()
            if library:
                found[file.name] = library
    return found


def _linker_cache() -> str:
    try:
        ended = subprocess.run(
            _LDCONFIG, capture_output=True, text=True, errors="replace", timeout=_LDCONFIG_S
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return ended.stdout


def _written(drivers: Mapping[str, str]) -> Path:
    """A folder with a file for each of them: one that is kept, so that children of this process
    find it as well; OSError where none can be written."""
    text = repr(sorted(drivers.items()))
    name = f"opencl-vendors-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    try:
        folder = cache_folder() / name
        _fill(folder, drivers)
    except (OSError, RuntimeError):
        folder = Path(tempfile.mkdtemp(prefix="nestmap-vendors-"))
        _fill(folder, drivers)
    return folder


def _fill(folder: Path, drivers: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = folder.lstat()
    if status.st_uid != os.geteuid() or not S_ISDIR(status.st_mode) or status.st_mode & 0o022:
        # The loader runs whatever library lies there by name.
        raise PermissionError(f"others may write to {folder}")
    for other in folder.iterdir():
        if other.name not in drivers:
            other.unlink()
    for name, library in drivers.items():
        file = folder / name
        if not file.exists() or file.read_text(encoding="utf-8").strip() != library:
            fresh = file.with_name(f"{file.name}.{os.getpid()}")
            fresh.write_text(library + "\n", encoding="utf-8")
            os.replace(fresh, file)
