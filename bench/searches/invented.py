"""Recordings of invented devices on published spaces: what settings of a search are chosen on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.searches.recording import Recording
from bench.searches.synthetic import Kind, synthetic_recording
from mapper.errors import LimitError
from mapper.solver.solutions import FactoredSpace, solutions_of
from mapper.tuning_space.codec import space_from_json
from mapper.tuning_space.lowering import solver_space

#: Published spaces of several shapes: few large parameters, many small ones, many switches.
SPACES = ("hub_convolution", "dedispersion", "gemm", "expdist", "microhh", "hub_hotspot")
#: Spaces lose values until they have no more configurations.
MOST_ROWS = 6000
#: The share of a parameter's values that stays when it loses some.
_KEPT = 0.7


def invented_recordings(folder: Path, seed: int) -> Iterator[Recording]:
    """Each space of ``folder`` (:data:`SPACES`, as JSON files), thinned, with each kind of device.

    Time is all that their searches look at: they have no bytes.
    """
    for number, name in enumerate(SPACES):
        text = (folder / f"{name}.json").read_text(encoding="utf-8")
        document = thinned(json.loads(text), MOST_ROWS, seed + number)
        space = solver_space(space_from_json(document))
        for kind in Kind:
            yield synthetic_recording(
                space, f"{name}/{kind.value}", document, 1000 + seed + number, kind, bytes_=False
            )


def thinned(document: dict[str, Any], most: int, seed: int) -> dict[str, Any]:
    """A space with at most ``most`` configurations: random parameters lose random values, those
    with many sooner. The same for the same seed."""
    random = np.random.default_rng(seed)
    left: dict[str, list[int]] = {name: list(v) for name, v in document["parameters"].items()}
    while True:
        found = {**document, "parameters": left}
        found.pop("expected_count", None)
        if _count(found) <= most:
            return found
        large = [name for name, values in left.items() if len(values) > 2]
        weights = np.array([len(left[name]) for name in large], np.float64)
        name = large[int(random.choice(len(large), p=weights / weights.sum()))]
        kept = max(2, int(len(left[name]) * _KEPT))
        places = sorted(random.choice(len(left[name]), kept, replace=False).tolist())
        left = {**left, name: [left[name][place] for place in places]}


def _count(document: dict[str, Any]) -> float:
    try:
        solutions = solutions_of(solver_space(space_from_json(document)))
    except LimitError:
        return float("inf")
    return solutions.count_joint() if isinstance(solutions, FactoredSpace) else float("inf")
