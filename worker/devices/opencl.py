"""OpenCL devices: finding them, naming them and reading their limits.

Names choose a device (:mod:`worker.devices.names`).
"""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mapper.cpu_targets import vector_bits, vector_bits_of_flags, vector_widths
from mapper.device_profile import HALF_SUFFIX, NO_TARGET, VECTOR_WIDTHS, DeviceProfile, device_name
from mapper.errors import DeviceError, Problem
from mapper.profiles import profile_names, with_registers
from worker.devices import drivers, names, pocl_target, probed_target
from worker.devices.linker import provide_linker, require_linker
from worker.devices.pinning import pin_pocl_threads

#: No OpenCL query says how much private memory a work-item may use.
CPU_PRIVATE_BYTES = 16_384
#: PoCL has the private memory of a whole work-group on the stack of the thread that runs it:
#: groups of so many work-items, which share three quarters of it (mapper/profiles/pocl.toml).
POCL_WORK_GROUP = 256
#: What glibc gives a thread where the stack has no limit.
_UNLIMITED_STACK_BYTES = 2 << 20
#: 255 32-bit registers a thread, what every NVIDIA GPU since Kepler (2012) allows.
NVIDIA_PRIVATE_BYTES = 1020
# NVIDIA's driver adds 4 bytes of its own to some kernels: 49,152 declared were 49,156 used.
NVIDIA_OWN_LOCAL_BYTES = 16
#: A work-item of a GPU loads and stores up to 128 bits at once ("CUDA C++ Programming Guide",
#: "Device Memory Accesses"; "Arm Mali GPU Best Practices": 128-bit loads); longer vectors are
#: several loads, and make spaces larger for nothing.
_GPU_LOAD_BITS = 128
#: 64 32-bit registers a thread (Arm Bifrost and Valhall); also the cautious default of
#: GPUs that are not known.
GPU_PRIVATE_BYTES = 256
_REGISTER_BYTES = 4
#: CL_LOCAL and CL_GLOBAL, as CL_DEVICE_LOCAL_MEM_TYPE may be.
_LOCAL_MEMORY: dict[int | None, str] = {1: "own", 2: "ordinary"}


@dataclass(frozen=True, slots=True)
class OpenClDevice:
    """One OpenCL device as the driver describes it; ``handle`` is pyopencl's object.

    ``target`` is the processor that its compiler generates code for, where there is a choice and
    it is known; ``asked_target`` what its spec says of that.
    """

    index: int
    platform_name: str
    platform_version: str
    device_name: str
    device_version: str
    driver_version: str
    kind: str
    handle: Any = field(repr=False, compare=False)
    half_storage: bool = False
    target: str = ""
    asked_target: str = ""

    @property
    def is_pocl(self) -> bool:
        """Whether the platform is PoCL, the OpenCL implementation for host CPUs."""
        return "pocl" in self.platform_version.lower()

    @property
    def spec(self) -> str:
        """A spec string that finds this device again, unless another has the same names."""
        suffix = f"@{self.asked_target}" if self.asked_target else ""
        suffix += HALF_SUFFIX if self.half_storage else ""
        return f"opencl:{self.platform_name}/{self.device_name}{suffix}"

    def __str__(self) -> str:
        return (
            f"{self.index}: {self.platform_name} ({self.platform_version.strip()}) / "
            f"{self.device_name} (driver {self.driver_version})"
        )


