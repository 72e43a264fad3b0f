"""Loops of a program as text and as a picture."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from mapper.ast_model.text_form import parse
from mapper.schedules.loop_pictures import loops_svg
from mapper.schedules.loops import loops_of, loops_text
from mapper.schedules.schedule import derived
from mapper.schedules.schedule_text import parse_schedule
from mapper.schedules.tree import concrete_maps

PRODUCT = parse("""program "p" {
  size M = 8
  size N = 6
  size K = 4
  input a : [[float]K]M
  input b : [[float]N]K
  kernel product = map#row(x => join(map#column(y => reduce((acc, k) => fma(k.0, k.1, acc), 0.0,
    zip(x, y)), transpose(b))), a)
}""")
STAGED = """schedule "s" {
  move_inside(column)
  split_reduce(k, 2)
  stage(k_tile, b, local)
}"""


def test_loops_stand_in_the_order_in_which_they_run_with_their_lengths() -> None:
    assert loops_text(PRODUCT).splitlines() == [
        "kernel product", "  map row x M", "    map column x N", "      reduce k x K",
    ]  # fmt: skip
    staged = derived(PRODUCT, parse_schedule(STAGED))
    assert loops_text(staged).splitlines() == [
        "kernel product",
        "  map row x M",
        "    map column_zero x N",
        "    reduce k_tile x K/2",
        "      buffer b_local in local",
        "        map b_local x 2",
        "          map b_local_1 x N",
        "      reduce k_in_tile x 2",
        "        map column x N",
    ]
    maps = [line.split()[1] for line in loops_text(staged).splitlines() if " map " in line]
    assert sorted(maps) == sorted(str(m.id) for m in concrete_maps(staged))


def test_a_picture_has_a_box_for_every_loop_inside_that_of_the_loop_around() -> None:
    staged = derived(PRODUCT, parse_schedule(STAGED))
    root = ET.fromstring(loops_svg([("before", PRODUCT), ("after", staged)]))
    space = "{http://www.w3.org/2000/svg}"
    texts = [t.text for t in root.iter(f"{space}text")]
    boxes = [{k: float(r.get(k, 0)) for k in ("x", "y", "width", "height")}
             for r in root.iter(f"{space}rect")][1:]  # fmt: skip
    loops = [line for p in (PRODUCT, staged) for line in loops_text(p).splitlines()]
    assert len(boxes) == len(loops) and len(texts) == len(loops) + 2
    assert "b_local in local memory" in texts and "reduce k_tile × K/2" in texts
    wide, high = float(root.get("width", 0)), float(root.get("height", 0))
    around: list[dict[str, float]] = []
    for box, line in zip(boxes, loops, strict=True):
        assert box["x"] + box["width"] <= wide and box["y"] + box["height"] <= high
        depth = (len(line) - len(line.lstrip())) // 2
        del around[depth:]
        if around:
            outer = around[-1]
            assert outer["x"] < box["x"] and outer["y"] < box["y"]
            assert box["x"] + box["width"] < outer["x"] + outer["width"]
            assert box["y"] + box["height"] <= outer["y"] + outer["height"]
        around.append(box)


def test_names_are_what_a_schedule_finds() -> None:
    for kernel in loops_of(PRODUCT):
        (row,) = kernel.loops
        (column,) = row.inner
        (reduce,) = column.inner
        assert derived(PRODUCT, parse_schedule(
            f'schedule "s" {{ split({row.name}, 2) split_reduce({reduce.name}, 2) }}'))  # fmt: skip
