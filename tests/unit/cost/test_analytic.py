"""Counts of small kernels worked out by hand, and constants found again from times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mapper.ast_model.elaborate import elaborate
from mapper.ast_model.nest import NestMap
from mapper.constraint_rules.predicate import CodeVariable, Variable
from mapper.cost.analytic import (
    Counts,
    DeviceConstants,
    bound_ms,
    counts_of,
    fitted,
    predicted_ms,
    rank_correlation,
    resident_groups,
)
from mapper.cost.traffic import fetched_bytes, traffic_of
from mapper.errors import InputError
from mapper.host_plan import Launch
from mapper.layer_spec import LayerSpec
from mapper.pipeline import generate_kernels, subject_of_layer
from mapper.profiles import load_profile
from mapper.schedule import ScheduleCode

LAYER = LayerSpec(3, 6, 8, 4, name="small")
SUBJECT = subject_of_layer(LAYER, "high-level")
DEVICE = load_profile("h200")


def _codes(**chosen: ScheduleCode) -> dict[str, ScheduleCode]:
    def ids(maps: tuple[NestMap, ...]) -> list[str]:
        return [i for m in maps for i in (str(m.id), *ids(m.nested))]

    names = [i for nest in SUBJECT.nests for i in ids(nest.roots)]
    return {name: chosen.get(name, ScheduleCode.SEQUENTIAL) for name in names}


def _traffic(**chosen: ScheduleCode):
    kernel = elaborate(SUBJECT.require_program(), {}).kernels[0]
    return traffic_of(kernel, _codes(**chosen))


def test_operations_are_those_of_the_layer() -> None:
    # A multiply and an add for each of 4 x 6 x 4 results times 27 products.
    assert LAYER.operations == 2 * 96 * 27
    assert _traffic().operations == pytest.approx(LAYER.operations, rel=0.05)


def test_least_bytes_are_each_element_once() -> None:
    elements = 3 * 6 * 8 + 4 * 27 + 96
    assert _traffic().least_global_bytes == 4 * elements


def test_neighbours_in_a_row_fetch_less_than_neighbours_in_channels() -> None:
    in_a_row = _traffic(column=ScheduleCode.GLOBAL_0, row=ScheduleCode.GLOBAL_1)
    across = _traffic(filter=ScheduleCode.GLOBAL_0, row=ScheduleCode.GLOBAL_1)
    alone = _traffic()
    assert in_a_row.operations == across.operations == alone.operations
    # Neighbours in a row read the same weights, and pixels that lie side by side.
    assert in_a_row.global_bytes < across.global_bytes


@pytest.mark.parametrize(
    ("stride", "expected"), [(0, 4 / 32), (1, 4.0), (2, 8.0), (100, 32.0), (-1, 4.0), (None, 4.0)]
)
def test_bytes_fetched_by_stride(stride: int | None, expected: float) -> None:
    assert fetched_bytes(stride, 4) == expected


def test_residents_are_limited_by_what_a_group_needs() -> None:
    launch = Launch("k", (1024, 1, 1), (64, 1, 1), ())
    assert resident_groups(launch, DEVICE) == 16
    assert resident_groups(replace(launch, local_bytes=20_000), DEVICE) == 2
    assert resident_groups(replace(launch, local_size=(1024, 1, 1)), DEVICE) == 2
    # 1,020 x 1,024 / 4 bytes of registers, 64 x 1,020 a group: 4 of them.
    assert resident_groups(replace(launch, private_bytes=1020), DEVICE) == 4


def test_a_wave_that_is_not_full_takes_as_long_as_a_full_one() -> None:
    chosen = {"row": ScheduleCode.GLOBAL_1, "filter": ScheduleCode.GLOBAL_0}
    codes = _codes(**chosen)
    assignment: dict[Variable, int] = {
        CodeVariable(m): int(codes[str(m)])
        for kernel in elaborate(SUBJECT.require_program(), {}).kernels
        for m in kernel.map_ids()
    }
    plan = generate_kernels(SUBJECT, assignment)
    program = SUBJECT.require_program()
    few = counts_of(program, {}, codes, plan, replace(DEVICE, compute_units=1))
    many = counts_of(program, {}, codes, plan, replace(DEVICE, compute_units=4096))
    assert few.launches == many.launches == len(plan.launches)
    assert many.waves == len(plan.launches)
    assert few.operations > many.operations
    assert predicted_ms(few, DeviceConstants()) > predicted_ms(many, DeviceConstants())
    assert bound_ms(few, DeviceConstants()) <= predicted_ms(few, DeviceConstants())


def test_constants_are_found_again_from_times_that_they_made() -> None:
    random = np.random.default_rng(0)
    truth = DeviceConstants(4000.0, 150.0, 0.3, 0.05, 1.5, 0.2, 0.4)
    counts = [
        Counts(1.0, *random.uniform(1, 1000, 2), *random.uniform(1, 1e5, 4)) for _ in range(60)
    ]
    times = [predicted_ms(c, truth) for c in counts]
    found, error = fitted(counts, times, truth.lanes)
    assert error < 1e-6
    assert found.row() == pytest.approx(truth.row(), rel=1e-3)
    noisy = [t * float(np.exp(random.normal(0, 0.05))) for t in times]
    assert fitted(counts, noisy, 16)[1] < 0.08
    with pytest.raises(InputError, match="too few"):
        fitted(counts[:5], times[:5], 16)


def test_constants_travel_as_json() -> None:
    constants = DeviceConstants(lanes=8)
    assert DeviceConstants.from_json(constants.to_json()) == constants
    for broken in ({}, {**constants.to_json(), "waves": -1}, {**constants.to_json(), "x": 1.0}):
        with pytest.raises(InputError):
            DeviceConstants.from_json(broken)


def test_rank_correlation() -> None:
    assert rank_correlation([1, 2, 3, 4], [10, 20, 30, 31]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    # Of ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4.
    assert rank_correlation([1, 2, 2, 4], [1, 2, 3, 4]) == pytest.approx(0.9486833)
    assert rank_correlation([1, 1], [1, 2]) == 0.0
