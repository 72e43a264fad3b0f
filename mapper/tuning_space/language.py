"""The language of constraints: a subset of Python's expressions, read and never evaluated.

A precedence-climbing parser of our own, because spaces are read in well under a millisecond,
errors should name the column and what may stand there, and no limit of another parser's stack
should show. Time and depth are bounded by the text: :data:`MAX_CHARACTERS`, :data:`MAX_DEPTH`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from mapper.errors import InputError, Problem
from mapper.tuning_space.syntax import (
    Arithmetic,
    Call,
    Comparison,
    Conditional,
    Conjunction,
    Disjunction,
    Expression,
    Flag,
    Inversion,
    Listing,
    Name,
    Negation,
    Number,
    Power,
    Text,
)

MAX_CHARACTERS = 4096
# Of operators and parentheses within one another.
MAX_DEPTH = 64
FUNCTIONS = {"min": "two or more numbers", "max": "two or more numbers", "abs": "one number"}
_FLAGS = {"true": True, "True": True, "false": False, "False": False}
_WORDS = {"and", "or", "not", "in", "if", "else"}
# Names that no parameter may have: Python's, so that an expression means there what it means here.
RESERVED = frozenset(
    {*_FLAGS, *_WORDS, *FUNCTIONS, "None", "as", "assert", "async", "await", "break", "class",
     "continue", "def", "del", "elif", "except", "finally", "for", "from", "global", "import",
     "is", "lambda", "nonlocal", "pass", "raise", "return", "try", "while", "with", "yield"}
)  # fmt: skip

_TOKEN = re.compile(
    r"""[ \t\r\n]*+(?:
        (?P<number>[0-9][0-9_]*+(?![.\w]))
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*+(?!['"]))
      | (?P<operator>//|\*\*|<=|>=|==|!=|(?!<>)[-+*/%<>](?!=)|[(),\[\]])
      | (?P<text>'[^'\\\n]*+'|"[^"\\\n]*+")
      | (?P<end>\Z)
    )""",
    re.VERBOSE | re.ASCII,
)
# What people write who have another language in mind, and what it is here.
_MEANT = (
    (re.compile(r"&&?"), "and"),
    (re.compile(r"\|\|?"), "or"),
    (re.compile(r"!"), "not"),
    (re.compile(r"="), "=="),
    (re.compile(r"<>"), "!="),
)
_NUMBER_LIKE = re.compile(r"\.?[0-9][0-9A-Za-z_.]*")
_ANYTHING = re.compile(r"[A-Za-z_]\w*['\"]?|:=|<<|>>|->|\S")

# How tightly infix operators bind, loosest first, as in Python.
_CONDITIONAL, _OR, _AND, _NOT, _COMPARE, _ADD, _MULTIPLY, _UNARY, _POWER = range(9)
_BINDING = {
    "if": _CONDITIONAL,
    "or": _OR,
    "and": _AND,
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "in", "not"), _COMPARE),
    **dict.fromkeys(("+", "-"), _ADD),
    **dict.fromkeys(("*", "/", "//", "%"), _MULTIPLY),
    "**": _POWER,
}
_OPERAND = "a number, a parameter, a text, true, false, (, -, not, min, max, abs"
_AFTER_OPERAND = "+ - * / // % **, == != < <= > >=, in, not in, and, or, if … else"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Words of a place where more than parameters can be named.

    ``references`` stand before parentheses with names in them, and what they name together is one
    name: ``code(row)``. ``labels`` are texts that need no quotes.
    """

    references: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()


_PARAMETERS_ONLY = Vocabulary()


def parse_expression(text: str, vocabulary: Vocabulary = _PARAMETERS_ONLY) -> Expression:
    """The expression of a text; InputError names the column, what stands and what may."""
    if len(text) > MAX_CHARACTERS:
        raise InputError(
            Problem("", "the expression is too long", f"{len(text)} characters",
                    f"{MAX_CHARACTERS} characters", "several constraints: all must hold")
        )  # fmt: skip
    return _Parser(text, vocabulary).whole()


def place(text: str, at: int) -> str:
    """``column 7``, or ``line 2, column 3`` in a text of several lines."""
    line = text.count("\n", 0, at)
    column = at - text.rfind("\n", 0, at)
    return f"line {line + 1}, column {column}" if "\n" in text else f"column {column}"


def excerpt(text: str, at: int, reach: int = 30) -> str:
    """The text around a place, which is marked: ``a * ⟨here⟩) % 2``."""
    before, after = text[max(0, at - reach) : at], text[at : at + reach]
    start = "…" if at > reach else ""
    end = "…" if at + reach < len(text) else ""
    return f"{start}{before}⟨here⟩{after}{end}".replace("\n", " ")


def fail_at(
    text: str, at: int, message: str, found: str = "", allowed: str = "", remedy: str = ""
) -> NoReturn:
    """InputError about a place in an expression."""
    found = f"{found} in {excerpt(text, at)}" if found else excerpt(text, at)
    raise InputError(Problem("", f"{place(text, at)}: {message}", found, allowed, remedy))


class _Parser:
    """One pass over the tokens; ``_kind``, ``_token`` and ``_at`` are the current one."""

    def __init__(self, text: str, vocabulary: Vocabulary) -> None:
        self._source = text
        self._vocabulary = vocabulary
        self._depth = 0
        self._position = 0
        self._kind = ""
        self._token = ""
        self._at = 0
        self._advance()

    def whole(self) -> Expression:
        found = self._expression(_CONDITIONAL)
        if self._kind != "end":
            self._unexpected("this cannot stand here", _AFTER_OPERAND)
        return found

    def _advance(self) -> None:
        match = _TOKEN.match(self._source, self._position)
        if match is None:
            self._foreign()
        kind = match.lastgroup or "end"
        self._kind, self._token, self._at = kind, match.group(kind), match.start(kind)
        self._position = match.end()

    def _foreign(self) -> NoReturn:
        """Something that is no token of the language."""
        source = self._source
        at = self._position
        while source[at] in " \t\r\n":
            at += 1
        for pattern, meant in _MEANT:
            other = pattern.match(source, at)
            if other is not None:
                self._fail(at, "not an operator of this language", repr(other.group()),
                           remedy=meant)  # fmt: skip
        number = _NUMBER_LIKE.match(source, at)
        if number is not None:
            self._fail(at, "not an integer", repr(number.group()[:40]), "decimal integers",
                       "a fraction, as in 3/2")  # fmt: skip
        if source[at] in "'\"":
            self._fail(at, "the text is not closed, or has a backslash or a line end")
        found = _ANYTHING.match(source, at)
        self._fail(at, "this is not part of the language",
                   repr(found.group()[:40] if found else source[at]),
                   "numbers, parameters, texts, + - * / // % **, comparisons, in, and, or, not, "
                   "if … else, min, max, abs")  # fmt: skip

    def _fail(
        self, at: int, message: str, found: str = "", allowed: str = "", remedy: str = ""
    ) -> NoReturn:
        fail_at(self._source, at, message, found, allowed, remedy)

    def _unexpected(self, message: str, allowed: str) -> NoReturn:
        found = "the end" if self._kind == "end" else repr(self._token[:40])
        self._fail(self._at, message, found, allowed)

    def _expect(self, token: str) -> None:
        if self._kind not in ("operator", "word") or self._token != token:
            self._unexpected(f"{token!r} is missing", f"{token!r}, or {_AFTER_OPERAND}")
        self._advance()

    def _expression(self, loosest: int) -> Expression:
        """What stands here, with every infix operator that binds at least so tightly."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(self._at, "the expression is nested too deeply", "", f"{MAX_DEPTH} levels",
                       "several constraints: all must hold")  # fmt: skip
        left = self._operand(loosest)
        while self._kind in ("operator", "word"):
            binding = _BINDING.get(self._token)
            if binding is None or binding < loosest:
                break
            left = self._joined(left, binding)
        self._depth -= 1
        return left

    def _operand(self, loosest: int) -> Expression:
        kind, token, at = self._kind, self._token, self._at
        if kind == "number":
            self._advance()
            return self._number(token, at)
        if kind == "text":
            self._advance()
            return Text(token[1:-1], at)
        if token == "(":
            self._advance()
            inner = self._expression(_CONDITIONAL)
            self._expect(")")
            return inner
        if token == "-":
            self._advance()
            return Negation(self._expression(_UNARY), at)
        if kind == "word":
            return self._word(loosest)
        self._unexpected("an operand is missing", _OPERAND)

    def _number(self, token: str, at: int) -> Expression:
        if token.endswith("_") or "__" in token or (token[0] == "0" and token.strip("0_")):
            self._fail(at, "not an integer", repr(token[:40]), "decimal integers")
        if len(token) > 40 or int(token) >= 2**63:
            self._fail(at, "an integer is too large", token[:24], "64 bits")
        return Number(int(token), at)

    def _word(self, loosest: int) -> Expression:
        token, at = self._token, self._at
        if token == "not" and loosest <= _NOT:
            self._advance()
            return Inversion(self._expression(_NOT), at)
        if token in FUNCTIONS:
            return self._call(token, at)
        if token in _FLAGS:
            self._advance()
            return Flag(_FLAGS[token], at)
        if token in RESERVED:
            self._unexpected("an operand is missing", _OPERAND)
        self._advance()
        if self._kind == "operator" and self._token == "(":
            return self._reference(token, at)
        return Text(token, at) if token in self._vocabulary.labels else Name(token, at)

    def _reference(self, word: str, at: int) -> Expression:
        """``code(row)`` and ``local_size(kernel, 0)``, each as one name."""
        known = (*FUNCTIONS, *sorted(self._vocabulary.references))
        if word not in self._vocabulary.references:
            self._fail(at, "not a function", repr(word[:40]), ", ".join(known))
        parts = [self._named_part(word)]
        while self._kind == "operator" and self._token == ",":
            parts.append(self._named_part(word))
        self._expect(")")
        return Name(f"{word}({', '.join(parts)})", at)

    def _named_part(self, word: str) -> str:
        """What stands behind the current token; then that is passed, too."""
        self._advance()
        if self._kind not in ("number", "word", "text"):
            self._unexpected("a name is missing", f"{word}(…)")
        part = self._token[1:-1] if self._kind == "text" else self._token
        self._advance()
        return part

    def _call(self, function: str, at: int) -> Expression:
        self._advance()
        if self._token != "(":
            self._unexpected(f"{function} is a function", f"{function}(…)")
        arguments, _ = self._items(")")
        if (len(arguments) == 1) != (function == "abs") or not arguments:
            self._fail(at, f"{function} takes {FUNCTIONS[function]}", str(len(arguments)))
        return Call(function, arguments, at)

    def _items(self, close: str) -> tuple[tuple[Expression, ...], bool]:
        """From an opening bracket to the closing one, and whether a comma stands last."""
        self._advance()
        found: list[Expression] = []
        while not (self._kind == "operator" and self._token == close):
            found.append(self._expression(_CONDITIONAL))
            if self._kind != "operator" or self._token != ",":
                self._expect(close)
                return tuple(found), False
            self._advance()
        self._advance()
        return tuple(found), True

    def _joined(self, left: Expression, binding: int) -> Expression:
        """``left`` with the operators of one precedence that follow it."""
        at = self._at
        if binding == _CONDITIONAL:
            self._advance()
            condition = self._expression(_OR)
            self._expect("else")
            return Conditional(condition, left, self._expression(_CONDITIONAL), at)
        if binding == _POWER:
            self._advance()
            return Power(left, self._expression(_UNARY), at)
        if binding == _COMPARE:
            return self._comparison(left, at)
        rest: list[tuple[str, Expression]] = []
        while self._kind in ("operator", "word") and _BINDING.get(self._token) == binding:
            operator = self._token
            self._advance()
            rest.append((operator, self._expression(binding + 1)))
        if binding == _OR:
            return Disjunction((left, *(part for _, part in rest)), at)
        if binding == _AND:
            return Conjunction((left, *(part for _, part in rest)), at)
        return Arithmetic(left, tuple(rest), at)

    def _comparison(self, left: Expression, at: int) -> Expression:
        rest: list[tuple[str, Expression | Listing]] = []
        while self._kind in ("operator", "word") and _BINDING.get(self._token) == _COMPARE:
            operator = self._token
            self._advance()
            if operator == "not":
                if self._token != "in":
                    self._unexpected("'in' is missing", "not in […]")
                self._advance()
                operator = "not in"
            if operator in ("in", "not in"):
                rest.append((operator, self._listing()))
                if _BINDING.get(self._token) == _COMPARE:
                    self._unexpected("a list ends a comparison", "and, or, if, )")
                break
            rest.append((operator, self._expression(_COMPARE + 1)))
        return Comparison(left, tuple(rest), at)

    def _listing(self) -> Listing:
        at = self._at
        if self._kind != "operator" or self._token not in ("[", "("):
            self._unexpected("a list is missing", "in [1, 2], in (1, 2)")
        close = "]" if self._token == "[" else ")"
        items, comma = self._items(close)
        if close == ")" and len(items) == 1 and not comma:  # for Python a number, not a list
            self._fail(at, "a list of one is written in brackets", "", "in [1], in (1,)")
        return Listing(items, at)
