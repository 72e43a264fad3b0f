"""What a solver child may use, and the refusals that come of it, in the API's words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mapper.errors import Problem

_FIELDS = ("message", "found", "allowed", "remedy")
_MAX_PROBLEMS = 50
#: What a refusal may carry beside its errors.
_MORE = ("conflict", "violations", "minimal")


@dataclass(frozen=True, slots=True)
class SolverLimits:
    """What one request may use: address space, processor time and wall-clock time."""

    memory_bytes: int = 2 * 2**30
    cpu_s: float = 120.0
    wall_s: float = 60.0

    def to_json(self) -> dict[str, float]:
        """As a child reads them."""
        return {"memory_bytes": self.memory_bytes, "cpu_s": self.cpu_s, "wall_s": self.wall_s}


class SolverProblem(Exception):
    """A request that a solver did not answer.

    ``slug`` names a type of ``api.problems``; ``reason`` says which limit (``memory``, ``time``,
    ``cpu``) or ``crash``, ``start``, ``full``, ``closed``, else it is empty; ``more`` are members
    such as ``conflict``.
    """

    def __init__(
        self,
        slug: str,
        detail: str,
        errors: Iterable[Problem] = (),
        reason: str = "",
        more: Mapping[str, Any] | None = None,
    ) -> None:
        self.slug = slug
        self.detail = detail
        self.errors = tuple(errors)
        self.reason = reason
        self.more = dict(more or {})
        super().__init__(f"{slug}: {detail}")

    def placed(self, paths: Mapping[str, str]) -> SolverProblem:
        """The same, with pointers into what was sent here where the child was sent another."""
        errors = [replace(error, path=paths.get(error.path, error.path)) for error in self.errors]
        return SolverProblem(self.slug, self.detail, errors, self.reason, self.more)


def limit_problem(which: str, limits: SolverLimits) -> SolverProblem:
    """A request that needed more than it was allowed."""
    allowed = {
        "memory": f"{limits.memory_bytes / 2**20:.0f} MiB",
        "cpu": f"{limits.cpu_s:g} s of processor time",
        "time": f"{limits.wall_s:g} s",
    }[which]
    problem = Problem(
        "", f"the request needs more {which} than it may use", "", allowed,
        "pin or forbid values, or ask for less",
    )  # fmt: skip
    return SolverProblem("solver-limit", f"more than {allowed}", [problem], which)


def child_problem(reason: str, message: str, found: str = "") -> SolverProblem:
    """A child that died or misbehaved; it says nothing of what the child wrote."""
    return SolverProblem("solver-limit", message, [Problem("", message, found)], reason)


def pool_problem(reason: str, message: str) -> SolverProblem:
    """No child can take the request now."""
    return SolverProblem("unavailable", message, (), reason)


def own_queue_full(most: int) -> SolverProblem:
    """Whoever asks has enough questions in the queue."""
    detail = f"{most} requests with this token wait for a solver"
    return SolverProblem("too-many-requests", detail, (), "full")


def problem_of_reply(reply: Mapping[str, Any]) -> SolverProblem:
    """The ``problem`` of a child as an error; whatever is not as promised is left out."""
    listed = reply.get("problems")
    errors = [
        Problem(str(p.get("field", "")), *(str(p.get(name, "")) for name in _FIELDS))
        for p in (listed if isinstance(listed, list) else [])[:_MAX_PROBLEMS]
        if isinstance(p, dict)
    ]
    more = {name: reply[name] for name in _MORE if name in reply}
    detail = str(reply.get("detail", ""))
    return SolverProblem(
        str(reply.get("type", "internal")), detail, errors, str(reply.get("reason", "")), more
    )
