"""What is measured: documents, with what is known of their solutions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from bench.space_solving.contestants.problem import Problem
from bench.space_solving.hopeless import fine_hotspot, reduction_over_divisors, side_by_side
from bench.space_solving.predicate_text import conjuncts, predicate_text
from mapper.ast_model.nest_codec import NEST_SCHEMA, nest_from_json
from mapper.constraint_rules.predicate import CodeVariable, Variable
from mapper.constraint_rules.rule import Mode
from mapper.errors import InputError
from mapper.errors import Problem as Fault
from mapper.solver.space import build_space
from mapper.tuning_space.codec import SPACE_SCHEMA, space_from_json, space_to_json
from mapper.tuning_space.document import TuningSpace

ROOT = Path(__file__).resolve().parents[2]
SPACES = ROOT / "bench" / "spaces"
TREE = ROOT / "examples" / "cc22_convolution_tree.json"
TREE_NAME = "cc22_tree"
#: The published number of mappings of the tree, CC'22, section 5.3.
TREE_MAPPINGS = 41_094
_MEMORABLE_BYTES = 2**22


@dataclass(frozen=True)
class Case:
    """A problem. ``expected`` is the known number of solutions, if it is known.

    ``enumerable`` is False where all solutions would not fit into memory: then they are
    counted and sampled only.
    """

    name: str
    problem: Problem
    expected: int | None
    enumerable: bool = True

    @property
    def combinations(self) -> int:
        """Before any constraint."""
        return prod(len(values) for values in self.problem.parameters.values())

    @property
    def fingerprint(self) -> str:
        """Of all that a contestant gets, so that old figures of another problem are noticed."""
        problem = self.problem
        whole = [problem.parameters, problem.constraints, problem.schema, problem.document]
        return hashlib.sha256(json.dumps(whole).encode()).hexdigest()[:16]


def tuning_case(space: TuningSpace, *, enumerable: bool = True) -> Case:
    """A tuning space for everyone: the constraints' texts, which the reader accepted."""
    for constraint in space.constraints:
        constraint.parsed()
    problem = Problem(
        {parameter.name: parameter.values for parameter in space.parameters},
        tuple(constraint.expression for constraint in space.constraints),
        SPACE_SCHEMA,
        json.dumps(space_to_json(space)),
    )
    return Case(space.name, problem, space.expected_count, enumerable)


def nest_case(name: str, document: str, expected: int | None = None) -> Case:
    """A nest tree's mappings in paper mode: nestmap gets the tree, the others its constraints
    as expressions over codes, one parameter ``c<id>`` a map."""
    space = build_space(nest_from_json(document).nest, Mode.PAPER)
    names: dict[Variable, str] = {
        variable: f"c{variable.map_id}"
        for variable, _ in space.variables
        if isinstance(variable, CodeVariable)
    }
    parts = conjuncts(constraint.predicate for constraint in space.constraints)
    problem = Problem(
        {names[variable]: domain for variable, domain in space.variables},
        tuple(predicate_text(part, names) for part in parts),
        NEST_SCHEMA,
        document,
    )
    return Case(name, problem, expected)


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _MEMORABLE_BYTES:
            raise InputError(Fault(str(path), "the file is too large", "", "4 MiB"))
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Fault(str(path), "cannot be read", str(error))) from error


def _published(name: str) -> TuningSpace:
    return space_from_json(_text(SPACES / f"{name}.json"))


_MADE: dict[str, Callable[[], Case]] = {
    TREE_NAME: lambda: nest_case(TREE_NAME, _text(TREE), TREE_MAPPINGS),
    "atf_prl_4096x4096_divisors": lambda: tuning_case(
        reduction_over_divisors(_published("atf_prl_16x16")), enumerable=False
    ),
    "hotspot_fine": lambda: tuning_case(fine_hotspot(_published("hotspot")), enumerable=False),
    "hotspot+gemm+expdist": lambda: tuning_case(
        side_by_side([_published(name) for name in ("hotspot", "gemm", "expdist")]),
        enumerable=False,
    ),
}


def known_names() -> list[str]:
    """The published spaces of this checkout, the tree, and what is too large to enumerate."""
    return [*sorted(path.stem for path in SPACES.glob("*.json")), *_MADE]


def load_cases(chosen: Sequence[str]) -> Iterable[Case]:
    """The cases of these names or files, all that are known if none is named; one by one.

    InputError names one that is neither.
    """
    names = list(dict.fromkeys(chosen)) or known_names()
    known = set(known_names())
    for name in names:
        if name not in known and not name.endswith(".json"):
            raise InputError(
                Fault("--spaces", "no such space", name, ", ".join(sorted(known)),
                      "or a file of one of the schemas nestmap/space/1 and nestmap/nest/1")
            )  # fmt: skip
    return (_load(name) for name in names)


def _load(name: str) -> Case:
    if name in _MADE:
        return _MADE[name]()
    if not name.endswith(".json"):
        return tuning_case(_published(name))
    text = _text(Path(name))
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(Fault(name, "is not JSON", str(error))) from error
    if isinstance(value, dict) and value.get("schema") == NEST_SCHEMA:
        return nest_case(Path(name).stem, text)
    return tuning_case(space_from_json(text))
