"""Programs as readable text, close to the papers' listings: the parser.

``parse(to_text(program)) == program`` for every program that type-checks. The grammar is
``grammar.lark`` beside this file; the printer is ``printer.py``. Nothing is evaluated:
integer expressions become :class:`Expr`, and what cannot be one is refused with its line
and column.
"""

from __future__ import annotations

import json
import math
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from mapper.ast_model.bounds import MAX_EXPRESSION_DEPTH, check_node_bounds
from mapper.ast_model.index_expr import Expr, const, exact_div, floor_div, modulo, symbol
from mapper.ast_model.nodes import (
    Apply,
    AsScalar,
    AsVector,
    Call,
    Fill,
    FunctionExpr,
    Get,
    Input,
    Join,
    Kernel,
    Let,
    Literal,
    Map,
    MapId,
    Node,
    Op,
    OrderKind,
    Pad,
    Parameter,
    Program,
    Reduce,
    Ref,
    Relation,
    Reorder,
    Requirement,
    Slide,
    Split,
    To,
    Transpose,
    UserFunction,
    Zip,
)
from mapper.ast_model.printer import to_text
from mapper.ast_model.types import ArrayType, Memory, ScalarType, TupleType, Type, VectorType
from mapper.elements import BY_TEXT, Element
from mapper.errors import InputError, Problem

__all__ = ["parse", "parse_expr", "parse_function", "parse_requirement", "parse_type", "to_text"]

MAX_PROGRAM_CHARACTERS = 4 * 2**20
MAX_EXPRESSION_CHARACTERS = 10_000
MAX_BRACKETS = 1_000
MAX_EXPRESSION_BRACKETS = 64
MAX_TERMS = 128
MAX_DEGREE = 64
MAX_RANGE = 100_000
_INT64 = 2**63 - 1


def parse(text: str) -> Program:
    """The program that ``text`` states; its types are not checked yet.

    Raises InputError with line and column, LimitError for a program too large.
    """
    program = cast(Program, _parsed("program", text, MAX_PROGRAM_CHARACTERS, MAX_BRACKETS))
    check_node_bounds((f"kernels/{k.name}/body", k.body) for k in program.kernels)
    return program


def parse_expr(text: str) -> Expr:
    """An integer expression: whole numbers, names, ``+ - * / // %`` and parentheses.

    ``/`` is division that leaves no remainder. Raises InputError, also for more than
    10,000 characters or 64 nested parentheses.
    """
    if "**" in text:
        raise InputError(Problem("", "powers are no part of expressions", "**", "+ - * / // %",
                                 "a product, n*n"))  # fmt: skip
    return cast(Expr, _parsed("integer", text, MAX_EXPRESSION_CHARACTERS, MAX_EXPRESSION_BRACKETS))


def parse_requirement(text: str) -> Requirement:
    """``kg | M``, ``a <= b`` and so on; InputError as for :func:`parse_expr`."""
    return cast(
        Requirement,
        _parsed("requirement", text, MAX_EXPRESSION_CHARACTERS, MAX_EXPRESSION_BRACKETS),
    )


def parse_type(text: str) -> Type:
    """``[[[float]C]W]H``; InputError as for :func:`parse_expr`."""
    return cast(Type, _parsed("type", text, MAX_EXPRESSION_CHARACTERS, MAX_EXPRESSION_BRACKETS))


def parse_function(text: str) -> FunctionExpr:
    """The body of a user function, ``x*y + z``; InputError as for :func:`parse_expr`."""
    return cast(
        FunctionExpr,
        _parsed("function", text, MAX_EXPRESSION_CHARACTERS, MAX_EXPRESSION_BRACKETS),
    )


def _parsed(start: str, text: str, most_characters: int, most_brackets: int) -> object:
    if len(text) > most_characters:
        raise InputError(Problem("", "the text is too long", f"{len(text)} characters",
                                 f"{most_characters} characters"))  # fmt: skip
    depth = 0
    for bracket in re.finditer(r"[()\[\]{}]", text):
        depth += 1 if bracket.group() in "([{" else -1
        if depth > most_brackets:
            raise InputError(Problem(_place(text, bracket.start()), "brackets nest too deeply",
                                     "", f"{most_brackets} levels"))  # fmt: skip
    try:
        # Through Any: lark's own types are incomplete.
        return cast(Any, _parser()).parse(text, start=start)
    except UnexpectedInput as error:
        raise InputError(_syntax_problem(error, text)) from None


