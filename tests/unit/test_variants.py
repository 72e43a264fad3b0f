"""Which variants do which layers, and what is said where one does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mapper.ast_model import evaluator
from mapper.ast_model.elaborate import elaborate_symbolic
from mapper.ast_model.interpreter import interpret
from mapper.ast_model.loop_nest import Store, loads, walk
from mapper.ast_model.nodes import Program
from mapper.ast_model.obligations import Obligation
from mapper.ast_model.outputs import outputs
from mapper.ast_model.type_check import check_program
from mapper.ast_model.types import element_dtype
from mapper.elements import Element
from mapper.errors import InputError
from mapper.layer_spec import LayerSpec
from mapper.variants import VARIANTS, variant_program
from nestmap.tuning.reference import convolve, half_roundings
from tests.conformance.random_layers import inputs_of

PLAIN = LayerSpec(4, 6, 8, 4)


@pytest.mark.parametrize("variant", ["direct", "partial"])
@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"batch": 2}, "batch: {0}; found 2; allowed: 1"),
        ({"groups": 2}, "groups: {0}; found 2; allowed: 1"),
        ({"dilation_x": 2}, "dilation_x: {0}; found 2; allowed: 1"),
        ({"bias": True}, "bias: {0}; found True; allowed: False"),
        ({"activation": "relu"}, "activation: {0}; found relu; allowed: none"),
        ({"layout": "NCHW"}, "layout: {0}; found NCHW; allowed: NHWC"),
    ],
)
def test_variants_of_the_papers_say_what_they_do_not_do(
    variant: str, fields: dict[str, Any], field: str
):
    layer = replace(PLAIN, **fields)
    assert VARIANTS[variant].applies(PLAIN) is None
    assert VARIANTS[variant].applies(layer) is not None
    with pytest.raises(InputError) as caught:
        variant_program(layer, variant)
    message = f"the variant {variant} does not do this"
    assert str(caught.value).startswith(f"layer.{field.format(message)} (try: the variant")
    assert "high-level" in str(caught.value)


def test_a_name_that_no_variant_has_is_refused_with_those_that_there_are():
    with pytest.raises(InputError) as caught:
        variant_program(PLAIN, "tiled")
    (problem,) = caught.value.problems
    assert problem.found == "'tiled'"
    assert problem.allowed.split(", ") == ["direct", "partial", "high-level"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_stores_16_bit_floats_and_sums_32_bit_ones(variant: str):
    program = variant_program(replace(PLAIN, dtype="float16"), variant)
    types = check_program(program)
    assert all(element_dtype(i.type) is Element.FLOAT16 for i in program.inputs)
    assert element_dtype(types.kernel_types[program.kernels[-1].name]) is Element.FLOAT16
    accumulators = {
        store.buffer.dtype
        for kernel in elaborate_symbolic(program, {}).kernels
        for store, _ in walk(kernel.statements)
        if isinstance(store, Store)
        and any(load.buffer.name == store.buffer.name for load in loads(store.value))
    }
    assert accumulators == {Element.FLOAT32}
    assert half_roundings(elaborate_symbolic(program, {})) == 1


def test_partial_needs_equal_strides_and_direct_does_not():
    layer = LayerSpec(2, 9, 8, 2, stride_y=2, stride_x=1)
    with pytest.raises(InputError, match=r"layer.stride_x: .*; found 1; allowed: 2"):
        variant_program(layer, "partial")
    values = dict(
        rho=0, kg=2, th=2, tw=3, sk=1, swy=1, swx=3, td=2, wth=1, wtw=3, icd=1, icy=1, icx=1, kc=1
    )
    inputs = inputs_of(layer)
    result = interpret(variant_program(layer, "direct"), values, inputs)
    np.testing.assert_allclose(result, convolve(layer, **inputs), rtol=1e-10, atol=1e-10)


def test_padding_beyond_the_kernel_is_done_in_the_variants_of_the_papers():
    layer = LayerSpec(2, 4, 4, 2, pad_top=4, pad_left=4, pad_bottom=3, pad_right=3)
    inputs = inputs_of(layer)
    values: dict[str, dict[str, int]] = {
        "direct": dict(rho=0, kg=2, th=3, tw=3, sk=1, swy=1, swx=3, td=2, wth=1, wtw=3, icd=1,
                       icy=1, icx=1, kc=1),
        "partial": dict(theta=5, rho=0, kappa=2, sigma=3, omega=6, upsilon=2, unroll=0,
                        coalesce=1),
    }  # fmt: skip
    for variant, chosen in values.items():
        result = interpret(variant_program(layer, variant), chosen, inputs)
        np.testing.assert_allclose(result, convolve(layer, **inputs), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_outputs_of_every_variant_are_the_interpreters(
    variant: str, dtype: str, monkeypatch: pytest.MonkeyPatch
):
    """Also one by one."""
    layer = replace(PLAIN, dtype=dtype)
    program = variant_program(layer, variant)
    numbers = admissible(program)
    inputs = inputs_of(layer)
    wanted = np.asarray(interpret(program, numbers, inputs), dtype=np.float64)
    relative, absolute = (1e-3, 0.0) if dtype == "float16" else (1e-9, 1e-9)
    found = outputs(program, numbers, inputs, 1)
    assert found.known is None
    np.testing.assert_allclose(found.values, wanted, rtol=relative, atol=absolute)
    monkeypatch.setattr(evaluator, "MAX_OPERATIONS", -1)
    some = outputs(program, numbers, inputs, 1, sampled=30)
    known = ~np.isnan(some.values)
    np.testing.assert_allclose(some.values[known], wanted[known], rtol=relative, atol=absolute)


def admissible(program: Program) -> dict[str, int]:
    """Values of tuning parameters under which a program's obligations hold, by trying."""
    obligations = check_program(program).obligations
    known = set(dict(program.sizes))

    def holds(obligation: Obligation, numbers: dict[str, int]) -> bool:
        try:
            return obligation.holds(numbers)
        except InputError:  # a division by a parameter that is 0
            return False

    def tried(number: int, chosen: dict[str, int]) -> dict[str, int] | None:
        if number == len(program.parameters):
            return chosen
        parameter = program.parameters[number]
        for value in parameter.values:
            now = {**chosen, parameter.name: value}
            told = known | now.keys()
            due = [o for o in obligations if o.left.names() | o.right.names() <= told]
            if all(holds(o, {**dict(program.sizes), **now}) for o in due):
                found = tried(number + 1, now)
                if found is not None:
                    return found
        return None

    found = tried(0, {})
    assert found is not None
    return found
