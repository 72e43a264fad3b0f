"""Outcomes to columns and back, exactly."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from mapper.errors import StoreError
from mapper.measurement import (
    CompileError,
    Crash,
    Outcome,
    ResourceError,
    Timed,
    Timeout,
    Wrong,
    outcome_detail,
    outcome_kind,
)


@dataclass(frozen=True, slots=True)
class OutcomeColumns:
    """An outcome as the columns of ``measurements`` hold it."""

    kind: str
    detail: dict[str, Any]
    trials: bytes | None
    spans: bytes | None
    time_ms: float | None


def pack_trials(trials_ns: tuple[int, ...]) -> bytes:
    """Trials or spans as little-endian 64-bit integers, 8 bytes each."""
    try:
        return struct.pack(f"<{len(trials_ns)}q", *trials_ns)
    except struct.error as error:
        raise StoreError(f"trials are not 64-bit integers: {error}") from error


def unpack_trials(packed: bytes) -> tuple[int, ...]:
    """The inverse of :func:`pack_trials`."""
    if len(packed) % 8:
        raise StoreError(f"{len(packed)} bytes of trials are not a multiple of 8")
    return struct.unpack(f"<{len(packed) // 8}q", packed)


def encode_outcome(outcome: Outcome) -> OutcomeColumns:
    """The columns of an outcome."""
    detail, kind = outcome_detail(outcome), outcome_kind(outcome)
    if not isinstance(outcome, Timed):
        return OutcomeColumns(kind, detail, None, None, None)
    if not outcome.trials_ns:
        raise StoreError("a timed outcome without trials has no time")
    if len(outcome.spans_ns) not in (0, len(outcome.trials_ns)):
        raise StoreError(f"{len(outcome.spans_ns)} spans of {len(outcome.trials_ns)} trials")
    spans = pack_trials(outcome.spans_ns) if outcome.spans_ns else None
    return OutcomeColumns(kind, detail, pack_trials(outcome.trials_ns), spans, outcome.time_ms)


def decode_outcome(
    kind: str, detail: dict[str, Any], trials: bytes | None, spans: bytes | None
) -> Outcome:
    """The inverse of :func:`encode_outcome`."""
    try:
        return _decode(kind, detail, trials, spans)
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"not the columns of a {kind!r} outcome: {error!r}") from error


def _decode(
    kind: str, detail: dict[str, Any], trials: bytes | None, spans: bytes | None
) -> Outcome:
    match kind:
        case "timed" if trials:
            return Timed(
                trials_ns=unpack_trials(trials),
                max_relative_error=float(detail["max_relative_error"]),
                compile_ms=float(detail["compile_ms"]),
                facts=dict(detail["facts"]),
                spans_ns=unpack_trials(spans or b""),
            )
        case "wrong":
            return Wrong(
                max_relative_error=float(detail["max_relative_error"]),
                first_bad_index=tuple(detail["first_bad_index"]),
                message=detail["message"],
            )
        case "compile-error":
            return CompileError(detail["message"])
        case "resource-error":
            return ResourceError(detail["message"])
        case "timeout":
            return Timeout(float(detail["after_s"]))
        case "crash":
            return Crash(detail["exit_code"], detail["message"])
        case _:
            raise ValueError("unknown kind, or timed without trials")
