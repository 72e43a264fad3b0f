"""Configurations of a tuning space as JSON: parameters with the values that their author wrote."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, cast

from mapper.ast_model.bounded_json import kind_of, loads_bounded, pointer
from mapper.constraint_rules.predicate import ParameterVariable, Variable
from mapper.errors import InputError, Problem
from mapper.tuning_space.document import ParameterKind, TuningParameter, TuningSpace

MAX_CONFIGURATION_BYTES = 2**20
_MOST_SHOWN = 40


def configuration_to_json(space: TuningSpace, assignment: Mapping[Variable, int]) -> dict[str, Any]:
    """``{"parameters": {…}}``, in the order of the space; what has no value is left out."""
    values = {
        parameter.name: parameter.value_of(assignment[ParameterVariable(parameter.name)])
        for parameter in space.parameters
        if ParameterVariable(parameter.name) in assignment
    }
    return {"parameters": values}


def configuration_from_json(space: TuningSpace, value: object) -> dict[Variable, int]:
    """Read what :func:`configuration_to_json` writes, or the bare object of parameters.

    A text (str or bytes) is parsed first. Integers that a parameter does not have are kept: they
    are violations, not bad input. InputError names each unknown parameter and each value of
    another kind.
    """
    if isinstance(value, str | bytes):
        value = loads_bounded(value, MAX_CONFIGURATION_BYTES)
    if not isinstance(value, dict):
        example = '{"parameters": {"WGD": 8}}'
        raise InputError(Problem("", "a configuration is an object", kind_of(value), example))
    fields = cast("dict[str, object]", value)
    path = ""
    if isinstance(fields.get("parameters"), dict):
        others = [name for name in fields if name not in ("parameters", "schema")]
        if others:
            raise InputError(
                Problem(pointer("", name), "unknown field", allowed="parameters, schema")
                for name in others
            )
        path, fields = "/parameters", cast("dict[str, object]", fields["parameters"])
    known = {parameter.name: parameter for parameter in space.parameters}
    problems: list[Problem] = []
    found: dict[Variable, int] = {}
    for name, raw in fields.items():
        where = pointer(path, name)
        parameter = known.get(name)
        if parameter is None:
            close = "".join(difflib.get_close_matches(name, known, 1))
            problems.append(Problem(where, "there is no such parameter", remedy=close))
            continue
        number = parameter.number_of(raw)
        if number is None and parameter.kind is ParameterKind.INTEGER:
            number = raw if isinstance(raw, int) and not isinstance(raw, bool) else None
        if number is None:
            allowed = _values_text(parameter)
            problems.append(Problem(where, "no such value", kind_of(raw), allowed))
        else:
            found[parameter.variable] = number
    if problems:
        raise InputError(problems)
    return found


def _values_text(parameter: TuningParameter) -> str:
    if parameter.kind is ParameterKind.SWITCH:
        return "true, false"
    shown = ", ".join(repr(value) for value in parameter.values[:_MOST_SHOWN])
    more = len(parameter.values) - _MOST_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
