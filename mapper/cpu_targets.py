"""Names of x86-64 processors that compilers generate code for, and the vectors these have.

LLVM calls them targets (``llc -mcpu=…``). Only what decides about kernels is kept: how wide a
vector register is, and how many of them there are.
"""

from __future__ import annotations

from collections.abc import Iterable

from mapper.device_profile import VECTOR_WIDTHS

#: Names that LLVM has, and Intel's CPU runtime (the last of a row), by the bits of a vector
#: register. These decide how a vector is passed by value, so code of one row and functions of
#: another do not fit together.
_NAMES: dict[int, tuple[str, ...]] = {
    512: (
        "skylake-avx512",
        "cascadelake",
        "cooperlake",
        "cannonlake",
        "icelake-client",
        "icelake-server",
        "rocketlake",
        "tigerlake",
        "sapphirerapids",
        "x86-64-v4",
        "znver4",
        "znver5",
        "skx",
    ),
    256: (
        "haswell",
        "broadwell",
        "skylake",
        "alderlake",
        "znver1",
        "znver2",
        "znver3",
        "bdver1",
        "bdver2",
        "bdver3",
        "bdver4",
        "btver2",
        "ivybridge",
        "sandybridge",
        "x86-64-v3",
        "core-avx2",
        "corei7-avx",
    ),
    128: (
        "penryn",
        "nehalem",
        "westmere",
        "silvermont",
        "goldmont",
        "goldmont-plus",
        "tremont",
        "core2",
        "bonnell",
        "nocona",
        "btver1",
        "amdfam10",
        "athlon64",
        "k8",
        "k8-sse3",
        "x86-64",
        "x86-64-v2",
    ),
}
_BITS = {name: bits for bits, names in _NAMES.items() for name in names}
_FLOAT_BITS = 32


def vector_bits(target: str) -> int | None:
    """Bits of a vector register of a target; None for a name that is not known."""
    return _BITS.get(target)


def vector_bits_of_flags(flags: Iterable[str]) -> int:
    """Bits of a vector register of a processor with these flags, as /proc/cpuinfo calls them."""
    present = frozenset(flags)
    if {"avx512f", "avx512vl"} <= present:
        return 512
    return 256 if "avx" in present else 128


def vector_widths(bits: int) -> tuple[int, ...]:
    """The OpenCL widths of a float vector that fit into one register of so many bits.

    A wider one takes two registers of half as many (docs/kernel-bench.md).
    """
    return tuple(width for width in VECTOR_WIDTHS if width * _FLOAT_BITS <= bits)


def vector_registers(widths: Iterable[int]) -> int:
    """Vector registers of an x86-64 processor whose widest float vector is the widest of these.

    Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, sections 10.2, 14.1 and
    15.1: 16 of SSE and of AVX in 64-bit mode, 32 of AVX-512.
    """
    return 32 if max(widths) * _FLOAT_BITS >= 512 else 16
