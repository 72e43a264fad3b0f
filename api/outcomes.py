"""Outcomes as boards send them, as values of ``mapper.measurement``."""

from __future__ import annotations

from api.schemas.leases import (
    CrashOutcome,
    OutcomeBody,
    RefusedOutcome,
    TimedOutcome,
    TimeoutOutcome,
    WrongOutcome,
)
from mapper.measurement import (
    CompileError,
    Crash,
    Outcome,
    ResourceError,
    Timed,
    Timeout,
    Wrong,
)


def outcome_of(body: OutcomeBody) -> Outcome:
    """The outcome that a checked body states; NaN and infinities come by name."""
    match body:
        case TimedOutcome():
            detail = body.detail
            return Timed(
                trials_ns=tuple(body.trials_ns),
                max_relative_error=float(detail.max_relative_error),
                compile_ms=float(detail.compile_ms),
                facts=dict(detail.facts),
                spans_ns=tuple(body.spans_ns),
            )
        case WrongOutcome():
            return Wrong(
                max_relative_error=float(body.detail.max_relative_error),
                first_bad_index=tuple(body.detail.first_bad_index),
                message=body.detail.message,
            )
        case RefusedOutcome(kind="compile-error"):
            return CompileError(body.detail.message)
        case RefusedOutcome():
            return ResourceError(body.detail.message)
        case TimeoutOutcome():
            return Timeout(body.detail.after_s)
        case CrashOutcome():
            return Crash(body.detail.exit_code, body.detail.message)
