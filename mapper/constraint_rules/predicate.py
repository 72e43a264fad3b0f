"""Predicates over schedule codes, tuning parameters and local sizes: one definition for all.

A rule produces a predicate once; it is evaluated (``evaluation.py``), printed
(:func:`to_text`) and lowered to a solver model from this one value. "Mapping Parallelism in a
Functional IR through Constraint Satisfaction" (CC'22), section 4.2: quantifier-free
comparisons over non-linear integer terms, joined by and, or and not.

Division is total, so that evaluation and every solver agree: below a divisor of at least 1 it
is floor division; with a divisor below 1 the quotient is 0 and the remainder is the dividend
(then nothing but 0 is divisible by it).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar, assert_never, dataclass_transform

from mapper.ast_model.index_expr import Expr, Quotient, Remainder, Symbol
from mapper.ast_model.nodes import MapId, Relation
from mapper.errors import InputError, Problem
from mapper.schedule import code_name

_Class = TypeVar("_Class", bound="type[_Node]")


class _Node:
    """Solvers look predicates up by value and ask for their variables time and again, so that each
    keeps its hash and the set of its variables."""

    __slots__ = ("_hash", "_variables")
    _hash: int
    _variables: frozenset[Variable]


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def _node(plain: _Class) -> _Class:
    made = dataclass(frozen=True, slots=True)(plain)
    computed = made.__hash__

    def kept(self: _Node) -> int:
        try:
            return self._hash  # pyright: ignore[reportPrivateUsage]
        except AttributeError:
            found = computed(self)
            object.__setattr__(self, "_hash", found)
            return found

    made.__hash__ = kept
    return made


@_node
class CodeVariable(_Node):
    """The schedule code of a map."""

    map_id: MapId

    def __str__(self) -> str:
        return f"code({self.map_id})"


@_node
class ParameterVariable(_Node):
    """The value of a tuning parameter; ``labels`` name the values 0, 1, … where there are any."""

    name: str
    labels: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def __str__(self) -> str:
        return self.name


@_node
class LocalSizeVariable(_Node):
    """The number of work-items of a work-group in one dimension (global mappings too)."""

    kernel: str
    dimension: int

    def __str__(self) -> str:
        return f"local_size({self.kernel}, {self.dimension})"


Variable = CodeVariable | ParameterVariable | LocalSizeVariable


@_node
class IntConst(_Node):
    """An integer."""

    value: int


@_node
class Sum(_Node):
    """The sum of terms."""

    terms: tuple[IntTerm, ...]


@_node
class Product(_Node):
    """The product of terms."""

    factors: tuple[IntTerm, ...]


@_node
class FloorDiv(_Node):
    """Floor division (total, see the module)."""

    numerator: IntTerm
    denominator: IntTerm


@_node
class Modulo(_Node):
    """The remainder of floor division (total, see the module)."""

    numerator: IntTerm
    denominator: IntTerm


@_node
class Select(_Node):
    """``then`` where the condition holds, else ``otherwise``."""

    condition: Predicate
    then: IntTerm
    otherwise: IntTerm


@_node
class Maximum(_Node):
    """The largest of one or more terms."""

    terms: tuple[IntTerm, ...]


IntTerm = IntConst | Variable | Sum | Product | FloorDiv | Modulo | Select | Maximum


@_node
class Truth(_Node):
    """True or false; use TRUE and FALSE."""

    value: bool


@_node
class Compare(_Node):
    """A comparison; the relation is any of ``Relation`` except DIVIDES."""

    relation: Relation
    left: IntTerm
    right: IntTerm


@_node
class Member(_Node):
    """The variable has one of these values."""

    variable: Variable
    values: frozenset[int]


@_node
class And(_Node):
    """All parts hold."""

    parts: tuple[Predicate, ...]


@_node
class Or(_Node):
    """Some part holds."""

    parts: tuple[Predicate, ...]


@_node
class Not(_Node):
    """The part does not hold."""

    part: Predicate


Predicate = Truth | Compare | Member | And | Or | Not
Assignment = Mapping[Variable, int]

TRUE = Truth(True)
FALSE = Truth(False)

OPPOSITE = {
    Relation.EQ: Relation.NE,
    Relation.NE: Relation.EQ,
    Relation.LE: Relation.GT,
    Relation.GT: Relation.LE,
    Relation.LT: Relation.GE,
    Relation.GE: Relation.LT,
}


def floor_div_total(numerator: int, denominator: int) -> int:
    """The quotient as :class:`FloorDiv` means it."""
    return numerator // denominator if denominator >= 1 else 0


def modulo_total(numerator: int, denominator: int) -> int:
    """The remainder as :class:`Modulo` means it."""
    return numerator % denominator if denominator >= 1 else numerator


def related(relation: Relation, left: int, right: int) -> bool:
    """Whether two integers stand in a relation; DIVIDES as in ``left | right``."""
    match relation:
        case Relation.EQ:
            return left == right
        case Relation.NE:
            return left != right
        case Relation.LE:
            return left <= right
        case Relation.LT:
            return left < right
        case Relation.GE:
            return left >= right
        case Relation.GT:
            return left > right
        case Relation.DIVIDES:
            return modulo_total(right, left) == 0
        case _:
            assert_never(relation)


def as_term(value: IntTerm | int) -> IntTerm:
    """An int as a constant; a term as it is."""
    return IntConst(value) if isinstance(value, int) else value


def add(*terms: IntTerm | int) -> IntTerm:
    """The sum, flattened, constants folded."""
    kept: list[IntTerm] = []
    constant = 0
    for term in map(as_term, terms):
        for part in term.terms if isinstance(term, Sum) else (term,):
            if isinstance(part, IntConst):
                constant += part.value
            else:
                kept.append(part)
    if constant or not kept:
        kept.append(IntConst(constant))
    return kept[0] if len(kept) == 1 else Sum(tuple(kept))


def multiply(*factors: IntTerm | int) -> IntTerm:
    """The product, flattened, constants folded."""
    kept: list[IntTerm] = []
    constant = 1
    for factor in map(as_term, factors):
        for part in factor.factors if isinstance(factor, Product) else (factor,):
            if isinstance(part, IntConst):
                constant *= part.value
            else:
                kept.append(part)
    if constant == 0:
        return IntConst(0)
    if constant != 1 or not kept:
        kept.insert(0, IntConst(constant))
    return kept[0] if len(kept) == 1 else Product(tuple(kept))


def subtract(left: IntTerm | int, right: IntTerm | int) -> IntTerm:
    """The difference."""
    return add(left, multiply(-1, right))


def floor_divide(numerator: IntTerm | int, denominator: IntTerm | int) -> IntTerm:
    """Floor division, constants folded."""
    top, bottom = as_term(numerator), as_term(denominator)
    if isinstance(top, IntConst) and isinstance(bottom, IntConst):
        return IntConst(floor_div_total(top.value, bottom.value))
    return top if bottom == IntConst(1) else FloorDiv(top, bottom)


def remainder(numerator: IntTerm | int, denominator: IntTerm | int) -> IntTerm:
    """The remainder, constants folded."""
    top, bottom = as_term(numerator), as_term(denominator)
    if isinstance(top, IntConst) and isinstance(bottom, IntConst):
        return IntConst(modulo_total(top.value, bottom.value))
    return IntConst(0) if bottom == IntConst(1) else Modulo(top, bottom)


def select(condition: Predicate, then: IntTerm | int, otherwise: IntTerm | int) -> IntTerm:
    """``then`` if the condition holds, else ``otherwise``."""
    first, second = as_term(then), as_term(otherwise)
    if isinstance(condition, Truth):
        return first if condition.value else second
    return first if first == second else Select(condition, first, second)


def maximum(*terms: IntTerm | int) -> IntTerm:
    """The largest term; there must be one."""
    kept: dict[IntTerm, None] = {}
    constant: int | None = None
    for term in map(as_term, terms):
        for part in term.terms if isinstance(term, Maximum) else (term,):
            if isinstance(part, IntConst):
                constant = part.value if constant is None else max(constant, part.value)
            else:
                kept[part] = None
    if constant is not None:
        kept[IntConst(constant)] = None
    if not kept:
        raise InputError("the maximum of no terms is not defined")
    return next(iter(kept)) if len(kept) == 1 else Maximum(tuple(kept))


def compare(relation: Relation, left: IntTerm | int, right: IntTerm | int) -> Predicate:
    """A comparison; DIVIDES becomes a remainder of zero, variable = constant a membership."""
    first, second = as_term(left), as_term(right)
    if relation is Relation.DIVIDES:
        return compare(Relation.EQ, remainder(second, first), 0)
    if isinstance(first, IntConst) and isinstance(second, IntConst):
        return Truth(related(relation, first.value, second.value))
    if relation in (Relation.EQ, Relation.NE):
        if isinstance(first, IntConst):
            first, second = second, first
        if isinstance(first, Variable) and isinstance(second, IntConst):
            equal = Member(first, frozenset({second.value}))
            return equal if relation is Relation.EQ else Not(equal)
    if first == second:
        return Truth(relation in (Relation.EQ, Relation.LE, Relation.GE))
    return Compare(relation, first, second)


def divides(divisor: IntTerm | int, dividend: IntTerm | int) -> Predicate:
    """``divisor | dividend``."""
    return compare(Relation.DIVIDES, divisor, dividend)


def member(variable: Variable, values: Iterable[int]) -> Predicate:
    """The variable has one of these values."""
    allowed = frozenset(int(value) for value in values)
    return Member(variable, allowed) if allowed else FALSE


def all_of(*parts: Predicate) -> Predicate:
    """All parts hold: flattened, without repeats; no parts is true."""
    kept: dict[Predicate, None] = {}
    for part in parts:
        for inner in part.parts if isinstance(part, And) else (part,):
            if not isinstance(inner, Truth):
                kept[inner] = None
            elif not inner.value:
                return FALSE
    if not kept:
        return TRUE
    return next(iter(kept)) if len(kept) == 1 else And(tuple(kept))


def any_of(*parts: Predicate) -> Predicate:
    """Some part holds: flattened, without repeats; no parts is false."""
    kept: dict[Predicate, None] = {}
    for part in parts:
        for inner in part.parts if isinstance(part, Or) else (part,):
            if not isinstance(inner, Truth):
                kept[inner] = None
            elif inner.value:
                return TRUE
    if not kept:
        return FALSE
    return next(iter(kept)) if len(kept) == 1 else Or(tuple(kept))


def negate(part: Predicate) -> Predicate:
    """The opposite; comparisons are turned round, double negation vanishes."""
    match part:
        case Truth(value):
            return Truth(not value)
        case Not(inner):
            return inner
        case Compare(relation, left, right):
            return Compare(OPPOSITE[relation], left, right)
        case Member() | And() | Or():
            return Not(part)
        case _:
            assert_never(part)


def implies(condition: Predicate, consequence: Predicate) -> Predicate:
    """If the condition holds, the consequence does."""
    return any_of(negate(condition), consequence)


def subterms(item: Predicate | IntTerm) -> tuple[Predicate | IntTerm, ...]:
    """The direct parts of a predicate or term."""
    match item:
        case And(parts) | Or(parts):
            return parts
        case Not(part):
            return (part,)
        case Compare(_, left, right):
            return (left, right)
        case Member(variable, _):
            return (variable,)
        case Sum(terms) | Product(terms) | Maximum(terms):
            return terms
        case FloorDiv(numerator, denominator) | Modulo(numerator, denominator):
            return (numerator, denominator)
        case Select(condition, then, otherwise):
            return (condition, then, otherwise)
        case Truth() | IntConst() | CodeVariable() | ParameterVariable() | LocalSizeVariable():
            return ()
        case _:
            assert_never(item)


def variables(*items: Predicate | IntTerm) -> frozenset[Variable]:
    """Every variable that occurs in any of them."""
    if len(items) == 1:
        return _variables(items[0])
    return frozenset[Variable]().union(*map(_variables, items))


def _variables(item: Predicate | IntTerm) -> frozenset[Variable]:
    try:
        return item._variables  # pyright: ignore[reportPrivateUsage]
    except AttributeError:
        found = frozenset((item,)) if isinstance(item, Variable) else variables(*subterms(item))
        object.__setattr__(item, "_variables", found)
        return found


def term_of(expression: Expr, sizes: Mapping[str, int]) -> IntTerm:
    """An index expression as a term: sizes become constants, other names parameters.

    An expression with a loop variable has no single value: InputError.
    """
    terms: list[IntTerm] = []
    for monomial, coefficient in expression.terms:
        factors: list[IntTerm] = [IntConst(coefficient)]
        for atom in monomial:
            match atom:
                case Symbol(name, extent, _):
                    if extent is not None:
                        raise InputError(
                            Problem(str(expression), "a loop variable has no one value", name)
                        )
                    factors.append(
                        IntConst(sizes[name]) if name in sizes else ParameterVariable(name)
                    )
                case Quotient(numerator, denominator, _):
                    factors.append(
                        floor_divide(term_of(numerator, sizes), term_of(denominator, sizes))
                    )
                case Remainder(numerator, denominator):
                    factors.append(
                        remainder(term_of(numerator, sizes), term_of(denominator, sizes))
                    )
                case _:
                    assert_never(atom)
        terms.append(multiply(*factors))
    return add(*terms)


def value_text(variable: Variable, value: int) -> str:
    """A value as people read it: the name of a code, a parameter's label, or the number."""
    if isinstance(variable, CodeVariable):
        return code_name(value)
    labels = variable.labels if isinstance(variable, ParameterVariable) else ()
    return labels[value] if 0 <= value < len(labels) else str(value)


