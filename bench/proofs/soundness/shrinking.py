"""A failing case made small: the same generator, run again by Hypothesis on fewer choices."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.proofs.soundness.campaign import Failure
from bench.proofs.soundness.cases import (
    BrokenPromise,
    Case,
    Discarded,
    Draft,
    case_to_json,
    cases_of,
    draw_draft,
)
from bench.proofs.soundness.judges import Fault, Judge
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, Problem

if TYPE_CHECKING:
    from hypothesis import strategies as st

#: Mappings tried of each smaller program: the one that fails may be any of its mappings.
_TRIED = 4


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


def draft_strategy() -> st.SearchStrategy[Draft]:
    """Hypothesis's strategy that draws what a campaign draws."""
    from hypothesis import strategies as st

    @st.composite
    def drafts(draw: st.DrawFn) -> Draft:
        return draw_draft(_HypothesisSource(draw))

    return drafts()


def shrink(
    failure: Failure,
    device: DeviceProfile,
    judges: Mapping[str, Judge],
    *,
    limit_s: float = 300.0,
) -> Shrunk | None:
    """The smallest case with the same sort of fault, or None if the fault does not come again.

    Only the judge that found it first is asked. ``limit_s`` bounds the search; what was
    smallest then is the answer. Raises InputError without Hypothesis.
    """
    require_hypothesis()
    from hypothesis import HealthCheck, Phase, find, settings
    from hypothesis.errors import Flaky, NoSuchExample

    search = _Search(failure, device, judges, time.monotonic() + limit_s)
    with suppress(NoSuchExample, Flaky):
        # Flaky: what failed does not fail any more when the time is over.
        find(
            draft_strategy(),
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
            # Further keys are asked for what else Hypothesis would remember. One choice too
            # many: what is replayed exactly, Hypothesis takes for shrunk already.
            return [choices_to_bytes((*choices, 0))] if key == b"failing case" else []

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
        self._judge, self._kind = failure.faults[0]["judge"], failure.faults[0]["kind"]
        self._judges = judges
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
            if (self._judge, self._kind) != ("nestmap", error.kind):
                return False
            fault = Fault("nestmap", error.kind, error.message)
            self.smallest = Shrunk(error.value, (fault,))
            return True
        if isinstance(cases, Discarded) or self._judge not in self._judges:
            return False
        verdicts = self._judges[self._judge].judge(cases)
        failing = [
            (case, fault)
            for case, fault in zip(cases, verdicts, strict=True)
            if fault is not None and fault.kind == self._kind
        ]
        if not failing:
            return False
        case, fault = min(failing, key=lambda pair: _complexity(pair[0]))
        self.smallest = Shrunk(case_to_json(case), (fault,))
        return True


def _complexity(case: Case) -> tuple[int, int]:
    """Few parallel or vectorised maps and few work-items are the simpler."""
    values = list(case.assignment.values())
    return sum(value != 0 for value in values), sum(values)
