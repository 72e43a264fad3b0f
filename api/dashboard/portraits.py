"""What a solver child says of candidates, kept for a while: the answer to a question that does
not change is not derived anew each time that somebody looks."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request

from api.dashboard.candidates import Candidate
from api.problems import ProblemError
from api.services import Services
from api.solver_pool import Answer, SolverProblem
from api.solving import as_problem
from db.canonical import canonical_json, content_hash

#: So long a page waits for the solver; what is not there then is left out, with a word.
PORTRAIT_S = 20.0
#: Answers that are kept, and their texts together; one of a large layer is about a megabyte.
MOST_KEPT = 64
MOST_KEPT_BYTES = 32 * 2**20


@dataclass(frozen=True, slots=True)
class Portrait:
    """What a solver child says of a candidate, or why it says nothing: ``end`` or ``problem`` is
    None."""

    constraints: list[dict[str, Any]]
    end: dict[str, Any] | None
    problem: ProblemError | None


class KeptAnswers:
    """The answers that were last used, as JSON: their bytes are known, and who gets one cannot
    change it for the next."""

    def __init__(self, most: int = MOST_KEPT, most_bytes: int = MOST_KEPT_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._texts: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0

    def get(self, key: str) -> Answer | None:
        """The answer of a key, which is thereby the last used one."""
        text = self._texts.get(key)
        if text is None:
            return None
        self._texts.move_to_end(key)
        items, end = json.loads(text)
        return Answer(items, end)

    def put(self, key: str, answer: Answer) -> None:
        """Keep an answer; those that were not used for longest leave for it. One that is larger
        than all that may be kept is not."""
        text = json.dumps([answer.items, answer.end], separators=(",", ":")).encode()
        self._bytes -= len(self._texts.pop(key, b""))
        if len(text) > self._most_bytes:
            return
        self._texts[key] = text
        self._bytes += len(text)
        while len(self._texts) > self._most or self._bytes > self._most_bytes:
            _, oldest = self._texts.popitem(last=False)
            self._bytes -= len(oldest)


class Portraits:
    """Portraits of candidates for the pages of one application."""

    def __init__(self) -> None:
        self._kept = KeptAnswers()

    async def of(self, services: Services, candidate: Candidate) -> Portrait:
        """Loops, memory, plan and constraints, within :data:`PORTRAIT_S`; a page does without.

        Kept under all that the solver is asked: the same candidate is another question on
        another device. A refusal is not kept, since the next time there may be time.
        """
        question = {"kind": "portrait", **candidate.about(), "mapping": candidate.chosen}
        key = content_hash(canonical_json(question))
        answer = self._kept.get(key)
        if answer is None:
            try:
                answer = await services.solving.ask(question, services.solving.limits(PORTRAIT_S))
            except SolverProblem as error:
                return Portrait([], None, as_problem(error))
            self._kept.put(key, answer)
        return Portrait(answer.items, answer.end, None)


def install(app: FastAPI) -> None:
    """Give an application its portraits."""
    app.state.portraits = Portraits()


async def portraits_of(request: Request) -> Portraits:
    """The portraits of the application that a request came to."""
    return request.app.state.portraits


PortraitsOf = Annotated[Portraits, Depends(portraits_of)]
