"""Names that are refused are refused with those that exist."""

from __future__ import annotations

import pytest

from mapper.layer_sets import is_layer_name, layer_set_names, load_layer_set, names_in_short
from nestmap.cli import app


def test_a_layer_that_does_not_exist_is_not_among_those_that_are_offered(
    capsys: pytest.CaptureFixture[str],
):
    with pytest.raises(SystemExit) as stopped:
        app(["solve", "vgg16/20"])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert "'vgg16/20'" in said or "vgg16/20: " in said
    offered = said.partition("a layer's name: ")[2]
    assert "vgg16/19, vgg16/21" in offered
    assert "vgg16/0 to" not in offered


def test_all_names_that_are_offered_exist_and_none_is_left_out():
    offered: set[str] = set()
    for part in names_in_short().split(", "):
        first, _, last = part.partition(" to ")
        base, _, low = first.rpartition("/")
        high = (last or first).rpartition("/")[2]
        offered |= {f"{base}/{n}" for n in range(int(low), int(high) + 1)}
    assert all(is_layer_name(name) for name in offered)
    for name in layer_set_names():
        assert {listed.layer.name for listed in load_layer_set(name).layers} <= offered
