"""Sizes that a space's constraints speak of, as JSON: what is left of a space whose program cannot
be made any more.

A search of recorded rows needs no more of the constraints: its models see these sizes of each row
(:mod:`mapper.search.features`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

_SEVERAL: dict[type[Sum | Product | Maximum], str] = {Sum: "+", Product: "*", Maximum: "max"}
_TWO: dict[type[FloorDiv | Modulo], str] = {FloorDiv: "//", Modulo: "%"}
_KINDS: dict[type[Any], str] = {
    CodeVariable: "code",
    ParameterVariable: "parameter",
    LocalSizeVariable: "local size",
}
_OF_AN_ARCHIVE = Provenance("of an archived space", "")


def kinds_of(variables: Sequence[Variable]) -> list[str]:
    """What each variable is; :func:`variable_of` reads it back."""
    return [_KINDS[type(variable)] for variable in variables]


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
            raise InputError(Problem(name, "is no variable", kind, ", ".join(_KINDS.values())))


def term_to_json(term: IntTerm) -> Any:
    """A number, a variable as constraints print it, or an operator with what it is of."""
    match term:
        case IntConst(value):
            return value
        case CodeVariable() | ParameterVariable() | LocalSizeVariable():
            return str(term)
        case Sum(parts) | Product(parts) | Maximum(parts):
            return [_SEVERAL[type(term)], *map(term_to_json, parts)]
        case FloorDiv(top, bottom) | Modulo(top, bottom):
            return [_TWO[type(term)], term_to_json(top), term_to_json(bottom)]
        case _:
            raise InputError(Problem("terms", "a choice cannot be archived", str(term)[:80]))


def term_from_json(value: Any, variables: Mapping[str, Variable]) -> IntTerm:
    """What :func:`term_to_json` wrote of these variables by their texts; InputError for anything
    else."""
    match value:
        case int():
            return IntConst(value)
        case str() if value in variables:
            return variables[value]
        case [("+" | "*" | "max") as sign, *parts]:
            made = next(kind for kind, text in _SEVERAL.items() if text == sign)
            return made(tuple(term_from_json(part, variables) for part in parts))
        case [("//" | "%") as sign, top, bottom]:
            half = next(kind for kind, text in _TWO.items() if text == sign)
            return half(term_from_json(top, variables), term_from_json(bottom, variables))
        case _:
            raise InputError(Problem("terms", "is no term", str(value)[:80]))


def constraint_on(term: IntTerm, number: int) -> Constraint:
    """A constraint that every row keeps and that speaks of a term."""
    text = f"terms/{number}"
    kept = Compare(Relation.GE, term, IntConst(0))
    return Constraint(text, "terms", (), kept, _OF_AN_ARCHIVE, None, text, "")
