"""The campaign reports every sort of failure with what reproduces it, and hides none."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from bench.proofs.joint import campaign
from bench.proofs.joint.campaign import MAX_FAILURES_KEPT, Cell, CellResult, cells_of, run_cell
from bench.proofs.joint.workers import run_cells
from mapper.constraint_rules.predicate import CodeVariable, LocalSizeVariable, Variable
from mapper.errors import LimitError
from mapper.host_plan import HostPlan
from mapper.kernel_gen.generate import generate_from
from mapper.layer_spec import LayerSpec
from mapper.solver.sampling import sample
from mapper.solver.space import Space

SMALL = LayerSpec(4, 6, 6, 4, name="small")
Assignments = Iterator[Mapping[Variable, int]]


def cell(count: int = 3, device: str = "pocl", seed: int = 1) -> Cell:
    return Cell(SMALL, "high-level", device, count, seed)


def too_large(space: Space, count: int, seed: int) -> Assignments:
    """Assignments with a local size that no device has."""
    for assignment in sample(space, count, seed):
        wrong = dict(assignment)
        size = next(v for v in wrong if isinstance(v, LocalSizeVariable) and v.dimension == 0)
        wrong[size] = 8192
        yield wrong


def test_right_samples_pass_and_are_counted():
    result = run_cell(cell())
    assert (result.drawn, result.distinct, result.passed, result.failed) == (3, 3, 3, 0)
    assert result.failures == []
    assert result.largest["global_bytes"] == 4 * (6 * 6 * 4 + 4 * 9 * 4 + 4 * 4 * 4)


def test_a_cell_gives_the_same_samples_again_and_others_for_another_seed():
    def drawn(seed: int) -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = []

        def remember(space: Space, count: int, seed: int) -> Assignments:
            for assignment in sample(space, count, seed):
                found.append(tuple(assignment.values()))
                yield assignment

        run_cell(cell(seed=seed), draw=remember)
        return found

    assert drawn(1) == drawn(1) != drawn(2)


def test_an_assignment_outside_the_space_fails_with_what_reproduces_it():
    result = run_cell(cell(count=2), draw=too_large)
    assert result.passed == 0
    assert result.failed >= 2
    kinds = {failure["kind"] for failure in result.failures}
    assert "broken rule" in kinds
    for failure in result.failures:
        (sizes,) = failure["candidate"]["local_sizes"].values()
        assert sizes[0] == 8192


def test_repeated_samples_are_a_failure():
    def twice(space: Space, count: int, seed: int) -> Assignments:
        (first,) = sample(space, 1, seed)
        yield first
        yield first

    result = run_cell(cell(), draw=twice)
    assert (result.drawn, result.distinct, result.passed) == (2, 1, 2)
    assert [failure["kind"] for failure in result.failures] == ["repeats"]


def test_a_sampler_that_gives_up_is_a_failure_and_keeps_what_it_drew():
    def tired(space: Space, count: int, seed: int) -> Assignments:
        yield from sample(space, 1, seed)
        raise LimitError("no time is left")

    result = run_cell(cell(), draw=tired)
    assert (result.passed, result.failed) == (1, 1)
    assert "no time is left" in result.failures[0]["message"]


def test_a_crash_is_a_failure_and_the_next_sample_is_tried(monkeypatch: pytest.MonkeyPatch):
    calls: list[int] = []

    def fragile(*args: Any) -> HostPlan:
        calls.append(1)
        if len(calls) == 1:
            raise ZeroDivisionError("in the generator")
        return generate_from(*args)

    monkeypatch.setattr(campaign, "generate_from", fragile)
    result = run_cell(cell())
    assert (result.drawn, result.passed, result.failed) == (3, 2, 1)
    assert result.failures[0]["kind"] == "crash"
    assert "ZeroDivisionError: in the generator" in result.failures[0]["message"]
    assert result.failures[0]["candidate"] is not None


def test_an_assignment_without_a_code_is_refused():
    def without_a_code(space: Space, count: int, seed: int) -> Assignments:
        for assignment in sample(space, 1, seed):
            yield {v: n for v, n in assignment.items() if not isinstance(v, CodeVariable)}

    result = run_cell(cell(), draw=without_a_code)
    assert [failure["kind"] for failure in result.failures] == ["refused"]
    assert "maps without a schedule code" in result.failures[0]["message"]


def test_failures_are_kept_up_to_a_bound_and_counted_beyond():
    result = CellResult("key", "layer", "variant", "device", 0, 0)
    for number in range(MAX_FAILURES_KEPT + 5):
        result.fail("plan", str(number), None)
    assert (len(result.failures), result.failed) == (MAX_FAILURES_KEPT, MAX_FAILURES_KEPT + 5)


def test_samples_are_spread_over_the_layers_and_none_is_lost():
    layers = tuple(LayerSpec(4, 6, 6, 4, name=f"l{n}") for n in range(3))
    cells = list(cells_of(layers, ("direct",), ("pocl", "h200"), samples=10, seed=5))
    assert [c.count for c in cells] == [4, 3, 3, 4, 3, 3]
    assert len({c.key for c in cells}) == 6


def results_of(jobs: int) -> dict[str, CellResult]:
    cells = [cell(seed=seed) for seed in (1, 2, 3)]
    return {r.key: r for r in run_cells(cells, jobs, lambda current, count: None)}


def facts(result: CellResult) -> tuple[object, ...]:
    return result.drawn, result.passed, result.failed, result.barriers, result.largest


def test_workers_find_what_one_process_finds():
    alone, together = results_of(1), results_of(2)
    assert {key: facts(r) for key, r in together.items()} == {
        key: facts(r) for key, r in alone.items()
    }
    assert multiprocessing.active_children() == []


def test_a_worker_that_is_killed_costs_its_cell_only():
    ended = run_cells([cell(count=10**6), cell(seed=2)], 2, lambda current, count: None)
    first = next(ended)
    assert (first.seed, first.failed) == (2, 0)
    (worker,) = multiprocessing.active_children()
    worker.kill()
    second = next(ended)
    assert second.failures[0]["message"] == "the worker ended with exit code -9"
    assert next(ended, None) is None


def test_closing_ends_the_workers():
    ended = run_cells([cell(count=10**6), cell(seed=2)], 2, lambda current, count: None)
    next(ended)
    assert len(multiprocessing.active_children()) >= 1
    ended.close()
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_cell_that_cannot_even_be_derived_is_a_failure(jobs: int):
    broken = Cell(SMALL, "no-such-variant", "pocl", 1, 0)
    (result,) = run_cells([broken], jobs, lambda current, count: None)
    assert (result.drawn, result.failed) == (0, 1)
    assert "no variant of this name" in result.failures[0]["message"]
