"""The names of devices: one vocabulary for every command, board and bench.

A name is one of

- ``host``: the default device of this machine;
- ``pocl``: the preferred PoCL;
- an index in the driver's order, as ``nestmap devices`` lists it: ``0``, or ``opencl:0``;
- words of the platform's and the device's name: ``nvidia``, ``h200``, ``mali-g72``;
- ``opencl:<platform>/<device>``: parts of both names, either of which may be empty;
- ``null``: no device, times are invented.

Behind it ``@haswell`` has PoCL compile for that processor, and ``+half`` stores 16-bit floats
(:func:`mapper.device_profile.device_name`). What needs no device (``solve``, ``kernel``) takes the
shipped profiles first, whose names (``h200``) say as words which devices they are of.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol, TypeVar

from mapper.device_profile import device_name
from mapper.profiles import profile_names

HOST, POCL, NULL = "host", "pocl", "null"
VOCABULARY = (
    "host, pocl, an index, words of its name (nvidia, h200), opencl:<platform>/<device>; "
    "behind PoCL's @<target>, as in pocl@haswell; null for invented times"
)
_PREFIX = "opencl:"
#: Shorter parts of words fit anything.
_LEAST_PART = 3


class Named(Protocol):
    """What a device is known by."""

    @property
    def index(self) -> int: ...
    @property
    def platform_name(self) -> str: ...
    @property
    def platform_version(self) -> str: ...
    @property
    def device_name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def is_pocl(self) -> bool: ...


D = TypeVar("D", bound=Named)


def is_null(name: str) -> bool:
    """Whether times are to be invented."""
    return device_name(name).plain.strip() == NULL


def is_profile(name: str) -> bool:
    """Whether the name is a shipped profile's, with or without a target."""
    return device_name(name).plain.strip() in profile_names()


def is_relative(name: str) -> bool:
    """Whether it depends on this machine which device is meant."""
    plain = device_name(name).plain.strip().removeprefix(_PREFIX)
    return plain == HOST or plain.isdecimal()


def matches(name: str, devices: Sequence[D]) -> list[D]:
    """The devices that a name without suffixes fits, the preferred one first."""
    name = name.strip()
    if name == POCL:
        return _pocls(devices)
    if name == HOST:
        # A second driver for the processor beside PoCL does not change what the word means.
        pocls = _pocls(devices)
        return pocls if pocls and all(d.kind == "cpu" for d in devices) else list(devices)
    index = name.removeprefix(_PREFIX).strip()
    if index.isdecimal():
        return [d for d in devices if d.index == int(index)]
    return [d for d in devices if fits(name, d.platform_name, d.platform_version, d.device_name)]


def fits(name: str, platform: str, version: str, device: str) -> bool:
    """Whether a name (neither ``host`` nor an index) is of a device that these texts describe, here
    or in a store."""
    name, device = name.strip().lower(), device.lower()
    platform = f"{platform} {version}".lower()
    if name.startswith(_PREFIX):
        wanted = name.removeprefix(_PREFIX).strip()
        first, _, second = wanted.partition("/")
        return bool(wanted) and first in platform and second in device
    if name == POCL:
        return "pocl" in platform
    words = _words(name)
    if not words:
        return False
    known = _words(f"{platform} {device}")
    whole = f"{platform} {device}"
    return words <= known or (len(name) >= _LEAST_PART and name in whole)


def _pocls(devices: Sequence[D]) -> list[D]:
    return sorted((d for d in devices if d.is_pocl), key=_pocl_rank, reverse=True)


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", text.lower()))


def _pocl_rank(device: Named) -> tuple[bool, list[int]]:
    """Larger is preferred: PyPI's build before a distribution's, then the newest.

    Debian and Ubuntu mark their builds (``PoCL 3.1+debian``); PyPI's comes with the
    installation, so results stay comparable from machine to machine.
    """
    version = re.search(r"pocl\s+([\d.]+)", device.platform_version, re.IGNORECASE)
    numbers = [int(part) for part in version.group(1).split(".") if part] if version else [0]
    return (re.search(r"\+(debian|ubuntu)", device.platform_version) is None, numbers)
