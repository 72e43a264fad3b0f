"""Devices by their spec: OpenCL under supervision, recorded, or null."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from mapper.device_profile import device_name
from worker.devices import drivers, probed_target
from worker.devices.interface import MeasuringDevice
from worker.devices.names import is_null
from worker.devices.null import NullDevice
from worker.executor.recordings import open_recording
from worker.measuring import MeasuringChild
from worker.measuring.sandbox import VARIABLE, Sandbox

RECORDED = "recorded:"
SANDBOXED_CHILD = "worker.measuring.sandboxed_child"
#: A board that compiles its first kernel while another of its cores is busy takes its time.
_START_TIMEOUT_S = 180.0
_RELOAD_TIMEOUT_S = 120.0
_SECRET = re.compile("TOKEN|SECRET|PASSW|CREDENTIAL|(?:^|_)KEY(?:_|$)", re.IGNORECASE)
#: What OpenCL drivers, their compilers and Python look for.
_FOR_CHILDREN = re.compile(
    r"PATH|LD_LIBRARY_PATH|LD_PRELOAD|HOME|USER|LOGNAME|LANG|LANGUAGE|TZ|TMPDIR|XDG_CACHE_HOME"
    r"|(?:LC|OCL|OPENCL|POCL|PYOPENCL|NESTMAP|CL|CLVK|PYTHON|OMP|OPENBLAS|MKL|KMP|HWLOC"
    r"|CUDA|MESA|GALLIUM|LIBGL|LIBCLC|RUSTICL|MALI|PAN|PVR|FD|IR3|ETNA|VIV|VC|V3D|DRI|LP"
    r"|NV|NVIDIA|ROCR|HSA|HIP|GPU|AMD|INTEL|IGC|NEO|ZE|SYCL)_\w*"
    r"|(?:PYTHON|NV|MALI|LIBCLC|RUSTICL|NEO)\w*"
)
_CREDENTIALS_IN_ADDRESS = re.compile(r"://[^/?#\s]*@")


def open_device(
    spec: str,
    sandbox: Sandbox,
    reload_command: str = "",
    say: Callable[[str], None] = lambda text: None,
) -> MeasuringDevice:
    """The device that ``spec`` names; DeviceError for a recording that cannot be read.

    ``reload_command`` runs once when the golden kernel fails on an OpenCL device; ``say``
    hears what became of it.
    """
    if is_null(spec):
        return NullDevice()
    if spec.startswith(RECORDED):
        return open_recording(Path(spec.removeprefix(RECORDED)))
    of_owner = dict(os.environ)
    _keep_for_children()
    # A child in its sandbox cannot write what tells OpenCL of a driver.
    drivers.provide_drivers()
    os.environ[VARIABLE] = sandbox.to_text()
    # In its sandbox the child cannot keep what it finds out about the processor.
    probed_target.find_out(device_name(spec).target)
    recovery = (lambda: say(run_reload(reload_command, of_owner))) if reload_command else None
    return MeasuringChild(
        spec,
        recovery=recovery,
        start_timeout_s=_START_TIMEOUT_S,
        probe_timeout_s=_START_TIMEOUT_S,
        child_module=SANDBOXED_CHILD,
    )


def _keep_for_children() -> None:
    """Leave children what drivers look for, and of that nothing that looks like a secret."""
    for name, value in list(os.environ.items()):
        wanted = _FOR_CHILDREN.fullmatch(name) and not _SECRET.search(name)
        if not wanted or _CREDENTIALS_IN_ADDRESS.search(value):
            del os.environ[name]


def run_reload(command: str, environment: Mapping[str, str] | None = None) -> str:
    """Run the owner's command without a shell, in an environment (None: this process's own); what
    happened, as a sentence."""
    shown = f"reload command {command!r}"
    try:
        ended = subprocess.run(
            shlex.split(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=_RELOAD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{shown} was ended after {_RELOAD_TIMEOUT_S:.0f} s"
    except (OSError, ValueError) as error:
        return f"{shown} did not start: {error}"
    return f"{shown} ended with {ended.returncode}"
