"""Facts of nodes are found once: what a step leaves alone stays the very node that it was."""

from __future__ import annotations

import pytest

from mapper.ast_model.nodes import Map
from mapper.ast_model.text_form import parse
from mapper.errors import InputError
from mapper.schedules import facts
from mapper.schedules.facts import facts_of, obligations_in
from mapper.schedules.primitives.split import split
from mapper.schedules.tree import all_nodes, is_view, nodes_of

TWO = parse("""program "two" {
  size M = 8
  size N = 6
  input a : [[float]N]M
  kernel first = map#row(x => map#column(y => id(y), x), a)
  kernel second =
    let t = to_private(map#r(u => map#c(v => id(v), u),
      map#l(w => reorder(reverse, w), first))) in
    map#p(m => map#q(n => add(n, 1.0), m), t)
}""")


def test_a_step_keeps_the_nodes_that_it_does_not_change() -> None:
    before = {id(node) for node in all_nodes(TWO)}
    after = split(TWO, "row", 4).program
    other = after.kernels[1].body
    assert all(id(node) in before for node in nodes_of(other))


def test_facts_are_those_of_a_walk() -> None:
    body = TWO.kernels[1].body
    found = facts_of(body)
    nodes = list(nodes_of(body))
    maps = [node for node in nodes if isinstance(node, Map)]
    assert found.size == len(nodes) and found.free == {"first"}
    assert found.computing == {str(m.id) for m in maps if not is_view(m.body)} == set("rcpq")
    assert found.computing_maps == 4 and found.layouts == {"l"} and found.layout_maps == 1
    assert found.bound == {"t", *"uvwmn"} and found.bindings == 6
    assert not found.is_view and not found.is_wordy


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "MOST_NODES", 10)
    program = TWO
    for size in (4, 2):
        program = split(program, "row" if size == 4 else "row_in_tile", size).program
    known = facts._KNOWN.facts  # pyright: ignore[reportPrivateUsage]
    assert len(known) <= 10 + facts_of(program.kernels[0].body).size + facts_of(
        program.kernels[1].body).size  # fmt: skip
    assert "row_in_tile_tile" in facts_of(program.kernels[0].body).computing


def test_demands_are_asked_for_once() -> None:
    step = split(TWO, "row", "bm")
    assert step.constraints == ("bm | M",)
    assert obligations_in(step.program) is obligations_in(step.program)
    with pytest.raises(InputError):
        split(TWO, "row", 3)


def test_names_in_what_is_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "MOST_NAMES", 30)
    program = TWO
    for map_id in ("column", "q", "r", "c"):
        program = split(program, map_id, 2).program
    known = facts._KNOWN  # pyright: ignore[reportPrivateUsage]
    found = [facts_of(node) for node in all_nodes(program)]
    in_one = sum(len(f.bound) + len(f.computing) + len(f.layouts) for f in found)
    assert 0 < known.names <= 30 + 2 * in_one
