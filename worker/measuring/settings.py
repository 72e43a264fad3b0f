"""How a candidate is judged and timed: plain values that travel to the measuring child."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from mapper.elements import Element
from mapper.errors import InputError, Problem

#: Distance from 1.0 to the next 32-bit float.
FLOAT32_EPSILON = 2.0**-23
#: The most by which rounding to a 16-bit float changes a number, relative to it.
FLOAT16_ROUNDING = 2.0**-11
#: Distance from 1.0 to the next number of what is computed in; sums of integers are exact.
_EPSILONS = {Element.FLOAT32: FLOAT32_EPSILON, Element.FLOAT16: 2 * FLOAT16_ROUNDING}
#: Of a candidate: as many trials as the service takes.
MAX_RUNS = 100_000
MAX_MS = 86_400_000


def _refuse(field: str, message: str, found: object) -> InputError:
    return InputError(Problem(field, message, found=repr(found)[:80]))


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far an output may be from the reference.

    An element is right if ``|out - ref| <= eps * factor * sqrt(accumulation_length) * scale``
    with ``eps`` that of 32-bit floats and ``scale`` the larger of ``|ref|`` and the root mean
    square of the whole reference. The rounding error of a sum of n terms of random sign grows
    as sqrt(n), while leaving out a single term costs about 1/sqrt(n): for every layer size in
    use the bound lies orders of magnitude below the smallest real mistake.

    Where results are rounded to 16-bit floats ``half_roundings`` times on their way, each time
    may cost half a unit in the last of their 11 places more. (Numbers below 6.1e-5, which have
    fewer places, are small beside the root mean square of any useful reference.)

    ``dtype`` is what sums are computed in: ``eps`` is that of 16-bit floats where these are, and 0
    of integers, whose output has to be the very same.

    Raises InputError for an unknown type, a length below one, a factor that is not positive and
    finite, or a negative number of roundings.
    """

    accumulation_length: int = 1
    factor: float = 8.0
    half_roundings: int = 0
    dtype: str = Element.FLOAT32

    def __post_init__(self) -> None:
        if self.dtype not in set(Element):
            raise _refuse("tolerance.dtype", f"must be of {', '.join(Element)}", self.dtype)
        if self.accumulation_length < 1:
            raise _refuse(
                "tolerance.accumulation_length", "must be at least 1", self.accumulation_length
            )
        if not (math.isfinite(self.factor) and self.factor > 0):
            raise _refuse("tolerance.factor", "must be positive and finite", self.factor)
        if self.half_roundings < 0:
            raise _refuse("tolerance.half_roundings", "must not be negative", self.half_roundings)

    @property
    def relative(self) -> float:
        """Allowed error relative to the element's scale."""
        eps = _EPSILONS.get(Element(self.dtype), 0.0)
        summed = eps * self.factor * math.sqrt(self.accumulation_length)
        rounded = FLOAT16_ROUNDING * self.half_roundings
        # What is rounded is itself off by what was summed.
        return summed + rounded * (1.0 + summed)

    def to_json(self) -> dict[str, Any]:
        """A plain JSON value; ``Tolerance(**value)`` reads it back."""
        value = asdict(self)
        if self.dtype == Element.FLOAT32:
            del value["dtype"]  # agents of before do not know it
        return value


@dataclass(frozen=True, slots=True)
class Protocol:
    """How often a candidate runs after the verified run.

    ``repetitions`` timed runs follow ``warmup`` untimed ones. A candidate whose single run
    takes longer than ``slow_after_ms`` gets no warm-up (the verified run was one) and only
    as many repetitions as fit into ``budget_ms``, at least ``min_repetitions``. A fast one is
    repeated until its runs fill ``fill_ms``, at most ``max_repetitions`` times, because a
    launch of a few microseconds says little by itself. Of what takes longer than ``cutoff_ms``
    (0: nothing does) the verified run is the only one. All times are of the launches, summed.

    Raises InputError for counts that contradict each other, and for what no run can take.
    """

    warmup: int = 2
    repetitions: int = 10
    min_repetitions: int = 1
    max_repetitions: int = 50
    slow_after_ms: float = 200.0
    budget_ms: float = 2000.0
    fill_ms: float = 5.0
    cutoff_ms: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.warmup <= MAX_RUNS:
            raise _refuse("protocol.warmup", f"must be 0 to {MAX_RUNS}", self.warmup)
        if self.max_repetitions > MAX_RUNS:
            raise _refuse(
                "protocol.max_repetitions", f"must be at most {MAX_RUNS}", self.max_repetitions
            )
        if not 1 <= self.min_repetitions <= self.repetitions <= self.max_repetitions:
            raise InputError(
                Problem(
                    "protocol.repetitions",
                    "repetition counts contradict each other",
                    found=f"min {self.min_repetitions}, wanted {self.repetitions}, "
                    f"max {self.max_repetitions}",
                    allowed="1 <= min_repetitions <= repetitions <= max_repetitions",
                )
            )
        for field in ("slow_after_ms", "budget_ms", "fill_ms", "cutoff_ms"):
            value = getattr(self, field)
            if not 0 <= value <= MAX_MS:
                raise _refuse(f"protocol.{field}", f"must be 0 to {MAX_MS} (a day)", value)

    def is_slow(self, single_run_ms: float) -> bool:
        """Whether a candidate with this single run time is measured sparingly."""
        return single_run_ms > self.slow_after_ms

    def is_cut_off(self, single_run_ms: float) -> bool:
        """Whether a candidate with this single run time is not worth another."""
        return 0 < self.cutoff_ms < single_run_ms

    def timed_runs(self, single_run_ms: float) -> int:
        """The number of timed repetitions for a candidate with this single run time."""
        # A clock that ticks coarsely may report zero for a tiny kernel.
        single_run_ms = max(single_run_ms, 1e-6)
        if self.is_slow(single_run_ms):
            fits = int(self.budget_ms / single_run_ms)
            return max(self.min_repetitions, min(fits, self.repetitions))
        fills = math.ceil(self.fill_ms / single_run_ms)
        return max(self.repetitions, min(fills, self.max_repetitions))

    def to_json(self) -> dict[str, Any]:
        """A plain JSON value; ``Protocol(**value)`` reads it back."""
        value = asdict(self)
        if not self.cutoff_ms:
            del value["cutoff_ms"]  # agents of before do not know it
        return value


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds that each stage of a candidate may take; a child that passes one is killed.

    *building*: the program is built, inputs are copied, and a driver that compiles at a kernel's
    first launch runs one work-group of each, none for longer than ``running_s``. *waiting*: others
    have the device; it counts for nothing else, and who passes it finds no device. *running*: from
    the first run to the last, with what is copied between them, which may take a tenth of a second
    where candidates are quick. *judging*: whole outputs against the reference.

    Raises InputError for what is not positive.
    """

    building_s: float = math.inf
    waiting_s: float = 600.0
    running_s: float = math.inf
    judging_s: float = math.inf

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value > 0:
                raise _refuse(f"deadlines.{name}", "must be positive", value)

    def of(self, stage: str) -> float:
        """The seconds of a stage by its name; KeyError for what is no stage."""
        return float(asdict(self)[f"{stage}_s"])


#: What a measuring child says before it does it, in this order; *waiting* only where it must.
STAGES = ("waiting", "building", "waiting", "running", "judging")

DEFAULT_TOLERANCE = Tolerance()
DEFAULT_PROTOCOL = Protocol()
NO_DEADLINES = Deadlines()
