"""Integer expressions of a printed kernel, read back from its text into trees."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

#: ("int", n), ("name", text), ("neg", a), ("cast", a) to a signed number, (operator, a, b) and
#: ("?", condition, a, b).
Node = tuple[Any, ...]

_TOKEN = re.compile(r"\s*(\d+|\w+\(\d\)|[A-Za-z_]\w*|&&|>=|<=|==|[-+*/%()<>?:&@])")
_CAST = re.compile(r"\((?:index_t|int|long)\)")
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("&&", "&"),
    ("<", ">="),
    ("+", "-"),
    ("*", "/", "%"),
)


class NotRead(Exception):
    """A text that no printed kernel has, as far as this module knows."""


@lru_cache(maxsize=65_536)
def parsed(text: str) -> Node:
    """The tree of an expression; NotRead for anything that is not of the subset."""
    tokens: list[str] = []
    if "@" in text:
        raise NotRead(text)
    rest = _CAST.sub("@", text).strip()
    position = 0
    while position < len(rest):
        found = _TOKEN.match(rest, position)
        if found is None:
            raise NotRead(text)
        tokens.append(found[1])
        position = found.end()
    reader = _Reader(tokens, text)
    tree = reader.choice()
    if reader.position != len(tokens):
        raise NotRead(text)
    return tree


class _Reader:
    """Recursive descent over tokens."""

    def __init__(self, tokens: Sequence[str], text: str) -> None:
        self.tokens = tokens
        self.text = text
        self.position = 0

    def next(self) -> str:
        if self.position == len(self.tokens):
            raise NotRead(self.text)
        self.position += 1
        return self.tokens[self.position - 1]

    def peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def choice(self) -> Node:
        condition = self.binary(0)
        if self.peek() != "?":
            return condition
        self.next()
        held = self.choice()
        if self.next() != ":":
            raise NotRead(self.text)
        return ("?", condition, held, self.choice())

    def binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while self.peek() in _LEVELS[level]:
            operator = self.next()
            right = self.binary(level + 1)
            left = ("&" if operator == "&&" else operator, left, right)
        return left

    def unary(self) -> Node:
        token = self.next()
        if token == "-":
            return ("neg", self.unary())
        if token == "@":
            return ("cast", self.unary())
        if token == "(":
            inner = self.choice()
            if self.next() != ")":
                raise NotRead(self.text)
            return inner
        if token.isdecimal():
            return ("int", int(token))
        if token[0].isalpha() or token[0] == "_":
            return ("name", token)
        raise NotRead(self.text)


def is_unsigned(tree: Node) -> bool:
    """Whether C computes the value as an unsigned number: a work-item's id without a cast does that
    to all that it is added to."""
    match tree[0]:
        case "name":
            return "(" in tree[1]
        case "neg":
            return is_unsigned(tree[1])
        case "?":
            return is_unsigned(tree[2]) or is_unsigned(tree[3])
        case "+" | "-" | "*" | "/" | "%":
            return is_unsigned(tree[1]) or is_unsigned(tree[2])
        case _:
            return False
