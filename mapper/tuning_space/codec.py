"""Tuning spaces as JSON (``nestmap/space/1``); docs/spaces.md describes the format.

Constraints are text that a parser of this project reads and nothing evaluates. Reading
reports all problems at once, each with its JSON pointer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

from mapper.ast_model.bounded_json import check_depth, kind_of, loads_bounded, pointer
from mapper.ast_model.json_reader import JsonReader
from mapper.errors import InputError, Problem
from mapper.tuning_space.document import (
    MAX_PARAMETERS,
    MAX_VALUES,
    TuningConstraint,
    TuningParameter,
    TuningSpace,
    Value,
)

SPACE_SCHEMA = "nestmap/space/1"
MAX_DEPTH = 16
_TEXTS = ("source", "licence", "notes")
_OPTIONAL = (*_TEXTS, "constraints", "expected_count")


def space_from_json(value: object) -> TuningSpace:
    """The space of a JSON text (str or bytes) or of a JSON value.

    Names and types within constraints are looked at when the space is lowered. Raises
    InputError with all problems.
    """
    if isinstance(value, str | bytes):
        value = loads_bounded(value, max_depth=MAX_DEPTH)
    else:
        check_depth(value, MAX_DEPTH)
    reader = JsonReader()
    top = reader.object(value, "", ("schema", "name", "parameters"), _OPTIONAL)
    if top is None:
        reader.finish()
        raise AssertionError
    if top.get("schema", SPACE_SCHEMA) != SPACE_SCHEMA:
        reader.fail("/schema", "another schema", kind_of(top["schema"]), SPACE_SCHEMA)
    name = reader.text(top.get("name", ""), "/name")
    texts = {field: reader.text(top.get(field, ""), f"/{field}") or "" for field in _TEXTS}
    parameters = _parameters(reader, top.get("parameters", {}))
    constraints = reader.items(
        top.get("constraints", []),
        "/constraints",
        lambda item, path: _constraint(reader, item, path),
    )
    expected = top.get("expected_count")
    count = None if expected is None else reader.integer(expected, "/expected_count")
    reader.finish()
    return TuningSpace(name or "", parameters, constraints, expected_count=count, **texts)


def space_to_json(space: TuningSpace) -> dict[str, Any]:
    """The JSON value of a space; :func:`space_from_json` gives it back."""
    result: dict[str, Any] = {"schema": SPACE_SCHEMA, "name": space.name}
    for field in _TEXTS:
        text = getattr(space, field)
        if text:
            result[field] = text
    result["parameters"] = {item.name: list(item.values) for item in space.parameters}
    result["constraints"] = [_constraint_to_json(constraint) for constraint in space.constraints]
    if space.expected_count is not None:
        result["expected_count"] = space.expected_count
    return result


def _constraint_to_json(constraint: TuningConstraint) -> str | dict[str, str]:
    if not constraint.id and not constraint.sentence:
        return constraint.expression
    fields = {"expr": constraint.expression, "sentence": constraint.sentence}
    if constraint.id:
        fields["id"] = constraint.id
    return fields


def _parameters(reader: JsonReader, value: object) -> tuple[TuningParameter, ...]:
    if not isinstance(value, dict):
        reader.fail("/parameters", "not an object", kind_of(value), "an object of lists")
        return ()
    fields = cast("dict[str, object]", value)
    if len(fields) > MAX_PARAMETERS:
        reader.fail("/parameters", "there are too many", str(len(fields)), str(MAX_PARAMETERS))
        return ()
    found: list[TuningParameter] = []
    for name, raw in fields.items():
        values = _values(reader, raw, pointer("/parameters", name))
        if values is not None:
            try:
                found.append(TuningParameter(name, values))
            except InputError as error:
                reader.problems += error.problems
    return tuple(found)


def _values(reader: JsonReader, raw: object, path: str) -> tuple[Value, ...] | None:
    """A list of values as it is, or a range written out; None after a problem."""
    if isinstance(raw, list):
        return cast("tuple[Value, ...]", tuple(cast("list[object]", raw)))
    if not isinstance(raw, dict):
        allowed = 'a list, {"from": 1, "to": 9, "step": 2} or {"from": 1, "to": 8, "times": 2}'
        reader.fail(path, "not the values of a parameter", kind_of(raw), allowed)
        return None
    before = len(reader.problems)
    fields = reader.object(cast(object, raw), path, ("from", "to"), ("step", "times")) or {}
    numbers = {
        name: reader.integer(value, pointer(path, name))
        for name, value in fields.items()
        if name in ("from", "to", "step", "times")
    }
    if len(reader.problems) > before:
        return None
    if "step" in numbers and "times" in numbers:
        reader.fail(path, "a range has step or times", "both", "one of them")
        return None
    return _range(reader, path, cast("dict[str, int]", numbers))


def _range(reader: JsonReader, path: str, numbers: dict[str, int]) -> tuple[Value, ...] | None:
    """From a first number to a last one, which belongs to it if it is met."""
    first, last = numbers["from"], numbers["to"]
    if "times" not in numbers:
        step = numbers.get("step", 1)
        if step < 1:
            reader.fail(pointer(path, "step"), "a step goes upward", str(step), "1 or more")
            return None
        values = range(first, last + 1, step)
        if len(values) > MAX_VALUES:
            reader.fail(path, "the parameter has too many values", str(len(values)),
                        f"{MAX_VALUES} values")  # fmt: skip
            return None
        return tuple(values)
    times = numbers["times"]
    if times < 2 or first < 1:
        field, least = ("times", 2) if times < 2 else ("from", 1)
        reader.fail(pointer(path, field), "the values would not grow", str(numbers[field]),
                    f"{least} or more")  # fmt: skip
        return None
    found: list[int] = []
    while first <= last:
        found.append(first)
        first *= times
    return tuple(found)


def _constraint(reader: JsonReader, item: object, path: str) -> TuningConstraint | None:
    fields: dict[str, str] = {}
    if isinstance(item, str):
        fields["expr"] = item
    else:
        given = reader.object(item, path, ("expr",), ("id", "sentence"))
        for name, value in (given or {}).items():
            text = reader.text(value, pointer(path, name))
            if text is not None:
                fields[name] = text
    if "expr" not in fields:
        return None
    try:
        return TuningConstraint(fields["expr"], fields.get("id", ""), fields.get("sentence", ""))
    except InputError as error:
        reader.problems += _below(path, error.problems)
        return None


def _below(path: str, problems: Iterable[Problem]) -> list[Problem]:
    return [replace(problem, path=path + problem.path) for problem in problems]
