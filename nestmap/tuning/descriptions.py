"""What is known of a candidate without running it: numbers of its plan, counts, a guess."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mapper.cost.analytic import Counts, DeviceConstants, counts_of, predicted_ms
from mapper.device_profile import DeviceProfile
from mapper.host_plan import HostPlan
from mapper.pipeline import Subject, choices_of
from nestmap.tuning.candidates import Candidate
from nestmap.tuning.proxy import guessed_cost

#: Of no device in particular.
CONSTANTS = DeviceConstants()
#: Counts of nothing would have no logarithm.
_LEAST_MS = 1e-9


@dataclass(frozen=True, slots=True)
class Description:
    """``plan`` holds logarithms of work-items, work-groups, local, private and intermediate bytes,
    and launches; ``counts`` are the analytic model's; ``proxy`` is the logarithm of
    :func:`~nestmap.tuning.proxy.guessed_cost`; ``parameters`` are the tuning parameters by name."""

    plan: tuple[float, ...]
    counts: Counts
    proxy: float
    parameters: tuple[tuple[str, int], ...] = ()

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """In order."""
        return tuple(name for name, _ in self.parameters)

    def predicted(self, constants: DeviceConstants = CONSTANTS) -> float:
        """The logarithm of the analytic model's time in ms."""
        return float(np.log(max(predicted_ms(self.counts, constants), _LEAST_MS)))

    def guess(self, constants: DeviceConstants = CONSTANTS) -> float:
        """How slow it is likely to be: the proxy's cost times the analytic model's time, as a
        logarithm. The proxy ranks well on processors and badly on GPUs, the model the other way
        round; their product never ranks as badly (`nestmap bench search guesses`)."""
        return self.proxy + self.predicted(constants)

    def columns(self, constants: DeviceConstants = CONSTANTS) -> tuple[float, ...]:
        """Features for a model: :data:`COLUMNS` numbers, the guess last."""
        return (*self.plan, self.predicted(constants), self.guess(constants))


COLUMNS = 8
#: The analytic model's place in them.
PREDICTED = -2


def described(subject: Subject, candidate: Candidate, device: DeviceProfile) -> Description:
    """Describe a candidate that was generated from a subject."""
    program = subject.require_program()
    choices = choices_of(candidate.assignment)
    codes = {str(name): code for name, code in choices.codes.items()}
    counts = counts_of(program, choices.parameters, codes, candidate.plan, device)
    proxy = float(np.log(guessed_cost(program, candidate, device)))
    parameters = {str(name): int(value) for name, value in choices.parameters.items()}
    return Description(
        _plan_columns(candidate.plan),
        counts,
        proxy,
        tuple(sorted(parameters.items())),
    )


def _plan_columns(plan: HostPlan) -> tuple[float, ...]:
    """Logarithms of a plan's work-items, work-groups, bytes of each kind, and its launches."""
    items = sum(float(np.prod(launch.global_size)) for launch in plan.launches)
    groups = sum(
        float(np.prod(launch.global_size)) / float(np.prod(launch.local_size))
        for launch in plan.launches
    )
    local = max(launch.local_bytes for launch in plan.launches)
    private = max(launch.private_bytes for launch in plan.launches)
    sizes = (items, groups, local, private, plan.extra_bytes, len(plan.launches))
    return tuple(float(np.log2(1 + size)) for size in sizes)
