"""A view answers "which element is this?" as NumPy does, however views lie upon each other.

Lanes of one vector are never taken for those of another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from mapper.ast_model.index_expr import Expr, const, symbol
from mapper.ast_model.loop_nest import Buffer, Load, Role
from mapper.ast_model.nodes import OrderKind
from mapper.ast_model.types import ArrayType, Memory, ScalarType, Type, VectorType
from mapper.ast_model.views import (
    LANE,
    ArrayDestination,
    ArrayView,
    Destination,
    ScalarDestination,
    ScalarView,
    View,
    as_array,
    as_array_destination,
    buffer_destination,
    buffer_view,
    component_destination,
    join_view,
    lane_destination,
    nested_destination,
    reordered_index,
    scalar_view,
    slide_view,
    split_view,
    transpose_view,
    vector_view,
)
from tests.effort import cases

Ids = NDArray[np.int64]
#: A layout change of an array as a view of it, and of the ids of its elements. ``lanes`` is the
#: width of its elements (0: scalars); what it becomes is said too.
Change = tuple[Callable[[ArrayView, ArrayType], View], Callable[[Ids], Ids], int]


@dataclass(frozen=True)
class Drawn:
    """A view with the ids of its elements, in the shape of its arrays; lanes are a last axis."""

    view: ArrayView
    ids: Ids
    lanes: int

    @property
    def depth(self) -> int:
        return self.ids.ndim - (1 if self.lanes else 0)


def type_of(shape: tuple[int, ...], lanes: int) -> Type:
    type_: Type = VectorType(const(lanes)) if lanes else ScalarType()
    for length in reversed(shape[: len(shape) - (1 if lanes else 0)]):
        type_ = ArrayType(type_, const(length))
    return type_


def buffer_of(shape: tuple[int, ...], name: str = "x") -> Buffer:
    return Buffer(name, Memory.GLOBAL, tuple(const(n) for n in shape), Role.INPUT)


def start(shape: tuple[int, ...], lanes: int) -> Drawn:
    whole = (*shape, lanes) if lanes else shape
    view = buffer_view(buffer_of(whole), type_of(whole, lanes))
    return Drawn(as_array(view), np.arange(np.prod(whole)).reshape(whole), lanes)


def divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def changes(ids: Ids, lanes: int) -> dict[str, st.SearchStrategy[Change]]:
    """What can be done to an array of this shape as a whole, by name."""
    shape, depth = ids.shape, ids.ndim - (1 if lanes else 0)
    length = shape[0]
    found: dict[str, st.SearchStrategy[Change]] = {
        "split": st.sampled_from(divisors(length)).map(
            lambda s: (
                lambda v, t: split_view(v, const(s), t),
                lambda a: a.reshape(-1, s, *a.shape[1:]),
                lanes,
            )
        ),
        "reverse": st.just((_reordered(OrderKind.REVERSE, 1, length), lambda a: a[::-1], lanes)),
        "stride": st.sampled_from(divisors(length)).map(
            lambda s: (
                _reordered(OrderKind.STRIDE, s, length),
                lambda a: np.concatenate([a[k::s] for k in range(s)]),
                lanes,
            )
        ),
        "slide": st.tuples(st.integers(1, length), st.integers(1, 3)).map(
            lambda pair: (
                lambda v, t: slide_view(v, const(pair[1]), t),
                lambda a: np.moveaxis(sliding_window_view(a, pair[0], axis=0), -1, 1)[:: pair[1]],
                lanes,
            )
        ),
    }
    if depth >= 2:
        found["transpose"] = st.just(
            (lambda v, t: transpose_view(v, t), lambda a: a.swapaxes(0, 1), lanes)
        )
        found["join"] = st.just(
            (lambda v, t: join_view(v, t), lambda a: a.reshape(-1, *a.shape[2:]), lanes)
        )
    if depth == 1 and lanes:
        found["as_scalar"] = st.just(
            (lambda v, t: scalar_view(v, const(lanes), t), lambda a: a.reshape(-1), 0)
        )
    if depth == 1 and not lanes and length > 1:
        found["as_vector"] = st.sampled_from(divisors(length)[1:]).map(
            lambda w: (
                lambda v, t: vector_view(v, const(w), t),
                lambda a: a.reshape(-1, w),
                w,
            )
        )
    return found


def _reordered(kind: OrderKind, amount: int, length: int) -> Callable[[ArrayView, ArrayType], View]:
    def view(v: ArrayView, t: ArrayType) -> View:
        def at(i: Expr) -> View:
            return v.at(reordered_index(kind, const(amount), const(length), i))

        return ArrayView(t, at, v.memories)

    return view


def changed(data: st.DataObject, drawn: Drawn) -> Drawn:
    """One random change, of the whole array or of its elements under so many maps."""
    inside = data.draw(st.integers(0, drawn.depth - 1), label="under so many maps")
    part = drawn.ids[(0,) * inside]
    possible = changes(part, drawn.lanes)
    # Vectors are what this is about: they are drawn more often.
    names = sorted(possible) + [n for n in possible if n.startswith("as_") or n == "transpose"] * 2
    name = data.draw(st.sampled_from(names), label="change")
    make, apply, lanes = data.draw(possible[name], label=name)
    outer = drawn.ids.shape[:inside]
    parts = [apply(drawn.ids[place]) for place in np.ndindex(*outer)]
    ids = np.stack(parts).reshape(*outer, *parts[0].shape)

    def under(view: View, depth: int) -> View:
        type_ = type_of(ids.shape[depth:], lanes)
        assert isinstance(type_, ArrayType)
        if depth == inside:
            return make(as_array(view), type_)
        array = as_array(view)
        return ArrayView(type_, lambda i: under(array.at(i), depth + 1), array.memories)

    return Drawn(as_array(under(drawn.view, 0)), ids, lanes)


def looked_up(drawn: Drawn, flat: tuple[int, ...]) -> Ids:
    """The ids that the view answers, by symbols that are given their values afterwards."""
    shape = drawn.ids.shape[: drawn.depth]
    names = [f"i{k}" for k in range(drawn.depth)]
    view: View = drawn.view
    for name, length in zip(names, shape, strict=True):
        view = as_array(view).at(symbol(name, length))
    assert isinstance(view, ScalarView) and isinstance(view.value, Load)
    found = np.empty(drawn.ids.shape, np.int64)
    for place in product(*(range(n) for n in drawn.ids.shape)):
        values: dict[str, int] = dict(zip(names, place[: drawn.depth], strict=True))
        if drawn.lanes:
            values[LANE] = place[-1]
        indices = [index.evaluate(values) for index in view.value.indices]
        assert all(0 <= i < n for i, n in zip(indices, flat, strict=True)), (indices, flat)
        found[place] = np.ravel_multi_index(indices, flat)
    return found


shapes = st.sampled_from([(4,), (6,), (2, 6), (4, 4), (3, 2, 4), (2, 2, 4), (8, 2)])
widths = st.sampled_from([0, 0, 2, 3, 4])


@settings(max_examples=cases(100, 300))
@given(st.data(), shapes, widths, st.integers(1, 7))
def test_views_upon_views_answer_as_numpy_does(
    data: st.DataObject, shape: tuple[int, ...], lanes: int, steps: int
) -> None:
    drawn = start(shape, lanes)
    whole = drawn.ids.shape
    for _ in range(steps):
        following = changed(data, drawn)
        if following.ids.size > 512 or following.depth > 5 or not following.ids.size:
            break
        drawn = following
    np.testing.assert_array_equal(looked_up(drawn, whole), drawn.ids)


def test_a_vector_of_transposed_components_of_vectors() -> None:
    # The lane of the outer vector is the row, that of the inner one the column.
    inner = start((4, 2), 2)
    rows = ArrayView(
        ArrayType(ArrayType(ScalarType(), const(4)), const(4)),
        lambda y: scalar_view(
            as_array(inner.view.at(y)), const(2), ArrayType(ScalarType(), const(4))
        ),
        inner.view.memories,
    )
    columns = transpose_view(rows, ArrayType(ArrayType(ScalarType(), const(4)), const(4)))
    vectors = vector_view(
        as_array(columns.at(symbol("r", 4))), const(2), ArrayType(VectorType(const(2)), const(2))
    )
    found = vectors.at(symbol("q", 2))
    assert isinstance(found, ScalarView) and isinstance(found.value, Load)
    for r, q, lane in product(range(4), range(2), range(2)):
        values: dict[str, Any] = {"r": r, "q": q, LANE: lane}
        place = [index.evaluate(values) for index in found.value.indices]
        assert place == [2 * q + lane, r // 2, r % 2]


def test_a_vector_written_into_transposed_components_of_vectors() -> None:
    # Writing mirrors reading: lanes of a stored vector go to lanes of vectors in other rows.
    rows = buffer_destination(buffer_of((4, 2, 2)), type_of((4, 2, 2), 2))

    def component(r: Expr, y: Expr) -> Destination:
        row = as_array_destination(as_array_destination(rows).at(y))
        return component_destination(row, const(2)).at(r)

    columns = nested_destination(Memory.GLOBAL, component)
    target = columns.at(symbol("r", 4))
    assert isinstance(target, ArrayDestination)
    found = lane_destination(target, const(2)).at(symbol("q", 2))
    assert isinstance(found, ScalarDestination)
    for r, q, lane in product(range(4), range(2), range(2)):
        values = {"r": r, "q": q, LANE: lane}
        assert [index.evaluate(values) for index in found.indices] == [2 * q + lane, r // 2, r % 2]
