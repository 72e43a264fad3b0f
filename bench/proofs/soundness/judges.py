"""Who decides whether a case is right: Oclgrind and PoCL, each against the interpreter.

Oclgrind, a simulator, sees data races, reads of what was never written, barriers that not all
work-items reach and accesses out of bounds, also where the result happens to be right. PoCL
is a compiler and a device: it finds what a simulator runs and a compiler takes amiss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, Self

from bench.proofs.soundness.cases import Case
from mapper.measurement import Crash, Outcome, Timed, outcome_detail, outcome_kind
from worker.measuring import MeasuringChild
from worker.measuring import Protocol as Runs
from worker.oclgrind import Simulation, check_many

_ONCE = Runs(warmup=0, repetitions=1, max_repetitions=1, slow_after_ms=0.0, budget_ms=0.0)
#: Long for programs of a few hundred elements, so that a busy machine is no failure.
_TIMEOUT_S = 60.0
_SHOWN_FINDINGS = 3
#: PoCL's plainest way to make a work-group of work-items, and nothing optimised.
_PLAIN_WORK_GROUPS = {
    "POCL_WORK_GROUP_METHOD": "workitemloops",
    "POCL_EXTRA_BUILD_FLAGS": "-cl-opt-disable",
}
COMPILER_CRASH = "right, where its compiler does not optimise"


class JudgeName(StrEnum):
    """A judge that can be asked for."""

    OCLGRIND = "oclgrind"
    POCL = "pocl"


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a case: ``judge`` found ``kind``; ``message`` is for people."""

    judge: str
    kind: str
    message: str
    #: The judge itself has failed, and shown in another way that the case is right.
    of_judge: bool = False

    @property
    def label(self) -> str:
        """Names the sort of fault."""
        return f"{self.judge}: {self.kind}"

    def to_json(self) -> dict[str, str]:
        """For files of results."""
        return {"judge": self.judge, "kind": self.kind, "message": self.message}

    @staticmethod
    def of(value: Mapping[str, str]) -> Fault:
        """The fault of :meth:`to_json`."""
        return Fault(value["judge"], value["kind"], value["message"])


class Judge(Protocol):
    """Judges cases, several at a time."""

    def judge(self, cases: Sequence[Case]) -> list[Fault | None]:
        """What is wrong with each; None for a case that is right."""
        ...


class OclgrindJudge:
    """Runs cases in the simulator; one start for all of them."""

    def judge(self, cases: Sequence[Case]) -> list[Fault | None]:
        """What is wrong with each; None for a case that is right."""
        reports = check_many(
            [Simulation(c.plan, c.inputs, c.expected, c.tolerance) for c in cases],
            timeout_s=_TIMEOUT_S,
            # Harmless on every known device, and yet a race by OpenCL's memory model.
            uniform_writes=True,
        )
        return [
            None
            if report.ok
            else Fault(
                JudgeName.OCLGRIND.value,
                ", ".join(sorted(kind.value for kind in report.kinds)),
                "\n\n".join(report.messages[:_SHOWN_FINDINGS]),
            )
            for report in reports
        ]


class PoclJudge:
    """Runs cases on the machine's OpenCL device in a child; a context manager."""

    def __init__(self, device: str = "host") -> None:
        self._device = device
        self._child = MeasuringChild(device)
        self._plain: MeasuringChild | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._child.close()
        if self._plain is not None:
            self._plain.close()

    def facts(self) -> dict[str, str]:
        """Driver, versions and machine."""
        return self._child.facts()

    def judge(self, cases: Sequence[Case]) -> list[Fault | None]:
        """What is wrong with each; None for a case that is right."""
        return [self._one(case) for case in cases]

    def _one(self, case: Case) -> Fault | None:
        outcome = _outcome(self._child, case)
        if isinstance(outcome, Timed):
            return None
        detail = outcome_detail(outcome)
        message = str(detail.get("message", detail))
        if isinstance(outcome, Crash) and self._is_right_without_vectors(case):
            return Fault(JudgeName.POCL.value, COMPILER_CRASH, message, of_judge=True)
        return Fault(JudgeName.POCL.value, outcome_kind(outcome), message)

    def _is_right_without_vectors(self, case: Case) -> bool:
        """Whether the same source runs right where PoCL does not optimise.

        LLVM dies of some loops, and writes where a guard forbids it in others (PoCL 3.0-rc2 with
        LLVM 14: docs/soundness.md).
        """
        if self._plain is None:
            self._plain = MeasuringChild(self._device, environment=_PLAIN_WORK_GROUPS)
        return isinstance(_outcome(self._plain, case), Timed)


def _outcome(child: MeasuringChild, case: Case) -> Outcome:
    child.upload_workload("case", case.inputs, case.expected)
    return child.measure(
        case.plan,
        workload="case",
        tolerance=case.tolerance,
        protocol=_ONCE,
        timeout_s=_TIMEOUT_S,
    )
