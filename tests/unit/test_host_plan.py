"""Host plans as JSON: element types, bytes, and plans from before there were element types."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.errors import InputError
from mapper.host_plan import HostPlan
from mapper.layer_spec import DType, LayerSpec
from mapper.pipeline import derive_space, generate_kernels, subject_of_layer
from mapper.profiles import load_profile
from mapper.solver.sampling import sample
from nestmap.device_limits import limits_of_device


def plan_of(dtype: DType) -> HostPlan:
    layer = LayerSpec(3, 5, 5, 2, dtype=dtype, bias=True)
    subject = subject_of_layer(layer, "high-level")
    device = replace(load_profile("pocl"), half_storage=True)
    space = derive_space(subject, Mode.STRICT, device, RuleOptions())
    return generate_kernels(subject, next(iter(sample(space, 1, 3))))


@pytest.mark.parametrize("dtype", DType)
def test_plans_read_back_as_they_were(dtype: DType) -> None:
    plan = plan_of(dtype)
    assert HostPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_bytes_are_those_of_the_element_type() -> None:
    half, single = plan_of(DType.FLOAT16), plan_of(DType.FLOAT32)
    assert {b.dtype for b in half.buffers} == {DType.FLOAT16}
    assert [2 * b.bytes for b in half.buffers] == [b.bytes for b in single.buffers]
    assert 2 * half.memory_bytes == single.memory_bytes == 4 * (3 * 25 + 2 * 27 + 2 + 2 * 9)


def test_a_plan_of_the_first_schema_is_of_32_bit_floats() -> None:
    plan = plan_of(DType.FLOAT32)
    value = plan.to_json()
    value["schema"] = "nestmap/host-plan/1"
    for buffer in value["buffers"]:
        del buffer["dtype"]
    assert HostPlan.from_json(value) == plan


def test_a_plan_of_another_schema_is_refused() -> None:
    value = {**plan_of(DType.FLOAT32).to_json(), "schema": "nestmap/host-plan/3"}
    with pytest.raises(InputError, match=r"/schema: unknown schema; found .*plan/3.*; allowed"):
        HostPlan.from_json(value)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("variant", ["high-level", "partial", "direct"])
def test_a_device_without_16_bit_floats_is_refused_with_what_may_be_done(
    mode: Mode, variant: str
) -> None:
    subject = subject_of_layer(LayerSpec(4, 6, 6, 4, dtype="float16"), variant)
    device = load_profile("pocl")
    with pytest.raises(InputError) as caught:
        derive_space(subject, mode, device, RuleOptions())
    (problem,) = caught.value.problems
    assert problem.path == "device.half_precision"
    assert (problem.found, "named with +half" in problem.allowed) == ("false", True)
    assert "--device pocl+half" in problem.remedy
    assert derive_space(subject, mode, limits_of_device("pocl+half"), RuleOptions()).variables
    assert derive_space(subject, mode, load_profile("mali-g72"), RuleOptions()).variables
