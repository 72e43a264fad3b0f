"""Why the agent ends, as exit codes, and what a server's answer means for a call."""

from __future__ import annotations

from enum import IntEnum


class AgentExit(IntEnum):
    """How the agent ended, as documented in docs/workers.md."""

    OK = 0
    NO_JOB = 1
    BAD_OPTIONS = 2
    DEVICE = 3
    STATE_FOLDER = 4
    SERVER = 5
    UNEXPECTED = 70
    TOKEN_REFUSED = 77


class AgentFailure(Exception):
    """The agent cannot go on; ``exit_code`` says to whoever started it what to do."""

    def __init__(self, message: str, exit_code: AgentExit) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class TryAgain(Exception):
    """A call did not get an answer that means anything: no network, 5xx, 429, nonsense.

    ``retry_after_s`` is what the server asked for; None where it did not.
    """

    def __init__(self, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_s = retry_after_s


class Refused(Exception):
    """The server understood the call and will not do it: asking again changes nothing."""

    def __init__(self, status: int, kind: str, detail: str) -> None:
        super().__init__(f"{status} {kind}: {detail}" if kind else f"{status}: {detail}")
        self.status = status
        self.kind = kind
        self.detail = detail
