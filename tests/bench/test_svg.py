"""Charts as SVG: nothing that they say is cut off, and bars are as long as their values."""

from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from bench.svg import Axis, Bars, Panel, Series, bar_charts, chart
from tests.effort import cases

#: DejaVu Sans, the widest of the common ones, has 0.6 of its height for a character in the mean.
CHARACTER = 0.6
names = st.lists(
    st.text("abcdefghijklmnopqrstuvwxyz_: &<", max_size=60), min_size=1, max_size=5, unique=True
)


def cut_off(svg: str) -> list[str]:
    """Texts that begin within the picture and are longer than what is left of it."""
    root = ElementTree.fromstring(svg)
    width = float(root.attrib["viewBox"].split()[2])
    found: list[str] = []
    for item in root.iter("{http://www.w3.org/2000/svg}text"):
        if "transform" in item.attrib:
            continue
        size = float(item.get("font-size", "12")) * CHARACTER * len(item.text or "")
        share = {"middle": 0.5, "end": 0.0}.get(item.get("text-anchor", ""), 1.0)
        if float(item.attrib["x"]) + size * share > width:
            found.append(item.text or "")
    return found


@settings(max_examples=cases(15, 30))
@given(names, st.text("abc ", max_size=120))
def test_names_and_title_of_a_chart_are_within_the_picture(names: list[str], title: str):
    series = [Series(name, [(1.0, 2.0), (3.0, 4.0)]) for name in names]
    assert not cut_off(chart(title, Axis("x"), Axis("y"), series))


@settings(max_examples=cases(15, 30))
@given(names, names)
def test_names_and_categories_of_bars_are_within_the_picture(
    names: list[str], categories: list[str]
):
    bars = [Bars(name, [1.0] * len(categories)) for name in names]
    assert not cut_off(bar_charts("bars", categories, [Panel(Axis("y", low=0.0), bars)]))


def test_bars_of_a_linear_axis_from_zero_are_as_long_as_their_values():
    bars = [Bars("a", [1.0, 4.0]), Bars("b", [None, 3.0])]
    text = bar_charts("bars", ["left", "right"], [Panel(Axis("y", low=0.0), bars)])
    root = ElementTree.fromstring(text)
    # The first is the ground and the last two are the legend's.
    _, *drawn, _, _ = root.iter("{http://www.w3.org/2000/svg}rect")
    heights = [float(bar.attrib["height"]) for bar in drawn]
    assert [round(4 * height / max(heights), 2) for height in heights] == [1, 4, 3]
