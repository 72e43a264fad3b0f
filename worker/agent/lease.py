"""A leased job as the agent holds it, read from the server's answer within bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from worker.agent.bounded import NotAcceptable, field_of, identifier, is_sha256, seconds

#: An attempt may not hold a board for longer, whatever the server says.
LONGEST_JOB_S = 6 * 3600.0
_MOST_ARTIFACTS = 256


@dataclass(frozen=True, slots=True)
class Lease:
    """One claim of one job. ``token`` fences it; ``deadline_s`` is what it may take in all."""

    job: str
    attempt: int
    token: str = field(repr=False)
    lease_s: float
    deadline_s: float
    payload: dict[str, Any]

    @staticmethod
    def of(answer: dict[str, Any]) -> Lease:
        """Read an answer; fields that are not known are left alone. Raises NotAcceptable."""
        attempt = field_of(answer, "attempt", int)
        if not 0 <= attempt < 2**31:
            raise NotAcceptable(f"attempt: {attempt}")
        token = field_of(answer, "lease_token", str)
        if not 0 < len(token) <= 500:
            raise NotAcceptable("lease_token: its length is not what the protocol says")
        return Lease(
            identifier(answer, "job"),
            attempt,
            token,
            seconds(answer, "lease_s", 0.5, 3600.0),
            seconds(answer, "deadline_s", 1.0, LONGEST_JOB_S),
            field_of(answer, "payload", dict),
        )

    def artifacts(self) -> list[str]:
        """Hashes of everything that the payload refers to; raises NotAcceptable.

        Whatever stands under the name ``artifact`` is one, wherever it is.
        """
        found = dict.fromkeys(_artifacts_in(self.payload))
        if len(found) > _MOST_ARTIFACTS:
            raise NotAcceptable(f"{len(found)} artifacts; allowed: {_MOST_ARTIFACTS}")
        return list(found)


def _artifacts_in(value: object) -> Iterator[str]:
    stack = [value]
    while stack:
        current = stack.pop()
        if isinstance(current, dict):
            for name, inner in current.items():
                if name != "artifact":
                    stack.append(inner)
                elif is_sha256(inner):
                    yield inner
                else:
                    raise NotAcceptable(f"artifact: {ascii(inner)[:80]} is no SHA-256")
        elif isinstance(current, list):
            stack.extend(current)
