"""What the analytic strategy asks for first, with and without what CP-SAT finds to be fastest.

    python bench/best_predicted.py vgg16/7 [EFFORT] [VARIANT:DEVICE …]

For some variants of a layer on two profiles, without a device: predicted times of the first eight
candidates of the strategy without the solver (random ones and children of the best predicted); of
the best eight that the solver finds within an effort (deterministic time), with the bound that it
proves; and of the strategy's first eight where it begins with these. And the processor time of
each: the strategy's own, to which the solver's comes where it is asked. Seed 0, the constants of
no device in particular.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from itertools import pairwise

from mapper.constraint_rules.rule import Mode
from mapper.cost.best_predicted import Predicted
from mapper.profiles import load_profile
from mapper.search.goal import Fastest
from mapper.solver.limits import Watch
from nestmap.predicting import best_of_request, predicted_time_ms
from nestmap.requests import Request, request_about
from nestmap.subjects import load_subject
from nestmap.tuning.descriptions import CONSTANTS
from nestmap.tuning.guided import GuidedStrategy
from nestmap.tuning.predicted_start import COUNT, EFFORT
from nestmap.tuning.strategy import Source

VARIANTS = ("direct", "partial")
DEVICES = ("pocl", "h200")


def _asked(request: Request, start: Sequence[Predicted] | None) -> list[float]:
    """Predicted times of what the strategy asks for, in its order."""
    source = Source(0, request.subject, request.space, request.subject.hash())
    strategy = GuidedStrategy(
        [source], request.device, 0, goal=Fastest(), analytic=True,
        start=None if start is None else lambda *_: [entry.assignment for entry in start],
    )  # fmt: skip
    asked = [strategy.ask() for _ in range(COUNT)]
    times = [
        predicted_time_ms(request.subject, candidate.assignment, request.device, CONSTANTS)
        for candidate in asked
        if candidate is not None
    ]
    return [time_ms for time_ms in times if time_ms is not None]


def _text(times: Sequence[float], seconds: float) -> str:
    if not times:
        return f"nothing ({seconds:.1f} s)"
    return f"{min(times):.3f} to {max(times):.3f} ms ({seconds:.1f} s)"


def _compare(layer: str, variant: str, device: str, effort: float) -> None:
    request = request_about(load_subject(layer, variant), load_profile(device), Mode.STRICT)
    clock = [time.process_time()]
    alone = _asked(request, None)
    clock.append(time.process_time())
    best = best_of_request(request, COUNT, CONSTANTS, 0, Watch(), effort)
    clock.append(time.process_time())
    started = _asked(request, best.found)
    clock.append(time.process_time())
    spent = [after - before for before, after in pairwise(clock)]
    print(
        f"{variant} on {device}: without {_text(alone, spent[0])}; solver "
        f"{_text([entry.time_ms for entry in best.found], spent[1])}, none below "
        f"{best.bound_ms:.3f} ms{', proved' if best.proved else ''}; "
        f"with {_text(started, spent[2])}",
        flush=True,
    )


if __name__ == "__main__":
    limit = float(sys.argv[2]) if len(sys.argv) > 2 else EFFORT
    pairs = [tuple(text.split(":")) for text in sys.argv[3:]] or [
        (variant_name, device_name) for device_name in DEVICES for variant_name in VARIANTS
    ]
    for chosen_variant, chosen_device in pairs:
        _compare(sys.argv[1], chosen_variant, chosen_device, limit)
