"""JSON programs and trees: what is read, and every way in which a stranger can be wrong."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mapper.ast_model.bounded_json import MAX_BYTES, loads_bounded
from mapper.ast_model.codec import program_from_json, program_to_json
from mapper.ast_model.context import NestContext
from mapper.ast_model.nest_codec import nest_from_json, nest_to_json
from mapper.ast_model.text_form import parse
from mapper.ast_model.types import Memory
from mapper.errors import InputError

EXAMPLE = Path(__file__).parents[3] / "examples" / "cc22_convolution_tree.json"


def tree(**changes: Any) -> dict[str, Any]:
    return {"id": 1, "trip": "n", "reads": ["global"], "writes": "global",
            "perfectly_nested": False, "nested": [], **changes}  # fmt: skip


def test_program_in_json(golden: Callable[[str, str], None]) -> None:
    program = parse(
        'program "p" { size N = 8 param w in {2, 4} require w | N fun f(a, b) = a * b + 1.0 '
        "input x : [[float]2]N kernel k = map#1(r => reduce((s, e) => f(s, e), 0.0, r), "
        "slide_strict(w, w, join(x))) }"
    )
    text = json.dumps(program_to_json(program), indent=1)
    golden("program.json", text + "\n")
    assert program_from_json(text) == program_from_json(text.encode()) == program


def test_all_problems_of_a_program_at_once(golden: Callable[[str, str], None]) -> None:
    value = {
        "schema": "nestmap/program/9",
        "name": 1,
        "sizes": {"H": "x"},
        "parameters": [{"name": "p", "values": [1, True]}, 3],
        "requirements": ["a <"],
        "functions": [{"name": "f", "parameters": ["x"], "body": "x +"}],
        "inputs": [{"name": "x", "type": "[float", "more": 1}],
        "kernels": [
            {"name": "k", "body": {"op": "map", "id": -1, "body": {"op": "zap"}, "argument": 3}},
            {"name": "l", "body": {"op": "split", "size": "a**b", "argument": {"op": "zip"}}},
            {"body": {"op": "to", "memory": "disk", "argument": {"op": "ref", "name": None}}},
        ],
        "extra/field": 0,
    }
    with pytest.raises(InputError) as caught:
        program_from_json(value)
    golden("program_problems.txt", f"{caught.value}\n")


@pytest.mark.parametrize("value", [None, 1, "x", "[]", b"\xff", "{", "", "[" * 10_000])
def test_what_is_no_program(value: object) -> None:
    with pytest.raises(InputError):
        program_from_json(value)


def test_deep_values_without_text() -> None:
    value: Any = {"op": "ref", "name": "x"}
    for _ in range(10_000):
        value = {"op": "join", "argument": value}
    with pytest.raises(InputError, match="nested too deeply"):
        program_from_json(
            {"schema": "nestmap/program/1", "name": "x", "inputs": [], "kernels": [value]}
        )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1, "a": 2}', "twice"),
        ('{"a": NaN}', "NaN"),
        ("[-Infinity]", "Infinity"),
        ("1e999", "too large"),
        ("9223372036854775808", "64 bits"),
        ("1" * 5000, "64 bits"),
        ("[" * 513 + "]" * 513, "512 levels"),
        ("[1,]", "malformed JSON"),
        (b"\xff\xfe", "UTF-8"),
        ('"' + "x" * 9_000_000 + '"', "too long"),
    ],
)
def test_refused_json(text: str | bytes, words: str) -> None:
    with pytest.raises(InputError) as caught:
        loads_bounded(text)
    assert words in str(caught.value)


def test_json_in_its_bounds() -> None:
    assert loads_bounded('{"]]]]": "[[[\\"[[", "n": -9223372036854775808}')["n"] == -(2**63)
    assert loads_bounded("[" * 512 + "]" * 512)


def test_scan_of_odd_quotes_is_linear() -> None:
    start = time.perf_counter()
    with pytest.raises(InputError):
        loads_bounded('"\\' * 500_000)
    assert time.perf_counter() - start < 5


def test_the_papers_tree() -> None:
    document = nest_from_json(EXAMPLE.read_bytes())
    context = NestContext(document.nest)
    assert len(context.concrete_maps) == 43
    assert len(context.nesting_chains) == 9
    assert len(context.uses_private) == 32
    assert len(context.uses_local) == 11
    assert sum(bool(context.nested_maps(m)) for m in context.concrete_maps) == 34
    assert len(document.requirements) == 13
    assert nest_from_json(json.dumps(nest_to_json(document))) == document


@pytest.mark.parametrize(
    ("value", "path", "words"),
    [
        ({}, "/tree", "missing"),
        ({"tree": tree(), "trees": 1}, "/trees", "unknown field"),
        ({"tree": tree(), "schema": "nestmap/nest/2"}, "/schema", "another schema"),
        ({"tree": []}, "/tree", "no maps"),
        ({"tree": 3}, "/tree", "not an object"),
        ({"tree": tree(trip=0)}, "/tree/trip", "at least once"),
        ({"tree": tree(trip="-1")}, "/tree/trip", "at least once"),
        ({"tree": tree(trip="n**2")}, "/tree/trip", "powers"),
        ({"tree": tree(trip="exec(1)")}, "/tree/trip", "call nothing"),
        ({"tree": tree(trip=1.5)}, "/tree/trip", "not an integer expression"),
        ({"tree": tree(trip="k"), "symbols": {"n": "rows"}}, "/tree/trip", "not among"),
        ({"tree": tree(id=None)}, "/tree/id", "not a map id"),
        ({"tree": tree(reads=["disk"])}, "/tree/reads/0", "private, local, global"),
        ({"tree": tree(writes=[])}, "/tree/writes", "not a memory"),
        ({"tree": tree(perfectly_nested=True)}, "/tree/perfectly_nested", "nested in none"),
        ({"tree": tree(perfectly_nested=0)}, "/tree/perfectly_nested", "neither true"),
        ({"tree": tree(nested=[tree()])}, "/tree/nested/0/id", "1 at /tree"),
        ({"tree": tree(), "divides": ["a<b"]}, "/divides/0", "division"),
        ({"tree": tree(), "symbols": {"n": "rows", "a/b": 1}}, "/symbols/a~1b", "not a text"),
    ],
)
def test_refused_trees(value: object, path: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        nest_from_json(value)
    (problem,) = caught.value.problems
    assert problem.path == path
    assert words in str(problem)


def test_large_trees() -> None:
    leaves = [tree(id=number) for number in range(2, 10_002)]
    with pytest.raises(InputError, match="10000 maps"):
        nest_from_json({"tree": tree(nested=leaves)})
    text = json.dumps({"tree": tree(nested=leaves)})
    with pytest.raises(InputError, match="too long"):
        nest_from_json(text.replace("[{", "[" + " " * MAX_BYTES + "{", 1))
    deep = '{"id":1,"nested":[' * 10_000
    with pytest.raises(InputError, match="512 levels"):
        nest_from_json('{"tree":' + deep)


def test_forests_and_writes_beside_nested_maps() -> None:
    inner = tree(id="b", writes="private", perfectly_nested=True)
    outer = tree(id="a", nested=[inner], leaf_writes=["private"], reads_constants=True)
    document = nest_from_json({"tree": [outer, tree(id=3)]})
    assert nest_from_json(nest_to_json(document)) == document
    context = NestContext(document.nest)
    a, b, c = context.concrete_maps
    assert a.reads_constants and not b.reads_constants
    assert [tuple(m.id for m in chain) for chain in context.nesting_chains] == [
        ("a",), ("a", "b"), (3,)
    ]  # fmt: skip
    assert context.outer_maps(b) == (a,) and context.nested_maps(a) == (b,)
    assert context.parent(b) is a and context.parent(c) is None
    assert context.perfectly_nested_in(b, a) and not context.perfectly_nested_in(a, b)
    assert context.perfect_run(a) == (b,) and context.perfect_run(c) == ()
    assert context.map("b").leaf_writes == (Memory.PRIVATE,)
    with pytest.raises(InputError, match="no such map"):
        context.map("nope")
