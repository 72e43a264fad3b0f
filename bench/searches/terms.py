"""Sizes that a space's constraints speak of, as JSON: what is left of a space whose program cannot
be made any more.

A search of recorded rows needs no more of the constraints: its models see these sizes of each row
(:mod:`mapper.search.features`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mapper.ast_model.nodes import Relation
from mapper.constraint_rules.predicate import (
    CodeVariable,
    Compare,
    FloorDiv,
    IntConst,
    IntTerm,
    LocalSizeVariable,
    Maximum,
    Modulo,
    ParameterVariable,
    Product,
    Sum,
    Variable,
)
from mapper.constraint_rules.rule import Constraint, Provenance
from mapper.errors import InputError, Problem

_SEVERAL: dict[str, type[Sum | Product | Maximum]] = {"+": Sum, "*": Product, "max": Maximum}
_TWO: dict[str, type[FloorDiv | Modulo]] = {"//": FloorDiv, "%": Modulo}
_KINDS = ("code", "parameter", "local size")
_OF_AN_ARCHIVE = Provenance("of an archived space", "")


def variable_of(name: str, kind: str) -> Variable:
    """A variable by how options name it. InputError for another kind."""
    match kind:
        case "code":
            return CodeVariable(name)
        case "parameter":
            return ParameterVariable(name)
        case "local size":
            kernel, _, dimension = name.rpartition(".")
            return LocalSizeVariable(kernel, int(dimension))
        case _:
            raise InputError(Problem(name, "is no variable", kind, ", ".join(_KINDS)))


def term_from_json(value: Any, variables: Mapping[str, Variable]) -> IntTerm:
    """A number, one of these variables by its text, or an operator with what it is of; InputError
    for anything else."""
    match value:
        case int():
            return IntConst(value)
        case str() if value in variables:
            return variables[value]
        case [("+" | "*" | "max") as sign, *parts]:
            return _SEVERAL[sign](tuple(term_from_json(part, variables) for part in parts))
        case [("//" | "%") as sign, top, bottom]:
            return _TWO[sign](term_from_json(top, variables), term_from_json(bottom, variables))
        case _:
            raise InputError(Problem("terms", "is no term", str(value)[:80]))


def constraint_on(term: IntTerm, number: int) -> Constraint:
    """A constraint that every row keeps and that speaks of a term."""
    text = f"terms/{number}"
    kept = Compare(Relation.GE, term, IntConst(0))
    return Constraint(text, "terms", (), kept, _OF_AN_ARCHIVE, None, text, "")
