"""A failing case made small: the same generator, run again by Hypothesis on fewer choices."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, Problem
from nestmap.soundness.campaign import Failure
from nestmap.soundness.cases import (
    BrokenPromise,
    Case,
    Discarded,
    Draft,
    case_to_json,
    cases_of,
    draw_draft,
)
from nestmap.soundness.judges import Fault, Judge

if TYPE_CHECKING:
    from hypothesis import strategies as st

#: Mappings tried of each smaller program: the one that fails may be any of its mappings.
_TRIED = 8


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest failing case that was found, in the form of a failure's ``value``."""

    value: dict[str, Any]
    faults: tuple[Fault, ...]


def require_hypothesis() -> None:
    """InputError with a remedy where Hypothesis is not installed."""
    try:
        import hypothesis  # noqa: F401
    except ImportError as error:
        raise InputError(
            Problem(
                "hypothesis",
                "is not installed, and failures are shrunk with it",
                remedy="pip install 'nestmap[dev]', or --no-shrink",
            )
        ) from error


def shrink(
    failure: Failure,
    device: DeviceProfile,
    judges: Mapping[str, Judge],
    *,
    limit_s: float = 300.0,
) -> Shrunk | None:
    """The smallest case with the same sort of fault, or None if the fault does not come again.

    Only the judges that found something are asked. ``limit_s`` bounds the search; what was
    smallest then is the answer. Raises InputError without Hypothesis.
    """
    require_hypothesis()
    from hypothesis import HealthCheck, Phase, find, settings
    from hypothesis import strategies as st
    from hypothesis.errors import NoSuchExample

    search = _Search(failure, device, judges, time.monotonic() + limit_s)

    @st.composite
    def drafts(draw: st.DrawFn) -> Draft:
        return draw_draft(_HypothesisSource(draw))

    try:
        find(
            drafts(),
            search.fails,
            settings=settings(
                database=_recorded(failure.choices),
                phases=(Phase.reuse, Phase.shrink),
                deadline=None,
                suppress_health_check=(
                    HealthCheck.too_slow,
                    HealthCheck.data_too_large,
                    HealthCheck.filter_too_much,
                ),
            ),
            database_key=b"failing case",
        )
    except NoSuchExample:
        return None
    return search.smallest


class _HypothesisSource:
    """Integers from Hypothesis, one choice each, as a recorded list has them."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def integer(self, high: int) -> int:
        from hypothesis import strategies as st

        return self._draw(st.integers(0, high))


def _recorded(choices: Sequence[int]) -> Any:
    """A database that holds one example: these choices, for Hypothesis to begin with."""
    from hypothesis.database import ExampleDatabase, choices_to_bytes

    class Recorded(ExampleDatabase):
        def fetch(self, key: bytes) -> Iterable[bytes]:
            # Further keys are asked for what else Hypothesis would remember.
            return [choices_to_bytes(tuple(choices))] if key == b"failing case" else []

        def save(self, key: bytes, value: bytes) -> None:
            """Nothing is remembered: one run is no concern of the next."""

        def delete(self, key: bytes, value: bytes) -> None:
            """Nothing is remembered."""

    return Recorded()


class _Search:
    """What Hypothesis asks of each draft, and the last draft that failed."""

    def __init__(
        self,
        failure: Failure,
        device: DeviceProfile,
        judges: Mapping[str, Judge],
        deadline: float,
    ) -> None:
        names = [fault["judge"] for fault in failure.faults]
        self._wanted = {fault["judge"]: fault["kind"] for fault in failure.faults}
        self._judges = {name: judge for name, judge in judges.items() if name in names}
        self._device = device
        self._deadline = deadline
        self.smallest: Shrunk | None = None

    def fails(self, draft: Draft) -> bool:
        """Whether a mapping of this draft has one of the faults."""
        if time.monotonic() > self._deadline:
            return False
        try:
            cases = cases_of(draft, self._device, _TRIED)
        except BrokenPromise as error:
            if self._wanted.get("nestmap") != error.kind:
                return False
            fault = Fault("nestmap", error.kind, error.message)
            self.smallest = Shrunk(error.value, (fault,))
            return True
        if isinstance(cases, Discarded):
            return False
        verdicts = {name: judge.judge(cases) for name, judge in self._judges.items()}
        failing = [
            (case, faults)
            for position, case in enumerate(cases)
            if (faults := self._same_faults(v[position] for v in verdicts.values()))
        ]
        if not failing:
            return False
        case, faults = min(failing, key=lambda pair: _complexity(pair[0]))
        self.smallest = Shrunk(case_to_json(case), faults)
        return True

    def _same_faults(self, found: Iterable[Fault | None]) -> tuple[Fault, ...]:
        faults = tuple(fault for fault in found if fault is not None)
        same = any(self._wanted[fault.judge] == fault.kind for fault in faults)
        return faults if same else ()


def _complexity(case: Case) -> tuple[int, int]:
    """Few parallel or vectorised maps and few work-items are the simpler."""
    values = list(case.assignment.values())
    return sum(value != 0 for value in values), sum(values)
