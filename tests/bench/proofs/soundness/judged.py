"""A judge that runs nothing, for campaigns that are tested themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.proofs.soundness.cases import Case
from bench.proofs.soundness.judges import Fault


class FakeJudge:
    """Finds ``fault`` wherever ``wrong`` says so; ``seen`` counts the cases."""

    def __init__(self, wrong: Callable[[Case], bool] = lambda case: False) -> None:
        self._wrong = wrong
        self.seen = 0

    def judge(self, cases: Sequence[Case]) -> list[Fault | None]:
        self.seen += len(cases)
        fault = Fault("fake", "made up", "wrong because a test says so")
        return [fault if self._wrong(case) else None for case in cases]


def has_barrier(case: Case) -> bool:
    return "barrier(" in case.plan.source
