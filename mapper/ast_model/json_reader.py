"""Reads fields of JSON objects and keeps every problem, each with its JSON pointer."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TypeVar, cast

from mapper.ast_model.bounded_json import kind_of, pointer
from mapper.ast_model.index_expr import Expr, const
from mapper.ast_model.text_form import parse_expr
from mapper.ast_model.types import Memory
from mapper.errors import InputError, Problem

T = TypeVar("T")
JsonObject = dict[str, object]
# Reads a value at a path; None says that a problem was reported.
Read = Callable[[object, str], T | None]


class JsonReader:
    """Problems of one document, while they are collected."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def fail(self, path: str, message: str, found: str = "", allowed: str = "") -> None:
        self.problems.append(Problem(path, message, found, allowed))

    def finish(self) -> None:
        """InputError with all problems, if there are any."""
        if self.problems:
            raise InputError(self.problems)

    def object(
        self, value: object, path: str, required: Collection[str], optional: Collection[str] = ()
    ) -> JsonObject | None:
        """The object itself, after a look at which fields it has."""
        if not isinstance(value, dict):
            self.fail(path, "not an object", kind_of(value), "an object")
            return None
        fields = cast(dict[object, object], value)
        for key in fields:
            if key not in required and key not in optional:
                allowed = ", ".join([*required, *optional])
                self.fail(pointer(path, str(key)), "unknown field", repr(key)[:80], allowed)
        for key in required:
            if key not in fields:
                self.fail(pointer(path, key), "the field is missing", "", f"{key} in {path or '/'}")
        return cast(JsonObject, value)

    def list(self, value: object, path: str) -> list[object]:
        """The list itself, or an empty one after a problem."""
        if isinstance(value, list):
            return cast("list[object]", value)
        self.fail(path, "not a list", kind_of(value), "a list")
        return []

    def items(self, value: object, path: str, read: Read[T]) -> tuple[T, ...]:
        """Every item of a list read; items with problems are left out."""
        found: list[T] = []
        for index, item in enumerate(self.list(value, path)):
            result = read(item, pointer(path, index))
            if result is not None:
                found.append(result)
        return tuple(found)

    def text(self, value: object, path: str) -> str | None:
        if isinstance(value, str):
            return value
        self.fail(path, "not a text", kind_of(value), "a text")
        return None

    def integer(self, value: object, path: str) -> int | None:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        self.fail(path, "not an integer", kind_of(value), "an integer")
        return None

    def number(self, value: object, path: str) -> float | None:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        self.fail(path, "not a number", kind_of(value), "a number")
        return None

    def flag(self, value: object, path: str) -> bool | None:
        if isinstance(value, bool):
            return value
        self.fail(path, "neither true nor false", kind_of(value), "true, false")
        return None

    def id(self, value: object, path: str) -> int | str | None:
        """A map's id: an integer of at least 0, or a text that is not empty."""
        if isinstance(value, str) and 0 < len(value) <= 63 and value.isprintable():
            return value
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        allowed = "an integer of at least 0, or 1 to 63 printable characters"
        self.fail(path, "not a map id", kind_of(value), allowed)
        return None

    def memory(self, value: object, path: str) -> Memory | None:
        allowed = [memory.value for memory in Memory]
        if value in allowed:
            return Memory(value)
        self.fail(path, "not a memory", kind_of(value), ", ".join(allowed))
        return None

    def expression(self, value: object, path: str) -> Expr | None:
        """An integer expression: an integer, or text that is parsed and never evaluated."""
        if isinstance(value, int) and not isinstance(value, bool):
            return const(value)
        if isinstance(value, str):
            return self.parsed(value, path, parse_expr)
        self.fail(path, "not an integer expression", kind_of(value), "an integer or a text")
        return None

    def parsed(self, value: object, path: str, parser: Callable[[str], T]) -> T | None:
        """A text given to a parser, whose problems get the path of the field."""
        text = self.text(value, path)
        if text is None:
            return None
        try:
            return parser(text)
        except InputError as error:
            for problem in error.problems:
                place = f"{problem.path}: " if problem.path else ""
                self.problems.append(replace(problem, path=path, message=place + problem.message))
            return None
