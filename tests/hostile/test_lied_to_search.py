"""A board that lies to the guided search wastes its own budget; the search goes on to its end."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from db.store import Store
from mapper.measurement import Crash, Outcome, ResourceError, Timed, Timeout, Wrong
from mapper.search.goal import Fastest, Front, Goal
from mapper.search.model_guided import Settings
from nestmap.tuning.guided import GuidedStrategy
from nestmap.tuning.run import Budget, tune
from tests.effort import combined
from tests.unit.tuning.fakes import ScriptedDevice, tiny_subjects

SUBJECTS = tiny_subjects("high-level", "partial")
#: What the service takes: more is refused before a search hears of it.
MOST_NS = 2**63 - 1
BUDGET = 14


def lied(*trials_ns: int, error: float = 0.0, compile_ms: float = 1.0) -> Timed:
    return Timed(trials_ns, error, compile_ms, {})


def by_turns(*outcomes: Outcome) -> Callable[[int], Outcome]:
    return lambda number: outcomes[number % len(outcomes)]


def at_random(number: int) -> Outcome:
    drawn = random.Random(number)
    return lied(*(drawn.choice([1, 7, 10 ** drawn.randrange(19), MOST_NS]) for _ in range(3)))


LIES: dict[str, Callable[[int], Outcome]] = {
    "as good as nothing": by_turns(lied(1)),
    "for ever": by_turns(lied(MOST_NS)),
    "nothing and for ever": by_turns(lied(1), lied(MOST_NS)),
    "all equal": by_turns(lied(1_000_000)),
    "a spread of everything": by_turns(lied(1, MOST_NS), lied(MOST_NS, 1, 5)),
    "at random": at_random,
    "faster each time": lambda number: lied(max(1, 10**18 >> (2 * number))),
    "slower each time": lambda number: lied(min(MOST_NS, 1 << (2 * number))),
    "wrong by no number": by_turns(Wrong(math.nan, (0,), "nan"), Wrong(math.inf, (), "")),
    "right by no number": by_turns(lied(5_000, error=math.nan), lied(5_000, compile_ms=1e308)),
    "a timeout of everything": by_turns(Timeout(1e308), lied(MOST_NS)),
    "one in ten": by_turns(*[Crash(-11, "x")] * 5, *[ResourceError("x")] * 4, lied(1)),
}


# Each lie to one of the goals; to both where much is tried.
@pytest.mark.parametrize(
    ("lie", "goal"), combined(tuple(LIES), (Front(), Fastest())), ids=lambda value: str(value)
)
def test_search_goes_on_whatever_it_is_told(tmp_path: Path, lie: str, goal: Goal) -> None:
    device = ScriptedDevice(lambda number, _: LIES[lie](number))
    make = partial(GuidedStrategy, goal=goal, settings=Settings(guessed_start=5, growth=5))
    with Store.open(tmp_path / "store.sqlite3") as store, warnings.catch_warnings():
        warnings.simplefilter("error")  # an overflow in a model is one of NumPy's warnings
        result = tune(SUBJECTS, device, store, seed=3, budget=Budget(BUDGET), make=make)
    assert result.state.tried == BUDGET
    assert len(set(device.measured)) == BUDGET
