"""What the host does to run a candidate: buffers, kernels and launches, with exact memory.

JSON: ``nestmap/host-plan/2``. ``/1``, where all buffers are of 32-bit floats and say nothing of
it, is read as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mapper.elements import Element
from mapper.errors import InputError, Problem

PLAN_SCHEMA = "nestmap/host-plan/2"
FIRST_PLAN_SCHEMA = "nestmap/host-plan/1"


class BufferRole(StrEnum):
    """Why a global buffer exists."""

    INPUT = "input"
    INTERMEDIATE = "intermediate"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class PlannedBuffer:
    """One OpenCL global buffer, of elements ``dtype``.

    ``shape`` is the row-major logical shape as the program declares it; ``bytes`` is
    what is allocated (at least dtype.bytes * prod(shape); intermediates that are expanded
    per thread are larger). ``first_use`` and ``last_use`` are launch indices.
    """

    name: str
    role: BufferRole
    bytes: int
    shape: tuple[int, ...]
    first_use: int
    last_use: int
    dtype: Element = Element.FLOAT32


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch; ``arguments`` are buffer names in the kernel's parameter order.

    Sizes are work-items a dimension, always three of each; ``global_size`` is a
    multiple of ``local_size``. ``local_bytes`` and ``private_bytes`` are what the
    generator planned (a work-group's local memory, a work-item's private arrays). A
    ``prepared`` launch reads constants only (weights): it runs once, not for every image.
    """

    kernel: str
    global_size: tuple[int, int, int]
    local_size: tuple[int, int, int]
    arguments: tuple[str, ...]
    local_bytes: int = 0
    private_bytes: int = 0
    prepared: bool = False


@dataclass(frozen=True, slots=True)
class HostPlan:
    """The whole of what runs: one OpenCL source, its buffers and the launches in order."""

    source: str
    buffers: tuple[PlannedBuffer, ...]
    launches: tuple[Launch, ...]

    @property
    def memory_bytes(self) -> int:
        """Global memory that the plan allocates: inputs, intermediates and outputs together."""
        return sum(buffer.bytes for buffer in self.buffers)

    @property
    def extra_bytes(self) -> int:
        """Global memory beyond inputs and outputs."""
        return sum(b.bytes for b in self.buffers if b.role is BufferRole.INTERMEDIATE)

    @property
    def prepared_bytes(self) -> int:
        """Of the extra bytes those that prepared launches write for later: packed weights."""
        made = {name for launch in self.launches if launch.prepared for name in launch.arguments}
        return sum(
            b.bytes for b in self.buffers if b.name in made and b.role is BufferRole.INTERMEDIATE
        )

    @property
    def scratch_bytes(self) -> int:
        """Global memory that a run needs beside inputs, prepared buffers and outputs."""
        return self.extra_bytes - self.prepared_bytes

    def to_json(self) -> dict[str, Any]:
        """A plain JSON value; :meth:`from_json` reads it back."""
        return {
            "schema": PLAN_SCHEMA,
            "source": self.source,
            "memory_bytes": self.memory_bytes,
            "buffers": [
                {
                    "name": b.name,
                    "role": b.role.value,
                    "bytes": b.bytes,
                    "shape": list(b.shape),
                    "first_use": b.first_use,
                    "last_use": b.last_use,
                    "dtype": b.dtype.value,
                }
                for b in self.buffers
            ],
            "launches": [
                {
                    "kernel": launch.kernel,
                    "global_size": list(launch.global_size),
                    "local_size": list(launch.local_size),
                    "arguments": list(launch.arguments),
                    "local_bytes": launch.local_bytes,
                    "private_bytes": launch.private_bytes,
                    "prepared": launch.prepared,
                }
                for launch in self.launches
            ],
        }

    @staticmethod
    def from_json(value: dict[str, Any]) -> HostPlan:
        """Read what :meth:`to_json` wrote, now or in the first schema.

        Trusted data: it never comes from a user. InputError for any other schema.
        """
        schema = value.get("schema", FIRST_PLAN_SCHEMA)
        if schema not in (PLAN_SCHEMA, FIRST_PLAN_SCHEMA):
            allowed = f"{PLAN_SCHEMA} or {FIRST_PLAN_SCHEMA}"
            raise InputError(Problem("/schema", "unknown schema", repr(schema)[:80], allowed))
        return HostPlan(
            source=value["source"],
            buffers=tuple(
                PlannedBuffer(
                    b["name"],
                    BufferRole(b["role"]),
                    b["bytes"],
                    tuple(b["shape"]),
                    b["first_use"],
                    b["last_use"],
                    Element(b.get("dtype", Element.FLOAT32)),
                )
                for b in value["buffers"]
            ),
            launches=tuple(
                Launch(
                    launch["kernel"],
                    tuple(launch["global_size"]),
                    tuple(launch["local_size"]),
                    tuple(launch["arguments"]),
                    launch["local_bytes"],
                    launch["private_bytes"],
                    launch.get("prepared", False),
                )
                for launch in value["launches"]
            ),
        )
