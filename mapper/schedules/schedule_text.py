"""Schedules as text and as JSON (``nestmap/schedule/1``), both ways.

Text is a line a primitive, ``split(row, th, overhang=padded)``, in ``schedule "name" { … }``;
comments are ``# …``. Names that are no plain words stand in quotes as in JSON.
"""

from __future__ import annotations

import json
import re
from typing import Any, cast

from mapper.ast_model.bounded_json import kind_of
from mapper.errors import InputError, Problem
from mapper.schedules.schedule import (
    MAX_STEPS,
    PRIMITIVES,
    Kind,
    Schedule,
    Use,
    Value,
    checked_name,
    use,
)

SCHEMA = "nestmap/schedule/1"
MAX_CHARACTERS = 200_000
_PLAIN = re.compile(r"[A-Za-z0-9_]+", re.ASCII)
_TOKEN = re.compile(
    r'\s*(?:(#(?=\s|$)[^\n]*)|("(?:[^"\\\n]|\\.)*")|([A-Za-z0-9_]+)|([-+*/%(){}\[\],=]))', re.ASCII
)

Token = tuple[str, str, int]


def schedule_to_text(schedule: Schedule) -> str:
    """The schedule in the text form; :func:`parse_schedule` reads it back."""
    lines = [f"  {use_to_text(item)}" for item in schedule.uses]
    return "\n".join((f"schedule {json.dumps(schedule.name)} {{", *lines, "}", ""))


def use_to_text(item: Use) -> str:
    """One line of it."""
    fields = {f.name: f for f in PRIMITIVES[item.primitive].fields}
    parts: list[str] = []
    for name, value in item.arguments:
        text = _value_text(value, fields[name].kind)
        parts.append(text if fields[name].required else f"{name}={text}")
    return f"{item.primitive}({', '.join(parts)})"


def _value_text(value: Value, kind: Kind) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{', '.join(_name_text(str(v)) for v in value)}]"
    return str(value) if kind is Kind.SIZE else _name_text(str(value))


