"""Names that do not exist are refused with those that do, and names that cannot be stored, too."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mapper.errors import InputError
from mapper.layer_sets import is_layer_name, layer_set_names, load_layer_set, names_in_short
from mapper.schedules.schedule_text import parse_schedule, schedule_from_json
from nestmap.cli import app
from nestmap.subjects import subject_of_text


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


UNSTORABLE = ["a\0b", "a\ud800b"]


@pytest.mark.parametrize("name", UNSTORABLE, ids=ascii)
@pytest.mark.parametrize(
    "document",
    [
        {"schema": "nestmap/layer/2", "channels": 3, "height": 8, "width": 8, "filters": 4},
        {"schema": "nestmap/nest/1", "tree": [{"id": 0, "trip": 4}]},
        {"schema": "nestmap/space/1", "parameters": {"a": [1, 2]}},
    ],
    ids=lambda document: document["schema"],
)
def test_names_in_texts_hold_nothing_that_no_database_stores(
    document: dict[str, Any], name: str
) -> None:
    """A body of the API is read for it, but not what stands in a text within one."""
    with pytest.raises(InputError, match="/name: holds a NUL or half of a surrogate pair"):
        subject_of_text(json.dumps({**document, "name": name}))


def test_what_only_looks_like_a_nul_is_a_name() -> None:
    layer = {"channels": 3, "height": 8, "width": 8, "filters": 4, "name": "a\\u0000b 😀"}
    assert subject_of_text(json.dumps(layer)).label == "a\\u0000b 😀"


@pytest.mark.parametrize("name", [*UNSTORABLE, "a\nb", "x" * 65], ids=lambda name: ascii(name)[:9])
def test_names_of_schedules_are_printable(name: str) -> None:
    """Of a program under a schedule it is the variant, which is stored and shown."""
    with pytest.raises(InputError, match="not a schedule's name"):
        parse_schedule(f"schedule {json.dumps(name)} {{ }}")
    with pytest.raises(InputError, match="not a schedule's name"):
        schedule_from_json({"schema": "nestmap/schedule/1", "name": name, "steps": []})
