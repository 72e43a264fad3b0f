"""Memory is looked at while a computation goes on; large samples come in batches."""

from __future__ import annotations

import time
from itertools import islice
from random import Random

import numpy as np
import pytest

from mapper.errors import LimitError
from mapper.solver import limits
from mapper.solver.counting import count_mappings
from mapper.solver.diagram.layers import batches_of_ranks, distinct_ranks_below
from mapper.solver.enumeration import enumerate_assignments
from mapper.solver.limits import Cancelled, SolveLimits, Watch, resident_bytes
from mapper.solver.sampling import sample
from mapper.solver.space import Space
from mapper.tuning_space.codec import space_from_json
from mapper.tuning_space.lowering import solver_space

pytestmark = pytest.mark.skipif(resident_bytes() is None, reason="the system does not tell")


def cube(values: int) -> Space:
    parameters = {f"p{i}": {"from": 1, "to": values} for i in range(3)}
    document = {
        "schema": "nestmap/space/1",
        "name": "cube",
        "parameters": parameters,
        "constraints": ["p0 % p1 == 0"],
    }
    return solver_space(space_from_json(document))


def test_growing_beyond_the_allowed_memory_ends_a_computation(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "_LOOK_EVERY_S", 0.0)
    watch = Watch(SolveLimits(memory_bytes=64 << 20))
    watch.tick()
    held = np.ones(24 << 20, np.int64)
    with pytest.raises(LimitError, match="more memory than allowed"):
        watch.tick()
    assert held.all()
    Watch(SolveLimits(memory_bytes=None)).tick()


def test_enumerating_ends_where_memory_does(monkeypatch: pytest.MonkeyPatch):
    found = enumerate_assignments(cube(60), memory_bytes=1 << 30)
    assert len(list(islice(found, 5))) == 5
    monkeypatch.setattr(limits, "resident_bytes", lambda: 2**40)
    monkeypatch.setattr(limits, "_LOOK_EVERY_S", 0.0)
    with pytest.raises(LimitError, match="more memory than allowed"):
        for _ in found:
            pass
    with pytest.raises(StopIteration):
        next(found)


def test_looking_leaves_the_deadline_to_the_caller():
    watch = Watch(SolveLimits(time_s=0.0))
    watch.look()
    with pytest.raises(LimitError):
        watch.tick()
    with pytest.raises(Cancelled):
        Watch(cancelled=lambda: True).look()


@pytest.mark.parametrize(("total", "number"), [(10, 3), (10_000, 9_000), (10**30, 9_000), (0, 5)])
def test_batches_are_one_draw_in_parts(total: int, number: int):
    batches = list(batches_of_ranks(total, number, Random(3), Watch()))
    assert [rank for batch in batches for rank in batch] == distinct_ranks_below(
        total, number, Random(3)
    )


def test_the_first_of_very_many_samples_come_at_once():
    assert len(list(islice(sample(cube(1000), 10**8, 1), 100))) == 100


def test_a_sample_that_memory_does_not_hold_is_refused():
    watch = Watch(SolveLimits(memory_bytes=1 << 20))
    with pytest.raises(LimitError, match="more memory than allowed"):
        list(sample(cube(100), 10**6, 1, watch=watch))


def test_a_deadline_holds_where_a_constraint_is_long_and_its_numbers_are_large():
    parameters = {f"p{i}": {"from": 1, "to": 50} for i in range(6)}
    terms = " + ".join(f"1/(p{i % 6}+{i})" for i in range(40))
    document = {
        "schema": "nestmap/space/1",
        "name": "fractions",
        "parameters": parameters,
        "constraints": [f"{terms} < 3"],
    }
    space = solver_space(space_from_json(document))
    watch = Watch(SolveLimits(time_s=1.0))
    assert not count_mappings(space, watch=watch).complete
    # One chunk of all columns took half a minute; generous, since others use the machine, too.
    assert time.monotonic() - watch.started < 15


def test_very_many_labels_are_not_compared_one_by_one():
    labels = [f"l{i}" for i in range(3000)]
    document = {
        "schema": "nestmap/space/1",
        "name": "labels",
        "parameters": {"a": labels, "b": labels},
        "constraints": ["a == b"],
    }
    with pytest.raises(LimitError, match="/constraints/0: the expression becomes too large"):
        solver_space(space_from_json(document))


def test_a_limit_of_processor_time_does_not_pass_while_others_work():
    watch = Watch(
        SolveLimits(time_s=0.05, memory_bytes=None),
        started=time.thread_time(),
        clock=time.thread_time,
    )
    time.sleep(0.1)
    watch.tick()
    assert watch.left_s is not None and watch.left_s > 0
    with pytest.raises(LimitError, match="time limit"):
        while True:
            watch.tick()
