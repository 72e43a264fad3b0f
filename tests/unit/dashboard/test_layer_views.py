"""The address of a layer's page holds every choice; counts, lists and checks say what is so."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from hypothesis import given
from hypothesis import strategies as st

from api.dashboard.formats import large
from api.dashboard.views.layers import (
    LayerAddress,
    StatedChoices,
    broken_rules,
    checked_document,
    choices,
    mapping_rows,
    marked_maps,
    nearest_view,
    waterfall_rows,
)

VARIABLES = [
    {"name": "a=b", "kind": "map", "values": [0, 20, 31]},
    {"name": "in", "kind": "map", "values": [0, 1]},
    {"name": "theta", "kind": "parameter", "values": [4, 8]},
    {"name": "mode", "kind": "parameter", "values": ["x", "y"]},
    {"name": "k.0", "kind": "local size", "values": [1, 2]},
]
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1)


@given(st.lists(NAMES, max_size=4), st.lists(NAMES, max_size=4))
def test_an_address_holds_what_was_chosen_whatever_it_is(pins, forbids):
    address = LayerAddress("/layers/x", view="mappings", pins=tuple(pins), forbids=tuple(forbids))
    query = parse_qsl(urlsplit(address.url()).query, keep_blank_values=True)
    assert [value for name, value in query if name == "pin"] == pins
    assert [value for name, value in query if name == "forbid"] == forbids


def test_a_pin_takes_the_place_of_another_of_the_same_map():
    address = LayerAddress("/layers/x").pinned("a=b", "W0").pinned("in", "S").pinned("a=b", "G1")
    assert address.pins == ("in=S", "a=b=G1")
    assert address.without("pin", "in=S").pins == ("a=b=G1",)
    twice = address.forbidden("in", "F").forbidden("in", "F")
    assert twice.forbids == ("in=F",) and twice.without("forbid", "in=F").forbids == ()
    assert address.checking(["in=S"]).at("rules").chosen == ()


@given(st.sampled_from(["", "all"]), st.booleans(), st.lists(NAMES, max_size=3))
def test_what_is_stated_stands_in_the_address_and_in_the_question(suits, free, where):
    stated = StatedChoices(suits, free_grid=free, where=tuple(where))
    query = parse_qsl(urlsplit(LayerAddress("/l", stated=stated).url()).query)
    assert query == stated.fields()
    about = stated.about()
    assert about["where"] == where and about["free_grid"] is free
    assert about["sequential_fusion"] and about["suits"] == [suits] * bool(suits)


def test_numbers_of_mappings_are_grouped_and_then_powers_of_ten():
    assert large(None) == "–"
    assert large(41_094) == "41\u202f094"
    assert large(10**12 - 1).count("\u202f") == 3
    assert large(1861929434580525006870009375) == "1.86\u202f×\u202f10²⁷"
    assert large(10**400).endswith("10⁴⁰⁰")


def test_a_waterfall_says_what_each_rule_leaves_and_what_was_not_counted():
    steps = [
        {"rule": "no-mixing", "constraints": 1, "before": 10**30, "after": 10**10},
        {"rule": "algorithmic", "constraints": 2, "before": 10**10, "after": 10**10},
        {"rule": "vectorisation", "constraints": 3, "before": 10**10, "after": 5 * 10**9},
        {"rule": "device-limits", "constraints": 4, "before": 5 * 10**9, "after": 0},
        {"rule": "local-sizes", "constraints": 5, "before": 0, "after": None},
    ]
    rows = waterfall_rows(steps)
    assert [row.factor for row in rows] == [
        "one in 1.00\u202f×\u202f10²⁰", "all stay", "50.0\u202f% stay", "none stays", "",
    ]  # fmt: skip
    assert rows[0].share_before == 100 > rows[0].share_after == rows[1].share_before > 0
    assert rows[4].after is None and rows[3].share_after == 0
    assert waterfall_rows([]) == ()


def test_what_is_checked_has_numbers_for_parameters_and_names_maps_without_a_code():
    document, missing = checked_document(VARIABLES, ["a=b=G1", "theta=8", "mode=y", "theta2=1"])
    assert document == {"mapping": {"a=b": "G1"}, "parameters": {"theta": 8, "mode": "y"}}
    assert missing == ["in"]
    wrong, _ = checked_document(VARIABLES, ["a=b=Q", "in=S", "theta=5"])
    assert wrong == {"mapping": {"a=b": "Q", "in": "S"}, "parameters": {"theta": "5"}}
    space, none_missing = checked_document(VARIABLES[2:], ["theta=4"])
    assert space == {"parameters": {"theta": 4}} and none_missing == []


def test_choices_are_maps_and_parameters_with_what_was_chosen():
    found = choices(VARIABLES, ["a=b=G1"])
    assert [choice.name for choice in found] == ["a=b", "in", "theta", "mode"]
    assert found[0].chosen == "G1" and found[1].chosen == ""
    assert [option.value for option in found[0].options] == ["S", "W0", "G1"]


def test_a_listed_mapping_leads_to_pins_and_to_its_check():
    item = {"number": 7, "mapping": {"in": 20}, "parameters": {"theta": 4},
            "local_sizes": {"k": [1, 2, 3]}}  # fmt: skip
    row = mapping_rows([item], LayerAddress("/layers/x", view="mappings", pins=("in=W0",)))[0]
    assert row.number == 7 and row.codes[0].is_pinned
    assert ("k local size", "1 × 2 × 3", "") in row.rest
    assert parse_qsl(urlsplit(row.check_url).query)[-2:] == [("set", "in=W0"), ("set", "theta=4")]


def test_maps_light_up_for_what_they_break_and_of_a_whole_kernel_the_parallel_ones():
    maps = [str(number) for number in range(10)]
    broken = broken_rules([
        {"rule": "no-mixing", "maps": maps, "buffer": None, "sentence": "", "remedy": ""},
        {"rule": "vectorisation", "maps": [3], "buffer": "b", "sentence": "", "remedy": ""},
    ])  # fmt: skip
    marked = marked_maps(broken, {"1": "W0", "2": "S", "4": "nonsense"})
    assert set(marked) == {"1", "3"}
    assert set(marked_maps(broken, {})) == set(maps)


def test_the_nearest_mapping_can_be_taken():
    found = {
        "proven": True,
        "assignment": {"mapping": {"in": 0}, "parameters": {"theta": 8}},
        "changes": [
            {"what": "map", "name": "in", "from": 30, "to": 0, "sentence": ""},
            {"what": "parameter", "name": "theta", "from": 4, "to": 8, "sentence": ""},
        ],
    }
    near = nearest_view(found, LayerAddress("/layers/x"))
    assert [(c.before, c.after) for c in near.changes] == [
        ("G0: global threads, dimension 0", "S: sequential"), ("4", "8"),
    ]  # fmt: skip
    assert "set=in%3DS&set=theta%3D8" in near.url
