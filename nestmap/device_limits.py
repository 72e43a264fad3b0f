"""A device by name: a shipped profile, or one that is here."""

from __future__ import annotations

from dataclasses import replace

from mapper.device_profile import HALF_SUFFIX, DeviceProfile
from mapper.errors import DeviceError, Problem
from mapper.profiles import load_profile, profile_names

DEFAULT_DEVICE = "pocl"


def is_live_spec(name: str) -> bool:
    """Whether the name asks for a device that is here, in the words of worker.devices."""
    name = name.removesuffix(HALF_SUFFIX)
    return name in ("host", "") or name.startswith("opencl:") or name.isdecimal()


def limits_of_device(name: str = DEFAULT_DEVICE) -> DeviceProfile:
    """The limits of a shipped profile (``mali-g72``), or of a device (``host``, ``opencl:…``).

    Profiles need no OpenCL and go first; ``opencl:pocl/`` is the PoCL that is here. With
    ``+half`` behind the name 16-bit floats may be stored on it even if it cannot compute with
    them. Raises DeviceError that lists what there is.
    """
    plain = name.removesuffix(HALF_SUFFIX)
    if plain in profile_names():
        return replace(load_profile(plain), half_storage=plain != name)
    if not is_live_spec(name):
        raise DeviceError(
            Problem(
                "device",
                "there is no such device or profile",
                repr(name),
                f"{', '.join(profile_names())} (profiles); host, opencl:<platform>/<device>, "
                "opencl:<index> (devices)",
                "nestmap devices",
            )
        )
    # Loads the OpenCL library, which is only wanted here.
    from worker.devices.opencl import find_device, profile_of

    return profile_of(find_device(name))
