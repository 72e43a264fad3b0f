"""What earlier searches of the same space on other devices tell of a published space.

As if the space had been tuned on the other devices before: the default search ran there, and what
it evaluated teaches (:mod:`nestmap.tuning.elsewhere`), nothing else of their recordings.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bench.searches.replay import Arena, replay
from mapper.search.model_guided import ModelGuided
from mapper.search.pool import Describe, Described
from nestmap.tuning.elsewhere import Elsewhere

#: Evaluations of each earlier search.
EARLIER = 200
#: They have so many seeds, their own; a later search learns from one on each device.
_SEEDS, _FIRST_SEED = 16, 1000

Floats = NDArray[np.float64]


def told_elsewhere(arena: Arena, seed: int) -> Describe:
    """Describes candidates by what is known of the kernel, and by the logarithm of the time on each
    other device, learned from an earlier search there."""
    features = _features(arena)
    columns = [arena.known_kernel] if arena.known_kernel is not None else []
    for other in arena.elsewhere:
        rows = list(evaluated(other, _FIRST_SEED + seed % _SEEDS))
        times = other.recording.time_ms[rows]
        log_times = np.where(np.isnan(times), np.inf, np.log(times))
        # The other device's row of a candidate need not be this one's.
        places = arena.places(other.recording.values[rows])
        known = Elsewhere(other.recording.device, features[places], log_times, seed)
        columns.append(known.predict(features)[:, None])
    told = np.hstack(columns)

    def describe(rows: NDArray[np.int64]) -> Described:
        places = arena.places(rows)
        return Described(arena.recording.memory_bytes[places], told[places])

    return describe


def _features(arena: Arena) -> Floats:
    """Sizes, and what is known of the kernel: of each row of a recording."""
    sizes = np.log2(1.0 + np.abs(arena.recording.values))
    known = arena.known_kernel
    return sizes if known is None else np.hstack([sizes, known])


@lru_cache(maxsize=4 * _SEEDS)
def evaluated(arena: Arena, seed: int) -> tuple[int, ...]:
    """The rows that the default search evaluates."""
    rows = replay(arena, lambda at: ModelGuided(at.candidates, seed, space=at.space), EARLIER)
    return tuple(rows)