def _nested_text(item: Predicate | IntTerm) -> str:
    match item:
        case And() | Or() | Sum() | Product() | FloorDiv() | Modulo():
            return f"({to_text(item)})"
        case _:
            return to_text(item)


def to_text(item: Predicate | IntTerm) -> str:
    """Readable text: ``code(28) in {L0, L1}``, ``code(3) = W1``, ``kg % sk = 0``."""
    match item:
        case Truth(value):
            return "true" if value else "false"
        case Compare(relation, left, right):
            sign = {"==": "=", "!=": "≠", "<=": "≤", ">=": "≥"}.get(relation.value, relation.value)
            return f"{to_text(left)} {sign} {to_text(right)}"
        case Member(variable, values):
            return _member_text(variable, values, "=", "in")
        case Not(Member(variable, values)):
            return _member_text(variable, values, "≠", "not in")
        case And(parts):
            return " and ".join(_nested_text(part) for part in parts)
        case Or(parts):
            return " or ".join(_nested_text(part) for part in parts)
        case Not(part):
            return f"not ({to_text(part)})"
        case IntConst(value):
            return str(value)
        case CodeVariable() | ParameterVariable() | LocalSizeVariable():
            return str(item)
        case Sum(terms):
            return " + ".join(_nested_text(term) for term in terms)
        case Product(factors):
            return " * ".join(_nested_text(factor) for factor in factors)
        case FloorDiv(numerator, denominator):
            return f"{_nested_text(numerator)} // {_nested_text(denominator)}"
        case Modulo(numerator, denominator):
            return f"{_nested_text(numerator)} % {_nested_text(denominator)}"
        case Select(condition, then, otherwise):
            return f"(if {to_text(condition)} then {to_text(then)} else {to_text(otherwise)})"
        case Maximum(terms):
            return "max(" + ", ".join(to_text(term) for term in terms) + ")"
        case _:
            assert_never(item)


def _member_text(variable: Variable, values: frozenset[int], one: str, many: str) -> str:
    texts = [value_text(variable, value) for value in sorted(values)]
    if len(texts) == 1:
        return f"{variable} {one} {texts[0]}"
    return f"{variable} {many} {{{', '.join(texts)}}}"
