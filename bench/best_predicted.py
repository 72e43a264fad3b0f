"""What the analytic strategy asks for first, beside what CP-SAT finds to be predicted fastest.

    python bench/best_predicted.py vgg16/7 [EFFORT]

For some variants of a layer on two profiles, without a device: predicted times of the first eight
candidates of the strategy (random ones and children of the best predicted), of the best eight that
the solver finds within an effort (deterministic time, 24 by default), the bound that it proves,
and the processor time of each. Seed 0, the constants of no device in particular.
"""

from __future__ import annotations

import sys
import time

from mapper.constraint_rules.predicate import Assignment
from mapper.constraint_rules.rule import Mode
from mapper.cost.best_predicted import best_predicted
from mapper.cost.relaxed_objective import RelaxedTime, add_relaxed_time
from mapper.profiles import load_profile
from mapper.search.goal import Fastest
from mapper.solver.model import Model
from nestmap.predicting import predicted_time_ms
from nestmap.requests import Request, request_about
from nestmap.subjects import load_subject
from nestmap.tuning.descriptions import CONSTANTS
from nestmap.tuning.guided import GuidedStrategy
from nestmap.tuning.strategy import Source

VARIANTS = ("direct", "partial", "tiled", "blocked")
DEVICES = ("pocl", "h200")
FIRST = 8


def _predict(request: Request, assignment: Assignment) -> float | None:
    return predicted_time_ms(request.subject, assignment, request.device, CONSTANTS)


def _asked(request: Request) -> list[float | None]:
    source = Source(0, request.subject, request.space, request.subject.hash())
    strategy = GuidedStrategy([source], request.device, 0, goal=Fastest(), analytic=True)
    asked = [strategy.ask() for _ in range(FIRST)]
    return [_predict(request, candidate.assignment) for candidate in asked if candidate]


def _compare(layer: str, variant: str, device: str, effort: float) -> None:
    request = request_about(load_subject(layer, variant), load_profile(device), Mode.STRICT)

    def relax(model: Model, reference_ms: float) -> RelaxedTime:
        program = request.subject.require_program()
        return add_relaxed_time(model, program, request.device, CONSTANTS, reference_ms)

    started = time.process_time()
    asked = [found for found in _asked(request) if found is not None]
    between = time.process_time()
    best = best_predicted(
        request.space, relax, lambda found: _predict(request, found), FIRST, effort=effort
    )
    ended = time.process_time()
    print(
        f"{variant:8} {device:5} strategy {min(asked):9.3f} to {max(asked):9.3f} ms "
        f"({between - started:5.1f} s), solver {best.found[0].time_ms:9.3f} to "
        f"{best.found[-1].time_ms:9.3f} ms, none below {best.bound_ms:9.3f} ms "
        f"({ended - between:5.1f} s){', proved' if best.proved else ''}",
        flush=True,
    )


if __name__ == "__main__":
    limit = float(sys.argv[2]) if len(sys.argv) > 2 else 24.0
    for device_name in DEVICES:
        for variant_name in VARIANTS:
            _compare(sys.argv[1], variant_name, device_name, limit)
