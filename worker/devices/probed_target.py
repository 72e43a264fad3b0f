"""Which target PyPI's PoCL compiles for on this machine: found out once, then remembered.

A probe in a child (:mod:`worker.devices.pocl_probe`) says whether kernels come out right for the
target that fits best (:mod:`worker.devices.pocl_target`); where they do not, the next narrower one
is tried. The answer is kept by processor, driver and what was asked for.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from mapper.device_profile import NO_TARGET
from mapper.errors import DeviceError, Problem
from worker.devices.pocl_target import (
    NATIVE,
    Choice,
    cache_folder,
    cpu_flags,
    load,
    processor_name,
    selectable,
    wheel_library,
)

#: Chooses the target of PyPI's PoCL for everything below this process.
SETTING = "NESTMAP_POCL_TARGET"
_SCHEMA = "nestmap/pocl-targets/1"
#: To be raised when the probe asks for more, so that old answers are forgotten.
_PROBE_VERSION = 2
_PROBE = "worker.devices.pocl_probe"
_PROBE_TIMEOUT_S = 120.0
_PACKAGE_ROOT = Path(__file__).resolve().parents[2]

#: What is tried where kernels come out wrong for the widest target that fits, widest first.
_NARROWER = ("haswell", "x86-64")
#: Intel's runtime asks for one of its own names on processors that it does not know.
_INTEL_TARGETS = (("skylake-avx512", "skx"), ("haswell", "core-avx2"))


def remedies(others: Sequence[str] = ()) -> str:
    """What helps where PyPI's PoCL cannot be used: commands to paste, a line each, that end in the
    demo on another device. They name it, because a second driver beside PyPI's PoCL does not change
    what ``host`` means. ``others`` are specs of further devices that are here.
    """
    python, root = shlex.quote(sys.executable), "" if os.geteuid() == 0 else "sudo "
    demo = f"{python} -m nestmap.demo --device"
    prefix = Path(sys.prefix)
    folder = shlex.quote(str(prefix / "share/nestmap/icd"))
    libraries = shlex.quote(str(prefix / "lib"))
    present = selectable(cpu_flags())
    target = next((f"CL_CONFIG_CPU_TARGET_ARCH={intel} " for ours, intel in _INTEL_TARGETS
                   if ours in present), "")  # fmt: skip
    # A profile needs no driver: without another device that is what can be done here.
    elsewhere = f"{python} -m nestmap solve vgg16/24 --device mali-g72 --limit 1"
    return "\n".join(
        (
            "# 1. another PoCL, of Debian or Ubuntu",
            f"{root}apt-get update",
            f"{root}apt-get install --yes pocl-opencl-icd",
            f"{demo} opencl:debian/",
            "# 2. the CPU runtime of Intel, 1 GB from PyPI",
            f"{python} -m pip install intel-opencl-rt intel-cmplr-lib-rt",
            f"mkdir -p {folder}",
            f"echo {libraries}/libintelocl.so > {folder}/intel.icd",
            f"OCL_ICD_VENDORS={folder}/ LD_LIBRARY_PATH={libraries} {target}{demo} opencl:intel/",
            "# 3. another device" if others else "# 3. mappings for a device that is not here",
            *([f"{demo} {shlex.quote(spec)}" for spec in others] or [elsewhere]),
        )
    )


def resolve(wanted: str = "", others: Sequence[str] = ()) -> Choice:
    """The target to compile for with PyPI's PoCL here; probes once for a processor and driver.

    ``wanted`` is a target, ``native``, or empty for the setting in the environment or what fits
    best. DeviceError names what may be asked for, or the remedies where no target works
    (``others``: devices that are here beside).
    """
    if not wanted:
        check_setting()
    found = _resolve((wanted or os.environ.get(SETTING, "") or NATIVE).lower())
    if isinstance(found, Choice):
        return found
    raise DeviceError(
        Problem(
            "device",
            "PyPI's PoCL compiles no right kernel for this processor",
            f"{processor_name()}; PoCL 3.0-rc2 (LLVM 14.0.6); {found}",
            remedy=remedies(others),
        )
    )


def check_setting() -> None:
    """DeviceError where the setting in the environment asks for what PoCL cannot do here."""
    wanted = os.environ.get(SETTING, "")
    if wanted and not _may_be_asked_for(wanted):
        raise DeviceError(replace(refusal(wanted), path=SETTING, remedy=f"unset {SETTING}"))


def refusal(wanted: str) -> Problem:
    """Why PoCL does not compile for a target that was asked for."""
    present = selectable(cpu_flags())
    return Problem(
        "device",
        "its target is missing behind @"
        if wanted == NO_TARGET
        else f"its target is wrong: PoCL cannot compile for {wanted!r} here",
        processor_name(),
        ", ".join((NATIVE, *present)),
        f"--device pocl@{present[0] if present else NATIVE}",
    )


def _may_be_asked_for(wanted: str) -> bool:
    return wanted.lower() in (NATIVE, *selectable(cpu_flags()))


@cache
def _resolve(wanted: str) -> Choice | str:
    """The choice, or what is wrong with each target that was tried."""
    if not _may_be_asked_for(wanted):
        raise DeviceError(refusal(wanted))
    flags = cpu_flags()
    key = _key(wanted, flags)
    known = _remembered(key)
    if known is not None:
        return known
    faults: dict[str, str] = {}
    for target in (wanted, *_narrower(wanted, flags)):
        if target in faults:
            continue
        answer = _probed(target)
        told, left = str(answer.get("told", "")), str(answer.get("left", ""))
        used = str(answer.get("target", target))
        if not answer["fault"]:
            choice = Choice(used, str(answer["library"]), told, _note(used, told, left, faults))
            _remember(key, choice)
            return choice
        faults[used] = str(answer["fault"])
    return "; ".join(f"as {target}: {fault}" for target, fault in faults.items())


def _narrower(wanted: str, flags: frozenset[str]) -> Iterator[str]:
    """What is tried after the first choice; nothing where somebody asked for a target by name."""
    if wanted == NATIVE:
        yield from (target for target in _NARROWER if target in selectable(flags))


def _note(target: str, told: str, left: str, faults: Mapping[str, str]) -> str:
    if left:
        return f"as PoCL found it, because {left}"
    tried = "".join(f"; as {name}: {fault}" for name, fault in faults.items())
    if target == told:
        return "as PoCL found it" + tried
    return f"set: PoCL takes {told or 'another'} by itself" + tried


def _key(wanted: str, flags: Iterable[str]) -> str:
    library = wheel_library()
    facts: list[object] = [_PROBE_VERSION, wanted, processor_name(), sorted(flags), str(library)]
    if library is not None:
        status = library.stat()
        facts += [status.st_size, status.st_mtime_ns]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _cache_file() -> Path:
    return cache_folder() / "pocl-targets.json"


def _entries() -> dict[str, Any]:
    try:
        value = json.loads(_cache_file().read_text(encoding="utf-8"))
    except (OSError, ValueError, RuntimeError):
        return {}
    if not isinstance(value, dict) or value.get("schema") != _SCHEMA:
        return {}
    entries = value.get("entries")
    return entries if isinstance(entries, dict) else {}


def _remembered(key: str) -> Choice | None:
    entry = _entries().get(key)
    names = tuple(Choice.__dataclass_fields__)
    if not isinstance(entry, dict) or any(not isinstance(entry.get(n), str) for n in names):
        return None
    return Choice(**{name: entry[name] for name in names})


def _remember(key: str, choice: Choice) -> None:
    """Keep an answer; where nothing can be written the next process asks again."""
    text = json.dumps({"schema": _SCHEMA, "entries": {**_entries(), key: asdict(choice)}})
    try:
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix="pocl-targets-", dir=folder)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, _cache_file())
    except (OSError, RuntimeError):
        return


def _probed(target: str) -> dict[str, Any]:
    """What the probe says of a target: ``target``, ``library``, ``told``, ``left``, ``fault``."""
    search = [str(_PACKAGE_ROOT), os.environ.get("PYTHONPATH", "")]
    with tempfile.TemporaryDirectory(prefix="nestmap-probe-") as folder:
        environment = {
            **os.environ,
            SETTING: "",
            "PYTHONPATH": os.pathsep.join(part for part in search if part),
            "POCL_CACHE_DIR": folder,
            "POCL_KERNEL_CACHE": "0",
            "PYOPENCL_NO_CACHE": "1",
            "TMPDIR": folder,
        }
        try:
            ended = subprocess.run(
                [sys.executable, "-m", _PROBE, target],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                env=environment,
                timeout=_PROBE_TIMEOUT_S,
                check=False,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            return {"fault": f"the probe took over {_PROBE_TIMEOUT_S:.0f} s"}
    said: dict[str, Any] = {"fault": ""}
    for line in ended.stdout.splitlines():
        if line.startswith("{"):
            said |= json.loads(line)
    if ended.returncode and not said["fault"]:
        said["fault"] = _words_of_end(ended.returncode, ended.stderr)
    return said


def _words_of_end(code: int, errors: str) -> str:
    lines = [line.strip() for line in errors.splitlines() if "rror" in line] or [""]
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"the probe ended with {how} {lines[-1][:200]}".strip()


def prepare(wanted: str = "") -> None:
    """Have PyPI's PoCL loaded with the kernel library that fits, before any other OpenCL call.

    Nothing happens where it is not installed, is loaded already, or no target works:
    :func:`resolve` and :func:`apply` say so where it matters.
    """
    if (choice := find_out(wanted)) is not None:
        load(choice)


def find_out(wanted: str = "") -> Choice | None:
    """As :func:`resolve`, remembered for later processes; None where PyPI's PoCL is not installed
    or no target works."""
    with contextlib.suppress(DeviceError):
        return resolve(wanted) if wheel_library() is not None else None
    return None
