"""Kernels read as they did: golden texts, and names that never collide."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.kernel_gen.c_expr import c_float
from mapper.kernel_gen.identifiers import c_name, comment_text
from mapper.layer_spec import LayerSpec
from mapper.pipeline import assignment_from_json, derive_space, generate_kernels, subject_of_layer
from mapper.profiles import load_profile
from mapper.solver.space import check
from tests.integration.test_table4_point import POINT

LAYER = LayerSpec(8, 12, 12, 8, 3, 3, 1, 1, 1, 1, 1, name="small")
IDS = """28 29 30 51 52 53 109 110 283 284 285 286 164 165 166 208 209 210 211 212 242 243 244 245
169 170 171 127 128 129 130 113 114 115 116 117 68 69 70 89 79 71 72"""
CODES = """W2 W1 W0 L2 L1 L0 S F S F F F S S F S F F F F S F F F S S F S F F F S F F F F S F F
S S S F"""
DIRECT = {
    "mapping": dict(zip(IDS.split(), CODES.split(), strict=True)),
    "parameters": dict(
        rho=0, kg=4, th=4, tw=4, sk=2, swy=2, swx=1, td=4, wth=1, wtw=1, icd=4, icy=1, icx=1, kc=1
    ),
    "local_sizes": {"convolution": [4, 2, 2]},
}
PARTIAL = {
    **POINT,
    "parameters": {**POINT["parameters"], "rho": 0, "omega": 24, "sigma": 3},
    "local_sizes": {
        "padded": [2, 7, 1],
        "partial": [3, 3, 1],
        "summed": [4, 9, 1],
        "cropped": [4, 4, 1],
    },
}


@pytest.mark.parametrize(
    ("variant", "point"), [("direct", DIRECT), ("partial", PARTIAL)], ids=["direct", "partial"]
)
def test_kernels_read_as_they_did(
    golden: Callable[[str, str], None], variant: str, point: dict[str, object]
) -> None:
    subject = subject_of_layer(LAYER, variant)
    space = derive_space(subject, Mode.STRICT, load_profile("pocl"), RuleOptions())
    chosen = assignment_from_json(space, point)
    assert check(space, chosen) == ()
    golden(f"kernels/{variant}_small.cl", generate_kernels(subject, chosen).source)


names = st.text(min_size=1, max_size=8) | st.sampled_from(
    [
        "image",
        "image_",
        "image__",
        "lane",
        "i_x",
        "i_x_",
        "float4",
        "n_a",
        "a b",
        "a_b",
        "7",
        "_7",
        "*/",
        "\n",
    ]
)


@given(names, names)
def test_different_names_get_different_identifiers(a: str, b: str) -> None:
    assert f"g_{c_name(a)}".isidentifier()
    assert f"g_{c_name(a)}".isascii()
    assert (c_name(a) == c_name(b)) == (a == b)


@given(names)
def test_no_name_leaves_its_comment(name: str) -> None:
    text = comment_text(f"map {name}")
    assert "*/" not in text
    assert text.isprintable()


@given(st.floats(width=32))
def test_float_literals_read_back(value: float) -> None:
    text = c_float(value)
    if value == value and abs(value) != float("inf"):
        assert float(text.strip("()").removesuffix("f")) == value