@lru_cache(maxsize=1)
def _parser() -> Lark:
    grammar = (Path(__file__).parent / "grammar.lark").read_text(encoding="utf-8")
    return Lark(
        grammar,
        parser="lalr",
        start=["program", "integer", "requirement", "type", "function"],
        transformer=_Build(),
        maybe_placeholders=True,
    )


_TERMINALS = {"NAME": "a name", "INT": "a whole number", "FLOAT": "a float", "STRING": "a text",
              "MAP_ID": "an id, #1", "GET": "a component, .0", "$END": "the end"}  # fmt: skip


def _place(text: str, position: int) -> str:
    line = text.count("\n", 0, position) + 1
    return f"line {line}, column {position - text.rfind(chr(10), 0, position)}"


def _syntax_problem(error: UnexpectedInput, text: str) -> Problem:
    raised = cast(Any, error)  # lark's own types are incomplete
    names: set[str] = set()
    found = "the end"
    position = len(text)
    remedy = ""
    if isinstance(error, UnexpectedToken):
        names = set(raised.accepts or raised.expected)
        if raised.token.type != "$END":
            found = repr(str(raised.token))[:80]
            position = raised.token.start_pos or 0
    elif isinstance(error, UnexpectedCharacters):
        names = set(raised.allowed or ())
        position = raised.pos_in_stream or 0
        found = repr(text[position : position + 1])
    patterns = {terminal.name: terminal.pattern.value for terminal in _parser().terminals}
    names -= {"WS", "COMMENT"}
    allowed = sorted(_TERMINALS.get(n) or f"{patterns.get(n, n)}".replace("\\", "") for n in names)
    if found == "'('" and "MAP_ID" not in names:
        remedy = "expressions call nothing: write numbers, names and + - * / // %"
    elif "MAP_ID" in names:
        remedy = "map#1(x => body, argument)"
    elif found.startswith("'.") or found == "'.'":
        remedy = "whole numbers and plain names in integer expressions"
    return Problem(_place(text, position), "not understood", found, " ".join(allowed), remedy)


class _Integer(NamedTuple):
    """An expression under way, and how deep its divisions nest."""

    expression: Expr
    divisions: int


def _whole(token: Token) -> int:
    if len(token) > 19 or int(token) > _INT64:
        raise _at(token, "a whole number is too large", f"{token[:24]}", "at most 2^63 - 1")
    return int(token)


def _at(token: Token, message: str, found: str, allowed: str = "") -> InputError:
    return InputError(Problem(f"line {token.line}, column {token.column}", message, found, allowed))


def _element(token: Token) -> Element:
    if token not in BY_TEXT:
        raise _at(token, "not an element type", token[:80], ", ".join(BY_TEXT))
    return BY_TEXT[token]


def _bounded(expression: Expr, divisions: int) -> _Integer:
    terms = expression.terms
    if len(terms) > MAX_TERMS or divisions > MAX_EXPRESSION_DEPTH:
        raise _too_large()
    if any(len(monomial) > MAX_DEGREE or abs(c) > _INT64 for monomial, c in terms):
        raise _too_large()
    return _Integer(expression, divisions)


def _too_large() -> InputError:
    allowed = f"{MAX_TERMS} terms of {MAX_DEGREE} factors, {MAX_EXPRESSION_DEPTH} nested divisions"
    return InputError(Problem("", "an integer expression is too large", "", allowed))


def _divisor(left: _Integer, right: _Integer) -> int:
    """Refuses divisors that cannot be; the nesting of the result."""
    divisor = right.expression.constant
    if divisor is not None and divisor < 1:
        raise InputError(Problem("", "division by what is not positive",
                                 f"{left.expression} by {divisor}", "1 or more"))  # fmt: skip
    return max(left.divisions, right.divisions) + 1


