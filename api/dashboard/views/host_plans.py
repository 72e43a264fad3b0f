"""A host plan as a timeline: which buffer is alive while which kernel runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any


@dataclass(frozen=True, slots=True)
class LaunchView:
    """A kernel launch; sizes are work-items a dimension, ``groups`` work-groups."""

    number: int
    kernel: str
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    groups: int
    work_items: int
    arguments: tuple[str, ...]
    local_bytes: int
    private_bytes: int
    prepared: bool


@dataclass(frozen=True, slots=True)
class BufferView:
    """A global buffer with its life: first and last launch that use it, from 1."""

    name: str
    role: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class BufferLife:
    """A buffer with its life as a bar, in percent of the plan's launches."""

    buffer: BufferView
    start: float
    length: float


@dataclass(frozen=True, slots=True)
class HostPlanView:
    """Launches in order, buffers with their lives, and the bytes that are in use during each
    launch; all of them are allocated from the first to the last."""

    launches: tuple[LaunchView, ...]
    lives: tuple[BufferLife, ...]
    alive: tuple[int, ...]
    memory_bytes: int


def host_plan(plan: Mapping[str, Any]) -> HostPlanView:
    """The view of a plan's JSON (``nestmap/host-plan/1`` or ``/2``)."""
    launches = tuple(_launch(number, value) for number, value in enumerate(plan["launches"], 1))
    buffers = tuple(_buffer(value) for value in plan["buffers"])
    column = 100 / max(1, len(launches))
    lives = tuple(
        BufferLife(b, round((b.first - 1) * column, 3), round((b.last - b.first + 1) * column, 3))
        for b in buffers
    )
    alive = tuple(
        sum(b.bytes for b in buffers if b.first <= launch.number <= b.last) for launch in launches
    )
    return HostPlanView(launches, lives, alive, sum(b.bytes for b in buffers))


def _launch(number: int, value: Mapping[str, Any]) -> LaunchView:
    sizes, local = _sizes(value["global_size"]), _sizes(value["local_size"])
    return LaunchView(
        number,
        value["kernel"],
        sizes,
        local,
        prod(sizes) // max(1, prod(local)),
        prod(sizes),
        tuple(value["arguments"]),
        value["local_bytes"],
        value["private_bytes"],
        value.get("prepared", False),
    )


def _buffer(value: Mapping[str, Any]) -> BufferView:
    return BufferView(
        value["name"],
        value["role"],
        value.get("dtype", "float32"),
        _sizes(value["shape"]),
        value["bytes"],
        value["first_use"] + 1,
        value["last_use"] + 1,
    )


def _sizes(values: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(value) for value in values)
