"""The published tuning spaces in ``bench/spaces`` have the sizes that their sources state."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from mapper.constraint_rules.evaluation import evaluate
from mapper.solver.diagram.compile import compile_space
from mapper.tuning_space.codec import space_from_json, space_to_json
from mapper.tuning_space.document import TuningSpace
from mapper.tuning_space.lowering import solver_space

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "bench" / "spaces"
DOCUMENTATION = ROOT / "docs" / "spaces.md"
FILES = sorted(FOLDER.glob("*.json"))


def read(path: Path) -> TuningSpace:
    return space_from_json(path.read_bytes())


def test_all_twelve_are_here():
    assert len(FILES) == 12
    assert all(read(path).licence and read(path).source for path in FILES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_is_read_and_written_back(path: Path):
    space = read(path)
    assert space.name == path.stem
    assert space.expected_count is not None
    assert space_from_json(space_to_json(space)) == space


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_count_is_the_published_one(path: Path):
    space = read(path)
    assert compile_space(solver_space(space)).count == space.expected_count


@pytest.mark.parametrize("name", ["clblast_xconvgemm", "hub_convolution", "atf_prl_2x2"])
def test_the_count_is_that_of_a_look_at_every_configuration(name: str):
    stated = read(FOLDER / f"{name}.json")
    assert valid_configurations(stated) == stated.expected_count


def test_the_documented_example_has_the_size_that_it_states():
    text = DOCUMENTATION.read_text(encoding="utf-8")
    (example,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    stated = space_from_json(example)
    assert valid_configurations(stated) == stated.expected_count


def valid_configurations(stated: TuningSpace) -> int:
    space = solver_space(stated)
    variables = [variable for variable, _ in space.variables]
    valid = 0
    for values in product(*(domain for _, domain in space.variables)):
        assignment = dict(zip(variables, values, strict=True))
        valid += all(evaluate(c.predicate, assignment) for c in space.constraints)
    return valid