class _Build(Transformer[Token, Any]):
    """Builds values bottom-up while parsing, so that no text is nested too deep for it."""

    # ---- statements; each is a group name and what belongs to the group
    def program(self, c: list[Any]) -> Program:
        groups: dict[str, list[Any]] = {}
        for statement in c[1:]:
            group, value = (
                ("require", statement) if isinstance(statement, Requirement) else statement
            )
            groups.setdefault(group, []).append(value)
        return Program(
            _string(c[0]),
            tuple(groups.get("size", ())),
            tuple(groups.get("param", ())),
            tuple(groups.get("require", ())),
            tuple(groups.get("fun", ())),
            tuple(groups.get("input", ())),
            tuple(groups.get("kernel", ())),
            tuple(groups.get("constant", ())),
        )

    def size(self, c: list[Any]) -> tuple[str, Any]:
        return "size", (str(c[0]), c[1])

    def values(self, c: list[int]) -> tuple[int, ...]:
        return tuple(c)

    def listed(self, c: list[Any]) -> tuple[str, Any]:
        return "param", Parameter(str(c[0]), c[1] or ())

    def ranged(self, c: list[Any]) -> tuple[str, Any]:
        name, first, last, step = c[0], c[1], c[2], 1 if c[3] is None else c[3]
        if step < 1 or (last - first) // step >= MAX_RANGE:
            raise _at(name, "not a usable range", f"{first}..{last} step {step}",
                      f"a step of at least 1, at most {MAX_RANGE} values")  # fmt: skip
        return "param", Parameter(str(name), tuple(range(first, last + 1, step)))

    def defined(self, c: list[Any]) -> tuple[str, Any]:
        return "fun", UserFunction(str(c[0]), c[1] or (), c[2])

    def input(self, c: list[Any]) -> tuple[str, Any]:
        return "input", Input(str(c[0]), c[1])

    def constant(self, c: list[Any]) -> tuple[str, Any]:
        return "constant", str(c[0])

    def kernel(self, c: list[Any]) -> tuple[str, Any]:
        return "kernel", Kernel(str(c[0]), c[1])

    def names(self, c: list[Token]) -> tuple[str, ...]:
        return tuple(str(name) for name in c)

    def signed(self, c: list[Token]) -> int:
        return _whole(c[0])

    def minus_signed(self, c: list[Token]) -> int:
        return -_whole(c[0])

    # ---- nodes
    def let(self, c: list[Any]) -> Node:
        return Let(str(c[0]), c[1], c[2])

    def get(self, c: list[Any]) -> Node:
        if len(c[1]) > 9:
            raise _at(c[1], "no tuple has so many components", c[1][:24])
        return Get(int(c[1][1:]), c[0])

    def ref(self, c: list[Token]) -> Node:
        return Ref(str(c[0]))

    def literal(self, c: list[float]) -> Node:
        return Literal(c[0])

    def typed_literal(self, c: list[Any]) -> Node:
        return Literal(c[0], _element(c[1]))

    def call(self, c: list[Any]) -> Node:
        return Call(str(c[0]), c[1] or ())

    def nodes(self, c: list[Node]) -> tuple[Node, ...]:
        return tuple(c)

    def map(self, c: list[Any]) -> Node:
        text = c[0][1:]
        map_id: MapId = str(text)
        if text[0] == '"':
            map_id = _string(Token.new_borrow_pos("STRING", text, c[0]))
        elif text[0].isdigit():
            map_id = _whole(Token.new_borrow_pos("INT", text, c[0]))
        return Map(map_id, str(c[1]), c[2], c[3])

    def folder(self, c: list[Token]) -> tuple[str, ...]:
        return str(c[0]), str(c[1])

    def reduce(self, c: list[Any]) -> Node:
        unroll, prefetch, (accumulator, parameter), body, initial, argument = c
        options = (const(0) if option is None else option for option in (unroll, prefetch))
        return Reduce(accumulator, parameter, body, initial, argument, *options)

    def zip(self, c: list[Any]) -> Node:
        return Zip(c[0])

    def split(self, c: list[Any]) -> Node:
        return Split(c[0], c[1])

    def join(self, c: list[Any]) -> Node:
        return Join(c[0])

    def slide(self, c: list[Any]) -> Node:
        return Slide(c[0], c[1], c[2], False)

    def slide_strict(self, c: list[Any]) -> Node:
        return Slide(c[0], c[1], c[2], True)

    def pad(self, c: list[Any]) -> Node:
        return Pad(c[0], c[1], c[2], c[3])

    def transpose(self, c: list[Any]) -> Node:
        return Transpose(c[0])

    def reorder_stride(self, c: list[Any]) -> Node:
        return Reorder(OrderKind.STRIDE, c[0], c[1])

    def reorder_reverse(self, c: list[Any]) -> Node:
        return Reorder(OrderKind.REVERSE, const(1) if c[0] is None else c[0], c[1])

    def as_vector(self, c: list[Any]) -> Node:
        return AsVector(c[0], c[1])

    def as_scalar(self, c: list[Any]) -> Node:
        return AsScalar(c[0])

    def to_global(self, c: list[Any]) -> Node:
        return To(Memory.GLOBAL, c[0])

    def to_local(self, c: list[Any]) -> Node:
        return To(Memory.LOCAL, c[0])

    def to_private(self, c: list[Any]) -> Node:
        return To(Memory.PRIVATE, c[1], 0 if c[0] is None else _whole(c[0]))

    def fill(self, c: list[Any]) -> Node:
        return Fill(c[0].value, tuple(c[1:]), c[0].dtype)

    # ---- integer expressions
    def integer(self, c: list[_Integer]) -> Expr:
        return c[0].expression

    length = integer

    def add(self, c: list[_Integer]) -> _Integer:
        left, right = c
        return _bounded(left.expression + right.expression, max(left.divisions, right.divisions))

    def subtract(self, c: list[_Integer]) -> _Integer:
        left, right = c
        return _bounded(left.expression - right.expression, max(left.divisions, right.divisions))

    def multiply(self, c: list[_Integer]) -> _Integer:
        left, right = c
        if len(left.expression.terms) * len(right.expression.terms) > 8 * MAX_TERMS:
            raise _too_large()
        return _bounded(left.expression * right.expression, max(left.divisions, right.divisions))

    def divide(self, c: list[_Integer]) -> _Integer:
        left, right = c
        nesting = _divisor(left, right)
        top, bottom = left.expression.constant, right.expression.constant
        if top is not None and bottom is not None and top % bottom:
            raise InputError(Problem("", "/ leaves a remainder", f"{top}/{bottom}", "no remainder",
                                     "// rounds down"))  # fmt: skip
        return _bounded(exact_div(left.expression, right.expression), nesting)

    def floor_divide(self, c: list[_Integer]) -> _Integer:
        nesting = _divisor(c[0], c[1])
        return _bounded(floor_div(c[0].expression, c[1].expression), nesting)

    def remainder(self, c: list[_Integer]) -> _Integer:
        nesting = _divisor(c[0], c[1])
        return _bounded(modulo(c[0].expression, c[1].expression), nesting)

    def negate(self, c: list[_Integer]) -> _Integer:
        return _Integer(-c[0].expression, c[0].divisions)

    def whole(self, c: list[Token]) -> _Integer:
        return _Integer(const(_whole(c[0])), 0)

    def symbol(self, c: list[Token]) -> _Integer:
        return _Integer(symbol(str(c[0])), 0)

    def relation(self, c: list[Token]) -> Relation:
        return Relation(str(c[0]))

    def requirement(self, c: list[Any]) -> Requirement:
        return Requirement(c[0], c[1], c[2])

    # ---- types
    def scalar_type(self, c: list[Token]) -> Type:
        return ScalarType(_element(c[0]))

    def vector_type(self, c: list[Any]) -> Type:
        return VectorType(c[1], _element(c[0]))

    def array_type(self, c: list[Any]) -> Type:
        return ArrayType(c[0], c[1])

    def tuple_type(self, c: list[Type]) -> Type:
        return TupleType(tuple(c))

    # ---- user functions
    def number(self, c: list[Token]) -> float:
        value = float(c[0])
        if not math.isfinite(value):
            raise _at(c[0], "a constant must be finite", c[0][:24], "a float")
        return value

    def minus_number(self, c: list[Token]) -> float:
        return -self.number(c)

    def comparison(self, c: list[Token]) -> Op:
        return Op(str(c[0]))

    def function_compare(self, c: list[Any]) -> FunctionExpr:
        return Apply(c[1], (c[0], c[2]))

    def function_add(self, c: list[FunctionExpr]) -> FunctionExpr:
        return Apply(Op.ADD, tuple(c))

    def function_subtract(self, c: list[FunctionExpr]) -> FunctionExpr:
        return Apply(Op.SUB, tuple(c))

    def function_multiply(self, c: list[FunctionExpr]) -> FunctionExpr:
        return Apply(Op.MUL, tuple(c))

    def function_divide(self, c: list[FunctionExpr]) -> FunctionExpr:
        return Apply(Op.DIV, tuple(c))

    def function_constant(self, c: list[float]) -> FunctionExpr:
        return c[0]

    def function_name(self, c: list[Token]) -> FunctionExpr:
        return str(c[0])

    def function_operator(self, c: list[Any]) -> FunctionExpr:
        operators = {op.value: op for op in Op if op.value.isidentifier()}
        if str(c[0]) not in operators:
            raise _at(
                c[0],
                "not an operator of user functions",
                c[0],
                "+ - * / < <= > >= == != " + " ".join(operators),
            )
        return Apply(operators[str(c[0])], tuple(c[1:]))


def _string(token: Token) -> str:
    try:
        return str(json.loads(token))
    except ValueError:
        raise _at(token, "not a text as JSON writes it", token[:80]) from None
