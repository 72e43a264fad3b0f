"""Where the analytic strategy starts in a space that is too large to be listed.

Random candidates and their children find what is predicted to be fast step by step. CP-SAT, with
the prediction as its objective, looks through the whole space at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mapper.constraint_rules.predicate import Variable
from mapper.cost.analytic import DeviceConstants
from mapper.device_profile import DeviceProfile
from mapper.solver.limits import Watch
from nestmap.predicting import best_of_space
from nestmap.tuning.strategy import Source

#: Of the solver's deterministic time (about seconds), so that one seed gives one search.
EFFORT = 40.0
#: As many as a strategy asks for before it hears much.
COUNT = 8

#: Candidates of a source, by a device, constants, a seed and limits: what is worth a look.
Start = Callable[
    [Source, DeviceProfile, DeviceConstants, int, Watch], Sequence[Mapping[Variable, int]]
]


def best_predicted_start(
    source: Source, device: DeviceProfile, constants: DeviceConstants, seed: int, watch: Watch
) -> list[Mapping[Variable, int]]:
    """The candidates that the solver predicts to be fastest within :data:`EFFORT`.

    LimitError and Cancelled as ``watch`` says, UnsatisfiableError where there are no candidates.
    """
    subject, space = source.subject, source.space
    best = best_of_space(subject, space, device, COUNT, constants, seed, watch, EFFORT)
    return [entry.assignment for entry in best.found]
