"""What the commands say of invalid mappings and empty spaces; pins, bans and preferences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from mapper.constraint_rules.predicate import CodeVariable
from mapper.solver.explanation import Conflict
from mapper.solver.nearest import Change, Nearest
from nestmap.answers import conflict_to_json, nearest_to_json
from nestmap.cli import app
from nestmap.cli.exit_codes import ExitCode
from nestmap.cli.explanations import write_conflict, write_nearest
from nestmap.subjects import load_subject

EXAMPLES = Path(__file__).parents[3] / "examples"
TREE = str(EXAMPLES / "cc22_convolution_tree.json")
GLOBAL, LOCAL = str(EXAMPLES / "listing1_global.txt"), str(EXAMPLES / "listing1_local.txt")
M2 = str(EXAMPLES / "table1_m2.json")
NO_TILING = str(EXAMPLES / "no_tiling.txt")
SPACE = {
    "schema": "nestmap/space/1",
    "name": "small",
    "source": "a test",
    "parameters": {"layout": ["row", "column"], "width": [1, 2, 4]},
    "constraints": [{"id": "narrow", "expr": "layout == 'row' or width == 1"}],
}


def run(*args: str, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(app, list(args), input=stdin, env={"COLUMNS": "200"})
    assert "Traceback" not in result.output
    return result


def answer(*args: str, stdin: str | None = None, code: int = 0) -> Any:
    result = run(*args, "--json", stdin=stdin)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def lines(*args: str) -> list[Any]:
    result = run(*args, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def error(*args: str) -> Any:
    result = run(*args, "--json")
    assert result.exit_code == ExitCode.LIMIT, result.output
    assert result.stdout == ""
    return json.loads(result.stderr)["error"]


def mapping(codes: str) -> str:
    return json.dumps(dict(zip("ABCDE", codes.split(), strict=True)))


def test_the_nearest_valid_mapping_is_valid_and_can_be_generated(tmp_path: Path):
    found = answer("check", LOCAL, M2, code=1)
    nearest = found["nearest"]
    assert nearest["proven"] is True
    assert [(c["what"], c["name"], c["from"], c["to"]) for c in nearest["changes"]] == [
        ("map", "A", 31, 21),
        ("map", "B", 30, 11),
        ("map", "D", 30, 11),
        ("local size", "out.0", 2, 1),
    ]
    assert nearest["changes"][0]["sentence"] == "map A: G1 → W1"
    path = tmp_path / "nearest.json"
    path.write_text(json.dumps(nearest["assignment"]))
    assert answer("check", LOCAL, str(path)) == {
        "valid": True, "mode": "strict", "violations": [], "preferences": [], "assumed": {}
    }  # fmt: skip
    assert "kernel" in run("kernel", LOCAL, str(path)).stdout


def test_what_is_not_given_costs_nothing():
    # With one work-item a group nothing is wrong but the missing local size.
    found = answer("check", LOCAL, "-", stdin=mapping("W0 L0 S L0 V4"), code=1)
    assert [c["sentence"] for c in found["nearest"]["changes"]] == ["map E: V4 → S"]


TILES = """program "tiles" {
  size N = 60
  param tile in {2, 6, 10}
  fun f(x) = x * 2.0
  input x : [float]N
  kernel out = join(map#A(row => map#B(v => f(v), row), split(tile, x)))
}
"""


def test_where_no_parameter_completes_a_mapping_it_is_said_why(tmp_path: Path):
    program = tmp_path / "tiles.txt"
    program.write_text(TILES)
    codes = json.dumps({"A": "G0", "B": "V4"})
    found = answer("check", str(program), "-", stdin=codes, code=1)
    assert found["violations"]
    assert [part["sentence"] for part in found["completion_conflict"]["parts"]] == [
        "the vector width must divide the trip count tile of map B",
        "map B is pinned to V4",
        "tuning parameter tile is one of 2, 6, 10",
    ]
    assert [c["sentence"] for c in found["nearest"]["changes"]] == ["map B: V4 → V2"]
    shown = run("check", str(program), "-", stdin=codes).stdout
    assert "other tuning parameters and local sizes break something else" in shown
    certain = answer("check", LOCAL, "-", stdin=mapping("W0 L0 S L0 V4"), code=1)
    assert "completion_conflict" not in certain


def test_restrictions_bind_what_is_looked_for_and_not_the_verdict():
    found = answer("check", GLOBAL, M2, "--pin", "D=G0", "--forbid", "E=G1,G2", code=1)
    nearest = found["nearest"]["assignment"]["mapping"]
    assert nearest["D"] == 30
    assert nearest["E"] not in (31, 32)
    valid = ("check", GLOBAL, "-", "--forbid", "A=W0")
    assert answer(*valid, stdin=mapping("W0 L0 S L0 S"))["valid"] is True


def test_the_nearest_can_be_left_out():
    assert "nearest" not in answer("check", GLOBAL, M2, "--no-nearest", code=1)
    assert "nearest" not in run("check", GLOBAL, M2, "--no-nearest").stdout
    assert "nearest" not in answer("check", GLOBAL, "-", stdin=mapping("W0 L0 S L0 S"))


def test_where_nothing_is_near_the_conflict_is_given():
    args = ("check", GLOBAL, M2, "--pin", "C=S", "--pin", "D=G0", "--pin", "E=S")
    found = answer(*args, code=1)
    assert found["nearest"] is None
    assert {part["kind"] for part in found["conflict"]["parts"]} == {"constraint", "pin"}
    assert "these cannot hold together" in run(*args).stdout


def test_without_time_the_verdict_is_given_all_the_same():
    result = run("check", TREE, "-", "--json", "--time-limit", "0.000001",
                 stdin=json.dumps(every_map("L0")))  # fmt: skip
    assert result.exit_code == ExitCode.NEGATIVE
    found = json.loads(result.stdout)
    assert found["violations"]
    assert found["nearest"] is None
    assert "time" in result.stderr


def every_map(code: str) -> dict[str, str]:
    def ids(node: Any) -> list[str]:
        return [str(node["id"]), *(i for inner in node["nested"] for i in ids(inner))]

    tree = json.loads(Path(TREE).read_text())["tree"]
    roots = tree if isinstance(tree, list) else [tree]
    return {map_id: code for root in roots for map_id in ids(root)}


def test_all_broken_rules_are_listed_those_of_domains_and_vectors_too():
    found = answer("check", LOCAL, "-", "--no-nearest", stdin=mapping("V4 G0 S F V4"), code=1)
    broken = {(v["rule"], tuple(v["maps"]), v["buffer"]) for v in found["violations"]}
    assert {
        ("vectorisation", ("A",), None),
        ("perfect-nesting", ("D",), None),
        ("vectorisation", ("E",), "out_tmp_1"),
        ("shared-memory-scoping", ("B",), None),
        ("shared-memory-scoping", ("A", "B", "C", "D", "E"), "out_tmp_1"),
    } <= broken
    shown = run("check", LOCAL, "-", "--no-nearest", stdin=mapping("V4 G0 S F V4")).stdout
    assert "buffer" in shown
    assert "out_tmp_1" in shown


def test_paper_mode_explains_too():
    found = answer("check", TREE, "-", "--mode", "paper", stdin=json.dumps(every_map("S")), code=1)
    assert found["nearest"]["proven"] is True
    assert "local_sizes" not in found["nearest"]["assignment"]
    path = json.dumps(found["nearest"]["assignment"])
    assert answer("check", TREE, "-", "--mode", "paper", stdin=path)["valid"] is True


def test_tuning_spaces_are_explained_in_the_words_of_their_author(tmp_path: Path):
    path = tmp_path / "small.json"
    path.write_text(json.dumps(SPACE))
    bad = json.dumps({"layout": "column", "width": 4})
    found = answer("check", str(path), "-", "--pin", "width=4", stdin=bad, code=1)
    (change,) = found["nearest"]["changes"]
    assert (change["name"], change["from"], change["to"]) == ("layout", "column", "row")
    assert found["nearest"]["assignment"] == {"parameters": {"layout": "row", "width": 4}}
    args = ("solve", str(path), "--pin", "layout=column", "--forbid", "width=1")
    assert [part["sentence"] for part in error(*args)["conflict"]["parts"]][1:] == [
        "tuning parameter layout is pinned to column",
        "tuning parameter width is forbidden to be 1",
    ]


EMPTY = (GLOBAL, "--pin", "A=G1", "--pin", "C=S", "--pin", "D=G0", "--pin", "E=S")


@pytest.mark.parametrize("how", [(), ("--sample", "2"), ("--limit", "0"), ("--prefer", "B=G0")])
def test_an_empty_space_is_explained_however_it_is_solved(how: tuple[str, ...]):
    found = error("solve", *EMPTY, *how)
    assert found["kind"] == "unsatisfiable"
    assert "no mapping satisfies" in found["problems"][0]["message"]
    assert found["conflict"]["minimal"] is True
    parts = found["conflict"]["parts"]
    assert [part["constraint"] for part in parts] == [
        "cross-group-dependence/out/0", "pin/code(C)", "pin/code(D)", "pin/code(E)"
    ]  # fmt: skip
    assert set(parts[0]) == {
        "kind", "rule", "maps", "buffer", "sentence", "remedy", "constraint"
    }  # fmt: skip
    assert parts[0]["buffer"] == "out_tmp_1"


def test_in_text_the_conflict_is_a_table_and_the_error_one_line():
    result = run("solve", *EMPTY)
    assert result.exit_code == ExitCode.LIMIT
    assert "without any one of them the others can" in result.stdout
    assert "map C is pinned to S" in result.stdout
    assert "map A" not in result.stdout
    assert result.stderr.count("\n") == 1
    assert "no mapping satisfies the constraints and the restrictions" in result.stderr


def test_a_program_without_a_valid_mapping_is_explained_by_its_domain():
    parts = error("solve", NO_TILING)["conflict"]["parts"]
    assert [(part["kind"], part["rule"]) for part in parts] == [
        ("constraint", "algorithmic"), ("domain", "parameter-domain")
    ]  # fmt: skip
    assert parts[1]["sentence"] == "tuning parameter tile is one of 3, 5, 7"


def test_pins_of_several_values_and_bans_hold():
    found = lines("solve", TREE, "--mode", "paper", "--limit", "0", "--pin", "28=W0,W1", "--pin",
                  "52=L0", "--pin", "53=S", "--forbid", "51=L1", "--forbid", "51=L2")  # fmt: skip
    assert {line["mapping"]["28"] for line in found} == {20, 21}
    assert {(line["mapping"]["52"], line["mapping"]["53"]) for line in found} == {(10, 0)}
    assert not {line["mapping"]["51"] for line in found} & {11, 12}


def test_counts_of_a_split_add_up():
    def count(*how: str) -> int:
        return answer("solve", TREE, "--mode", "paper", "--count", *how)["count"]

    pinned, banned = count("--pin", "28=W0,W1,W2,G0"), count("--forbid", "28=W0,W1,W2,G0")
    assert pinned + banned == 41_094
    assert pinned > 0


def test_the_preferred_comes_first():
    found = lines("solve", LOCAL, "--prefer", "A=W0:3,W1:2", "--prefer", "out.0=8:2",
                  "--prefer", "B=L1", "--limit", "400")  # fmt: skip
    weights = [
        3 * (line["mapping"]["A"] == 20)
        + 2 * (line["mapping"]["A"] == 21)
        + 2 * (line["local_sizes"]["out"][0] == 8)
        + (line["mapping"]["B"] == 11)
        for line in found
    ]
    assert weights == sorted(weights, reverse=True)
    assert len(set(weights)) > 1
    assert len({str(line) for line in found}) == len(found) == 400
    assert "preferences met 5" in run("solve", LOCAL, "--prefer", "A=W0:5", "--limit", "1").stdout


def test_preferences_leave_nothing_out_and_give_each_mapping_of_a_tree_once():
    few = ("--pin", "28=W0", "--pin", "51=L0", "--pin", "53=L1")
    plain = lines("solve", TREE, *few, "--limit", "0")
    preferred = lines("solve", TREE, *few, "--limit", "0", "--prefer",
                      "cc22-mid-level-convolution.0=4", "--prefer", "30=W1")  # fmt: skip
    assert {str(line) for line in plain} == {str(line) for line in preferred}
    assert len(plain) == len(preferred) > 1
    first = [line["mapping"]["30"] == 21 for line in preferred]
    assert first == sorted(first, reverse=True)
    assert any(first)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--pin", "A", "not a pin"),
        ("--pin", "=W0", "not a pin"),
        ("--pin", "A=W0,", "not a pin"),
        ("--pin", "A=W0,Q", "--pin A: no such value; found 'Q'"),
        ("--forbid", "A", "not a forbidden value"),
        ("--forbid", "Z=W0", "--forbid Z: there is nothing of this name to forbid"),
        ("--forbid", "A=V4", "--forbid A: no such value"),
        ("--forbid", "out.0=three", "--forbid out.0: no such value"),
        ("--forbid", "out.3=1", "there is nothing of this name"),
        ("--forbid", "B=S,L0,L1,L2,W0,W1,W2,G0,G1,G2", "no value is left"),
        ("--prefer", "A=W0:", "no such weight"),
        ("--prefer", "A=W0:0", "--prefer A: no such weight; found '0'"),
        ("--prefer", "A=W0:-1", "no such weight"),
        ("--prefer", "A=W0:1000001", "allowed: 1 to 1000000"),
        ("--prefer", "A=W0:" + "9" * 5000, "no such weight"),
        ("--prefer", "A=W0:1,W0:2", "has two weights for one value"),
        ("--prefer", "A=" + "9" * 5000, "no such value"),
    ],
)
def test_bad_restrictions(option: str, value: str, words: str):
    result = run("solve", GLOBAL, option, value)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert words in result.stderr


def test_a_pin_on_what_is_forbidden_is_refused():
    result = run("solve", GLOBAL, "--pin", "A=W0", "--forbid", "A=W0")
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "no value is left" in result.stderr


@pytest.mark.parametrize("how", [("--count",), ("--sample", "2")])
def test_preferences_have_no_say_in_counts_and_samples(how: tuple[str, ...]):
    result = run("solve", GLOBAL, "--prefer", "A=W0", *how)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "preferences order what is enumerated" in result.stderr


def test_kernels_are_of_mappings_that_agree_with_what_is_wanted():
    drawn = answer("kernel", LOCAL, "--pin", "A=W1", "--forbid", "C=S,F,V2,V4")
    assert drawn["choices"]["mapping"]["A"] == 21
    assert drawn["choices"]["mapping"]["C"] not in (0, 1, 2, 4)
    best = answer("kernel", LOCAL, "--prefer", "A=W2:2", "--prefer", "out.2=4", "--pin", "E=S")
    assert best["choices"]["mapping"]["A"] == 22
    assert best["choices"]["local_sizes"]["out"] == [1, 1, 4]
    for more in ((), ("--prefer", "B=G0")):
        assert error("kernel", *EMPTY, *more)["conflict"]["minimal"] is True
    result = run("kernel", LOCAL, M2, "--pin", "A=W1")
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "a mapping is given" in result.stderr


def test_what_is_not_proven_is_not_claimed(capsys: pytest.CaptureFixture[str]):
    change = Change(CodeVariable("A"), 20, 21)
    unproven = Nearest({CodeVariable("A"): 21}, (change,), proven=False)
    write_nearest("mapping", nearest_to_json(load_subject(LOCAL), unproven))
    write_conflict(conflict_to_json(Conflict((), minimal=False)))
    shown = capsys.readouterr().out
    assert "1 change, that fewer would not do is not proven within the time limit" in shown
    assert "they may not be minimal" in shown
    assert "without any one of them" not in shown
    assert nearest_to_json(load_subject(LOCAL), unproven)["proven"] is False
    assert conflict_to_json(Conflict((), minimal=False)) == {"minimal": False, "parts": []}
