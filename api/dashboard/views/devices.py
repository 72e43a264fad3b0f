"""Boards as pages show them: how they are, what they do, and whether they are still there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from api.dashboard.formats import SPACE
from db.farm.overviews import HeldJob
from db.farm.records import Board
from db.farm.states import BoardState

#: An agent calls every few seconds, in a long poll of 50 s at most; then it is missing.
STALE_S = 120.0


@dataclass(frozen=True, slots=True)
class DeviceLine:
    """A board in a list. ``tone`` is a class of base.css, ``state`` what stands in the badge;
    ``status`` what changes from minute to minute, in words."""

    board: Board
    title: str
    tone: str
    state: str
    is_stale: bool
    status: str
    held: tuple[HeldJob, ...]


def device_lines(
    boards: Sequence[Board], held: Sequence[HeldJob], now: datetime
) -> list[DeviceLine]:
    """The lines of these boards, in their order."""
    return [
        device_line(board, [job for job in held if job.board_id == board.id], now)
        for board in boards
    ]


def device_line(board: Board, held: Sequence[HeldJob], now: datetime) -> DeviceLine:
    """The line of a board with the jobs that it holds."""
    stale = board.last_seen is None or (now - board.last_seen).total_seconds() > STALE_S
    tone, state = "good", "measuring" if held else "ready"
    if stale:
        tone, state = "warn", "never seen" if board.last_seen is None else "not heard of"
    if board.state is BoardState.QUARANTINED:
        tone, state = "warn", "quarantined"
    if board.state is BoardState.DISABLED:
        tone, state = "bad", "disabled"
    return DeviceLine(
        board, title_of(board), tone, state, stale, health_text(board.health), tuple(held)
    )


def title_of(board: Board) -> str:
    """What the device calls itself, where its agent has said so, else its name here."""
    return str(board.facts.get("device.name") or board.name)


def health_text(health: Mapping[str, Any]) -> str:
    """Temperature, clocks and load in a line: ``61.0 °C · cpu 1.80 GHz · load 0.4``."""
    parts: list[str] = []
    for name, value in health.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        if name == "temperature_c":
            parts.insert(0, f"{value:.1f}{SPACE}°C")
        elif name.endswith("_clock_mhz"):
            parts.append(f"{name.removesuffix('_clock_mhz')} {value / 1000:.2f}{SPACE}GHz")
        elif name == "load":
            parts.append(f"load {value:.2f}")
    if health.get("throttled"):
        parts.append("throttled")
    return " · ".join(parts[:6])
