"""Small random programs of two or three kernels, each of which reads what those before it wrote."""

from __future__ import annotations

from hypothesis import strategies as st

from mapper.ast_model.nodes import Program
from mapper.ast_model.text_form import parse

_SUM = "reduce((acc, v) => add(acc, v), 0.0, {})"


def _elementwise(k: int, before: str, _: str) -> list[str]:
    return [f"kernel e{k} = map#er{k}(r => map#ec{k}(v => twice(v), r), {before})"]


def _transposed(k: int, before: str, _: str) -> list[str]:
    return [f"kernel t{k} = map#tr{k}(r => map#tc{k}(v => twice(v), r), transpose({before}))"]


def _row_sums(k: int, before: str, _: str) -> list[str]:
    summed = f"join(map#sr{k}(r => {_SUM.format('r')}, {before}))"
    less = f"map#lr{k}(r => map#lc{k}(v => less(v, r.1), r.0), zip({before}, s{k}))"
    return [f"kernel s{k} = {summed}", f"kernel l{k} = {less}"]


def _product(k: int, before: str, other: str) -> list[str]:
    element = "reduce((acc, q) => fma(q.0, q.1, acc), 0.0, zip(x, y))"
    body = f"map#pr{k}(x => join(map#pc{k}(y => {element}, transpose({other}))), {before})"
    return [f"kernel p{k} = {body}"]


_KINDS = (_elementwise, _transposed, _row_sums, _product)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Square arrays all along, so that any kernel may follow any other."""
    size = draw(st.sampled_from((8, 12, 16)))
    kernels: list[str] = []
    before = "a"
    for k in range(3):
        made = draw(st.sampled_from(_KINDS))(k, before, draw(st.sampled_from(("a", "b", before))))
        if len(kernels) + len(made) > 3:
            break
        kernels += made
        before = kernels[-1].split()[1]
    if len(kernels) < 2:
        kernels += _elementwise(9, before, "")
    return parse(
        "\n".join(
            [
                'program "several" {',
                f"size N = {size}",
                "fun twice(v) = v + v",
                "fun less(v, s) = v - s",
                "input a : [[float]N]N",
                "input b : [[float]N]N",
                *kernels,
                "}",
            ]
        )
    )


SOFTMAX = parse("""program "softmax" {
  size M = 16
  size N = 64
  fun raised(v, largest) = exp(v - largest)
  fun part(v, total) = v / total
  input a : [[float]N]M
  kernel largest = join(map#row(r =>
      reduce((acc, v) => max(acc, v), -3.4028234663852886e38, r), a))
  kernel powers = map#power_row(r => map#power(v => raised(v, r.1), r.0), zip(a, largest))
  kernel totals = join(map#sum_row(r => reduce((acc, v) => add(acc, v), 0.0, r), powers))
  kernel softmax = map#part_row(r => map#part(v => part(v, r.1), r.0), zip(powers, totals))
}
""")