def list_devices(target: str = "") -> tuple[OpenClDevice, ...]:
    """Every OpenCL device in the driver's order.

    ``target`` is what PoCL shall compile for, if this process loads it now.
    Raises DeviceError when pyopencl is missing or the loader finds no platform at all.
    """
    drivers.provide_drivers()
    try:
        import pyopencl as cl
    except (ImportError, OSError) as error:
        raise DeviceError(
            Problem(
                "device",
                "pyopencl cannot be imported",
                found=str(error),
                remedy="pip install 'pyopencl[pocl]'",
            )
        ) from error
    # Drivers and their loader read their settings when they are first asked for anything.
    pin_pocl_threads()
    provide_linker()
    probed_target.prepare(target)
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        # ocl-icd reports "no platform" as an error, not as an empty list.
        raise DeviceError(
            Problem(
                "device",
                "the OpenCL loader finds no platform",
                found=str(error),
                remedy=drivers.remedy(),
            )
        ) from error
    found: list[OpenClDevice] = []
    for platform in platforms:
        try:
            handles = platform.get_devices()
        except cl.Error:
            # A platform whose driver is installed but whose device is not there.
            continue
        for handle in handles:
            found.append(
                OpenClDevice(
                    index=len(found),
                    platform_name=platform.name.strip(),
                    platform_version=platform.version.strip(),
                    device_name=handle.name.strip(),
                    device_version=handle.version.strip(),
                    driver_version=handle.driver_version.strip(),
                    kind=_kind(cl, handle),
                    handle=handle,
                    target=_told_target(platform, handle),
                )
            )
    return tuple(found)


def _told_target(platform: Any, handle: Any) -> str:
    """The target that a driver tells of; empty where it tells of none, or is not to be believed."""
    if "intel" in platform.name.lower():
        # Its runtime takes the widest unless told; what it takes it does not say.
        return os.environ.get("CL_CONFIG_CPU_TARGET_ARCH", "")
    if pocl_target.is_known_build(platform.version):
        return ""
    return pocl_target.target_in(handle.version)


def _kind(cl: Any, handle: Any) -> str:
    if handle.type & cl.device_type.GPU:
        return "gpu"
    if handle.type & cl.device_type.CPU:
        return "cpu"
    return "accelerator"


def select_device(spec: str, devices: tuple[OpenClDevice, ...]) -> OpenClDevice:
    """The device that ``spec`` names; the first in the driver's order where several fit.

    Raises DeviceError that lists what is there.
    """
    found = names.matches(spec, devices)
    if found:
        return found[0]
    known = "; there is a profile of this name, but no such device here" if (
        names.is_profile(spec)
    ) else ""  # fmt: skip
    raise DeviceError(
        Problem(
            "device",
            f"no OpenCL device fits {spec!r}{known}",
            found="; ".join(f"{d}, --device {d.index}" for d in devices) or "no device",
            allowed=f"{names.VOCABULARY}; profiles, where nothing is measured: "
            + ", ".join(profile_names()),
            remedy=f"nestmap devices; {drivers.remedy()}",
        )
    )


def find_device(spec: str = "host") -> OpenClDevice:
    """List the devices and select one, with the target that kernels are compiled for there.

    Nothing of the driver is changed: :func:`open_device` does that. Raises DeviceError.
    """
    asked = device_name(spec)
    devices = list_devices(asked.target)
    device = select_device(asked.plain, devices)
    if "portable computing language" in device.platform_name.lower():
        require_linker()
    return with_target(replace(device, half_storage=asked.half), asked.target, devices)


def open_device(spec: str = "host") -> OpenClDevice:
    """As :func:`find_device`, for a process that builds kernels: PoCL is told its target."""
    device = find_device(spec)
    if pocl_target.is_known_build(device.platform_version):
        choice = probed_target.resolve(device.asked_target)
        pocl_target.apply(choice, device.handle.int_ptr)
    return device


def with_target(
    device: OpenClDevice, wanted: str = "", present: Sequence[OpenClDevice] = ()
) -> OpenClDevice:
    """A device with the target that kernels are compiled for; ``wanted`` may choose one.

    DeviceError where nobody can choose, and where no target of PoCL's works here: it names those
    of the devices ``present`` that may be taken instead.
    """
    if pocl_target.is_known_build(device.platform_version):
        others = [d.spec for d in present if not pocl_target.is_known_build(d.platform_version)]
        choice = probed_target.resolve(wanted, others)
        return replace(device, target=choice.target, asked_target=wanted)
    if wanted and wanted != pocl_target.NATIVE:
        raise DeviceError(
            Problem(
                "device",
                "its compiler's target cannot be chosen",
                f"@{wanted.removeprefix(NO_TARGET)} behind {device.platform_name} "
                f"{device.platform_version}",
                f"PoCL of PyPI ({' with '.join(pocl_target.KNOWN_BUILD)})",
                "leave @… away",
            )
        )
    return device


