"""OpenCL C text of index expressions, guards and numbers."""

from __future__ import annotations

import re

from mapper.ast_model.index_expr import (
    Atom,
    Expr,
    Quotient,
    Remainder,
    Symbol,
    in_range,
    is_nonnegative,
    upper_bound,
)
from mapper.ast_model.loop_nest import Guard
from mapper.ast_model.views import LANE
from mapper.elements import Element
from mapper.kernel_gen.identifiers import c_name


def c_index(expression: Expr) -> str:
    """An expression of indices. Divisions round down, as everywhere here, for any dividend."""
    if not expression.terms:
        return "0"
    text = ""
    for monomial, coefficient in expression.terms:
        sign = "-" if coefficient < 0 else "+"
        factors = [_c_atom(atom) for atom in monomial]
        if abs(coefficient) != 1 or not factors:
            factors.append(str(abs(coefficient)))
        body = "*".join(factors)
        if not text:
            text = body if sign == "+" else f"-{body}"
        else:
            text += f" {sign} {body}"
    return text


def _c_atom(atom: Atom) -> str:
    match atom:
        case Symbol():
            return c_name(atom.name) if atom.name != LANE else LANE
        case Quotient():
            top, bottom = c_operand(atom.numerator), c_operand(atom.denominator)
            if rounds_down(atom):
                return f"({top}/{bottom})"
            return f"(({top} - {_c_remainder(top, bottom)})/{bottom})"
        case Remainder():
            top, bottom = c_operand(atom.numerator), c_operand(atom.denominator)
            return f"({top}%{bottom})" if rounds_down(atom) else _c_remainder(top, bottom)


def rounds_down(atom: Quotient | Remainder) -> bool:
    """Whether C's division, which rounds towards zero, has the result that is meant.

    Divisors are at least 1. An exact quotient leaves nothing to round.
    """
    if isinstance(atom, Quotient) and atom.exact:
        return True
    return is_nonnegative(atom.numerator)


def _c_remainder(top: str, bottom: str) -> str:
    """A remainder that is not negative, whatever is divided."""
    return f"(({top}%{bottom} + {bottom})%{bottom})"


def c_operand(expression: Expr) -> str:
    """As :func:`c_index`, in parentheses unless it is one name or number."""
    text = c_index(expression)
    return text if re.fullmatch(r"\w+", text) else f"({text})"


def c_condition(guard: Guard) -> str | None:
    """The condition of a guard, without what always holds; None if nothing is left."""
    index, limit = guard.index, guard.limit
    if in_range(index, limit):
        return None
    parts: list[str] = []
    if not is_nonnegative(index):
        parts.append(f"{c_index(index)} >= 0")
    high = upper_bound(index)
    if high is None or not is_nonnegative(limit - 1 - high):
        parts.append(f"{c_index(index)} < {c_index(limit)}")
    return " && ".join(parts) or None


def c_all(conditions: list[str]) -> str:
    """All of these conditions, without the branches that ``&&`` asks for."""
    parts = [part for condition in conditions for part in condition.split(" && ")]
    return parts[0] if len(parts) == 1 else " & ".join(f"({part})" for part in parts)


def never_holds(guard: Guard) -> bool:
    """True for numbers that contradict it, as unrolling leaves them.

    What it guards must not be printed then: an element outside an array that has become
    registers has no name.
    """
    index, limit = guard.index.constant, guard.limit.constant
    return index is not None and limit is not None and not 0 <= index < limit


def c_number(value: float, element: Element) -> str:
    """A literal of an element type; of 16-bit floats, which kernels hold as 32-bit ones, one."""
    if not element.is_integer:
        return c_float(value)
    number = int(value)
    match element:
        case Element.UINT32:
            return f"{number}u"
        case Element.INT32 if number == element.range[0]:
            return f"({number + 1} - 1)"  # without its sign it would be no int
        case Element.INT32:
            return str(number) if number >= 0 else f"({number})"
        case _:
            return f"(({element.text}){number})"


def c_float(value: float) -> str:
    """A float literal that reads back as the same float."""
    if value != value:
        return "NAN"
    if value in (float("inf"), float("-inf")):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    text = repr(float(value))
    if "e" not in text and "." not in text:
        text += ".0"
    return f"{text}f" if value >= 0 and not text.startswith("-") else f"({text}f)"
