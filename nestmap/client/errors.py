"""The one error of the client: the service refused, cannot be reached, or answers nonsense."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mapper.errors import NestmapError, Problem

#: Kinds that no service sends: it cannot be reached, answers something else than it promises,
#: took too long, or an operation was cancelled by somebody.
UNREACHABLE = "unreachable"
BAD_ANSWER = "bad-answer"
TIMED_OUT = "timed-out"
CANCELLED = "cancelled"


class ServiceError(NestmapError):
    """What kept the service from answering.

    ``kind`` is the last part of the ``type`` of RFC 9457 (``invalid-input``; the service lists
    them under ``/problems``), or one of this module's. ``problems`` has each field with its JSON
    pointer as ``path``, what was found and what is allowed; :attr:`path`, :attr:`found` and
    :attr:`allowed` are those of the first. ``status`` is 0 where there was no HTTP answer;
    ``instance`` is the request's id in the service's log; ``more`` are further members, such as
    ``conflict`` and ``violations``. ``unsent``: the request cannot have reached the service.
    """

    def __init__(
        self,
        kind: str,
        problems: Problem | Iterable[Problem],
        *,
        status: int = 0,
        title: str = "",
        instance: str = "",
        more: Mapping[str, Any] | None = None,
        unsent: bool = False,
    ) -> None:
        super().__init__(problems)
        self.kind = kind
        self.status = status
        self.title = title
        self.instance = instance
        self.more = dict(more or {})
        self.unsent = unsent

    @property
    def is_lost_connection(self) -> bool:
        """Whether there was no answer, or half of one: what asks may ask again."""
        return self.kind == UNREACHABLE

    @property
    def path(self) -> str:
        """Where the first problem is."""
        return self.problems[0].path if self.problems else ""

    @property
    def found(self) -> str:
        """What the first problem found."""
        return self.problems[0].found if self.problems else ""

    @property
    def allowed(self) -> str:
        """What the first problem allows."""
        return self.problems[0].allowed if self.problems else ""


def bad_answer(message: str, found: str = "", allowed: str = "", path: str = "") -> ServiceError:
    """The service answers something else than its document says."""
    return ServiceError(BAD_ANSWER, Problem(path, message, found[:200], allowed))


def unreachable(message: str, found: str = "", *, unsent: bool = False) -> ServiceError:
    """There was no answer, or no more of it."""
    return ServiceError(UNREACHABLE, Problem("", message, found[:200]), unsent=unsent)