def _name_text(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else json.dumps(name)


def parse_schedule(text: str) -> Schedule:
    """The schedule that a text states; InputError with line and column."""
    if len(text) > MAX_CHARACTERS:
        raise InputError(Problem("", "the text is too long", f"{len(text)} characters",
                                 f"{MAX_CHARACTERS} characters"))  # fmt: skip
    return _Parser(text).schedule()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        self.tokens: list[Token] = []
        self.tokens = self._tokens()

    def _tokens(self) -> list[Token]:
        found: list[Token] = []
        position, end = 0, len(self.text.rstrip())
        while position < end:
            match = _TOKEN.match(self.text, position)
            if match is None:
                raise self.error("a character that nothing begins with", position)
            position = match.end()
            if not match.group(1):
                kind = "text" if match.group(2) else "word" if match.group(3) else "sign"
                found.append((kind, match.group().strip(), position))
        return found

    def error(self, message: str, position: int | None = None) -> InputError:
        if position is None:
            position = (
                self.tokens[self.place][2] if self.place < len(self.tokens) else len(self.text)
            )
        line = self.text.count("\n", 0, position) + 1
        column = position - self.text.rfind("\n", 0, position)
        found = self.tokens[self.place][1][:40] if self.place < len(self.tokens) else "the end"
        return InputError(Problem(f"line {line}, column {column}", message, found,
                                  remedy='schedule "name" { split(row, 4) … }'))  # fmt: skip

    def peek(self) -> str:
        return self.tokens[self.place][1] if self.place < len(self.tokens) else ""

    def take(self, wanted: str = "") -> Token:
        if self.place == len(self.tokens) or (wanted and self.peek() != wanted):
            raise self.error(f"expected {wanted}" if wanted else "the text ends early")
        self.place += 1
        return self.tokens[self.place - 1]

    def schedule(self) -> Schedule:
        self.take("schedule")
        if self.place == len(self.tokens) or self.tokens[self.place][0] != "text":
            raise self.error("expected the schedule's name in quotes")
        name = self.string(self.take())
        try:
            checked_name(name)
        except InputError as error:
            self.place -= 1
            raise self.error(str(error)) from None
        self.take("{")
        uses: list[Use] = []
        while self.peek() != "}":
            if len(uses) == MAX_STEPS:
                raise self.error(f"more than {MAX_STEPS} steps")
            uses.append(self.use())
        self.take("}")
        if self.place != len(self.tokens):
            raise self.error("expected the end")
        return Schedule(name, tuple(uses))

    def string(self, token: Token) -> str:
        try:
            return str(json.loads(token[1]))
        except ValueError:
            self.place -= 1
            raise self.error("not a text as JSON writes it") from None

    def use(self) -> Use:
        start = self.place
        primitive = self.take()[1]
        known = PRIMITIVES.get(primitive)
        if known is None:
            self.place = start
            raise self.error(f"no such primitive; there are {', '.join(sorted(PRIMITIVES))}")
        self.take("(")
        positional: list[Value] = []
        keyword: dict[str, Value] = {}
        kinds = {f.name: f.kind for f in known.fields}
        while self.peek() != ")":
            ahead = self.tokens[self.place + 1][1] if self.place + 1 < len(self.tokens) else ""
            name = ""
            if ahead == "=":
                name = self.take()[1]
                self.take("=")
                if name not in kinds or name in keyword:
                    raise self.error(f"{name} is unknown or given twice; {', '.join(kinds)}")
                keyword[name] = self.value(kinds[name])
            else:
                if len(positional) == len(known.fields) or keyword:
                    raise self.error("an argument too many, or one behind those with names")
                positional.append(self.value(known.fields[len(positional)].kind))
            if self.peek() != ")":
                self.take(",")
        self.take(")")
        try:
            return use(primitive, *positional, **keyword)
        except InputError as error:
            self.place = start
            raise self.error(str(error)) from None

    def value(self, kind: Kind) -> Value:
        if kind in (Kind.NAMES, Kind.ORDER, Kind.VALUES):
            self.take("[")
            items: list[str] = []
            while self.peek() != "]":
                items.append(self.name())
                if self.peek() != "]":
                    self.take(",")
            self.take("]")
            return tuple(items) if kind is Kind.NAMES else self.whole(items)
        if kind is Kind.SIZE:
            return self.size()
        name = self.name()
        if kind is Kind.FLAG and name in ("true", "false"):
            return name == "true"
        return self.whole([name])[0] if kind is Kind.COUNT else name

    def whole(self, items: list[str]) -> tuple[int, ...]:
        if not all(item.isascii() and item.isdigit() and len(item) < 10 for item in items):
            raise self.error("expected whole numbers before this")
        return tuple(int(item) for item in items)

    def name(self) -> str:
        kind, text, _ = self.take()
        if kind == "sign":
            self.place -= 1
            raise self.error("expected a name or a number")
        return self.string(self.tokens[self.place - 1]) if kind == "text" else text

    def size(self) -> str:
        parts: list[str] = []
        depth = 0
        while depth or self.peek() not in (",", ")"):
            kind, text, _ = self.take()
            depth += (text == "(") - (text == ")")
            if kind == "text" or text in ("{", "}", "[", "]", "="):
                self.place -= 1
                raise self.error("expected an integer expression")
            parts.append(text)
        return "".join(parts)


def schedule_to_json(schedule: Schedule) -> dict[str, Any]:
    """``nestmap/schedule/1``; :func:`schedule_from_json` reads it back."""
    steps: list[dict[str, Any]] = []
    for item in schedule.uses:
        values = {n: list(v) if isinstance(v, tuple) else v for n, v in item.arguments}
        steps.append({"primitive": item.primitive, **values})
    return {"schema": SCHEMA, "name": schedule.name, "steps": steps}


def schedule_from_json(value: object) -> Schedule:
    """Read a schedule; InputError names the step and the field that is wrong."""
    if not isinstance(value, dict):
        raise InputError(Problem("", "a schedule is an object", kind_of(value)))
    fields = cast(dict[str, object], value)
    if fields.get("schema") != SCHEMA:
        raise InputError(Problem("schema", "not a schedule", kind_of(fields.get("schema")), SCHEMA))
    for name in fields.keys() - {"schema", "name", "steps"}:
        raise InputError(Problem(name[:60], "no such field", "", "schema, name, steps"))
    name, steps = checked_name(fields.get("name")), fields.get("steps")
    if not isinstance(steps, list):
        raise InputError(Problem("steps", "a list", kind_of(steps)))
    items = cast(list[object], steps)
    if len(items) > MAX_STEPS:
        raise InputError(Problem("steps", "too many", str(len(items)), str(MAX_STEPS)))
    return Schedule(name, tuple(_use(item, f"steps/{k}") for k, item in enumerate(items)))


def _use(value: object, path: str) -> Use:
    if not isinstance(value, dict):
        raise InputError(Problem(path, "a step is an object", kind_of(value)))
    fields = cast(dict[str, Any], value)
    primitive = fields.get("primitive")
    if not isinstance(primitive, str):
        raise InputError(Problem(f"{path}/primitive", "a text", kind_of(primitive)))
    given: dict[str, Value] = {}
    for name, item in fields.items():
        if name == "primitive":
            continue
        if isinstance(item, list):
            listed = cast(list[object], item)
            if not all(isinstance(v, str | int) for v in listed):
                raise InputError(Problem(f"{path}/{name}"[:200], "names or numbers", "a list"))
            given[name] = cast(Value, tuple(listed))
        elif isinstance(item, str | int):
            given[name] = item
        else:
            raise InputError(Problem(f"{path}/{name}"[:200], "no such value", kind_of(item)))
    try:
        return use(primitive, **given)
    except InputError as error:
        problem = error.problems[0]
        raise InputError(
            Problem(f"{path}/{problem.path}"[:200], problem.message, problem.found, problem.allowed)
        ) from None
