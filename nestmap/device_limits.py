"""A device by name: a shipped profile, or one that is here."""

from __future__ import annotations

from dataclasses import replace

from mapper.cpu_targets import vector_bits, vector_widths
from mapper.device_profile import NO_TARGET, DeviceProfile, device_name
from mapper.errors import DeviceError, Problem
from mapper.profiles import load_profile, profile_names, with_registers
from worker.devices.names import is_null

DEFAULT_DEVICE = "pocl"


def limits_of_device(name: str = DEFAULT_DEVICE) -> DeviceProfile:
    """The limits of a shipped profile (``mali-g72``), or of a device that is here, by any of its
    names (:mod:`worker.devices.names`).

    Profiles need no OpenCL and go first; ``opencl:pocl/`` is the PoCL that is here. With
    ``+half`` behind the name 16-bit floats may be stored on it even if it cannot compute with
    them. ``pocl@haswell``: as it is where PoCL compiles for that target. Raises DeviceError that
    lists what there is.
    """
    asked = device_name(name)
    if asked.plain in profile_names():
        profile = replace(load_profile(asked.plain), half_storage=asked.half)
        return _compiled_for(profile, asked.target) if asked.target else profile
    if is_null(name):
        from worker.devices.null import NULL_PROFILE

        return replace(NULL_PROFILE, half_storage=asked.half)
    # Loads the OpenCL library, which is only wanted here.
    from worker.devices.opencl import find_device, profile_of

    return profile_of(find_device(name))


def _compiled_for(profile: DeviceProfile, target: str) -> DeviceProfile:
    """A shipped profile for another target of its compiler: one that `nestmap tune` takes too."""
    # It knows processors; nothing of OpenCL is loaded.
    from worker.devices.pocl_target import NATIVE, TARGETS, cpu_flags, selectable

    if profile.target and target == NATIVE:
        return profile
    bits = vector_bits(target) if target in TARGETS else None
    if not profile.target or bits is None:
        wanted = "nothing behind @" if target == NO_TARGET else repr(target)
        raise DeviceError(
            Problem(
                "device",
                f"{profile.name} has no such target",
                f"{wanted}; this processor executes {', '.join(selectable(cpu_flags()))}"
                if profile.target
                else wanted,
                f"{', '.join((NATIVE, *TARGETS))}; as in pocl@haswell"
                if profile.target
                else "none: only PoCL lets choose",
                "nestmap devices",
            )
        )
    return with_registers(
        replace(
            profile,
            vector_widths=vector_widths(bits),
            target=target,
            vector_registers=None,
            vector_bytes=None,
        )
    )