def target_note(device: OpenClDevice) -> str:
    """How a device came to its target, where that is known: a sentence; else empty."""
    if not device.target:
        return ""
    if pocl_target.is_known_build(device.platform_version):
        return probed_target.resolve(device.asked_target).note
    return "as its driver says"


def _private_bytes(device: OpenClDevice) -> int:
    if device.kind == "cpu":
        return CPU_PRIVATE_BYTES
    if "nvidia" in device.platform_name.lower():
        return NVIDIA_PRIVATE_BYTES
    return GPU_PRIVATE_BYTES


def _local_bytes(device: OpenClDevice) -> int:
    """Local memory that a kernel may declare."""
    bytes_ = int(device.handle.local_mem_size)
    if "nvidia" in device.platform_name.lower():
        return bytes_ - NVIDIA_OWN_LOCAL_BYTES
    return bytes_


def _lanes(device: OpenClDevice) -> int | None:
    """Work-items that are issued together, where an extension of the driver tells."""
    if device.kind == "cpu":
        return 1
    return _asked(device, "warp_size_nv") or _asked(device, "wavefront_width_amd")


def _registers(device: OpenClDevice) -> int | None:
    """Registers of a work-item where they are known; a processor's are those of its target."""
    known = "nvidia" in device.platform_name.lower() and device.kind != "cpu"
    return NVIDIA_PRIVATE_BYTES // _REGISTER_BYTES if known else None


def _local_memory(device: OpenClDevice) -> str:
    """What local memory is, as the driver says."""
    return _LOCAL_MEMORY.get(_asked(device, "local_mem_type"), "")


def _asked(device: OpenClDevice, name: str) -> int | None:
    """A number that the driver tells; None where it does not know the question."""
    import pyopencl as cl

    try:
        return int(getattr(device.handle, name))
    except (AttributeError, cl.Error):
        return None


def _vector_widths(device: OpenClDevice) -> tuple[int, ...]:
    """Vectors that fit a register of what the driver compiles for, where it is an x86-64; on a GPU
    those that one load brings."""
    if device.kind == "gpu":
        return vector_widths(_GPU_LOAD_BITS)
    if device.kind != "cpu":
        return VECTOR_WIDTHS
    flags = pocl_target.cpu_flags()
    bits = vector_bits(device.target) or (vector_bits_of_flags(flags) if flags else None)
    return VECTOR_WIDTHS if bits is None else vector_widths(bits)


def _stack_bytes() -> int:
    """The stack of a thread in a process that is started as this one was."""
    soft, _ = resource.getrlimit(resource.RLIMIT_STACK)
    return _UNLIMITED_STACK_BYTES if soft == resource.RLIM_INFINITY else soft


def profile_of(device: OpenClDevice) -> DeviceProfile:
    """The device's limits as its driver reports them (private memory: see above)."""
    handle = device.handle
    sizes = [int(size) for size in handle.max_work_item_sizes][:3]
    sizes += [1] * (3 - len(sizes))
    group = int(handle.max_work_group_size)
    stacked = None
    if device.is_pocl and device.kind == "cpu":
        group = min(group, POCL_WORK_GROUP)
        sizes = [min(size, group) for size in sizes]
        stacked = max(1, _stack_bytes() * 3 // 4 // POCL_WORK_GROUP)
    profile = DeviceProfile(
        name=device.device_name,
        max_work_group_size=group,
        max_work_item_sizes=(sizes[0], sizes[1], sizes[2]),
        local_bytes=_local_bytes(device),
        private_bytes=_private_bytes(device),
        max_alloc_bytes=int(handle.max_mem_alloc_size),
        global_bytes=int(handle.global_mem_size),
        compute_units=int(handle.max_compute_units),
        half_precision="cl_khr_fp16" in handle.extensions.split(),
        vector_widths=_vector_widths(device),
        half_storage=device.half_storage,
        target=device.target,
        kernel_private_bytes=stacked,
        source=f"driver of {device.platform_name} {device.platform_version}",
        lanes=_lanes(device),
        vector_registers=_registers(device),
        vector_bytes=_REGISTER_BYTES if _registers(device) else None,
        local_memory=_local_memory(device),
    )
    return with_registers(profile)
