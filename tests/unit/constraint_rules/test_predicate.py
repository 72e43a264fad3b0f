"""Predicates: constructors, text, meaning, and the total division."""

from __future__ import annotations

import pytest

from mapper.ast_model.index_expr import const, floor_div, modulo, symbol
from mapper.ast_model.nodes import Relation
from mapper.constraint_rules.evaluation import evaluate, evaluate_partial
from mapper.constraint_rules.predicate import (
    FALSE,
    TRUE,
    CodeVariable,
    IntConst,
    LocalSizeVariable,
    ParameterVariable,
    add,
    all_of,
    any_of,
    compare,
    divides,
    floor_divide,
    maximum,
    member,
    multiply,
    negate,
    remainder,
    select,
    subtract,
    term_of,
    to_text,
    variables,
)
from mapper.constraint_rules.rewriting import bind
from mapper.errors import InputError

A, B = CodeVariable("A"), CodeVariable("B")
KG, SK = ParameterVariable("kg"), ParameterVariable("sk")


def test_constants_fold():
    assert all_of() == TRUE and any_of() == FALSE
    assert all_of(member(A, [1]), FALSE) == FALSE
    assert any_of(member(A, [1]), TRUE) == TRUE
    assert member(A, []) == FALSE
    assert negate(negate(member(A, [1]))) == member(A, [1])
    assert compare(Relation.LT, 3, 4) == TRUE
    assert add(1, KG, 2) == add(KG, 3)
    assert multiply(2, KG, 0) == IntConst(0)
    assert maximum(3, 5) == IntConst(5)
    assert select(TRUE, 1, 2) == IntConst(1)
    assert all_of(all_of(member(A, [1]), member(B, [1])), member(A, [1])) == all_of(
        member(A, [1]), member(B, [1])
    )


@pytest.mark.parametrize(
    ("predicate", "text"),
    [
        (member(CodeVariable(28), (10, 11, 12)), "code(28) in {L0, L1, L2}"),
        (member(CodeVariable(3), (21,)), "code(3) = W1"),
        (negate(member(A, (0,))), "code(A) ≠ S"),
        (divides(SK, KG), "kg % sk = 0"),
        (compare(Relation.LE, multiply(KG, SK), 4), "kg * sk ≤ 4"),
        (any_of(all_of(member(A, [0]), member(B, [1])), member(B, [0])),
         "(code(A) = S and code(B) = F) or code(B) = S"),
        (compare(Relation.GT, LocalSizeVariable("k", 0), add(floor_divide(KG, 2), 1)),
         "local_size(k, 0) > (kg // 2) + 1"),
    ],
)  # fmt: skip
def test_text(predicate, text: str):
    assert to_text(predicate) == text


def test_expressions_become_terms():
    n, kg = symbol("n"), symbol("kg")
    expression = floor_div(n + 1, kg) * 2 + modulo(n, kg) - const(3)
    term = term_of(expression, {"n": 10})
    assert variables(term) == {KG}
    for value in (1, 2, 3, 4):
        expected = expression.evaluate({"n": 10, "kg": value})
        assert evaluate(compare(Relation.EQ, term, expected), {KG: value})


def test_a_loop_variable_is_no_term():
    with pytest.raises(InputError, match="loop variable"):
        term_of(symbol("i", 4), {})


def test_division_is_total():
    assert floor_divide(7, 0) == IntConst(0) and remainder(7, 0) == IntConst(7)
    assert floor_divide(-7, 2) == IntConst(-4) and remainder(-7, 2) == IntConst(1)
    assert not evaluate(divides(SK, 8), {SK: 0})
    assert evaluate(divides(SK, subtract(KG, KG)), {SK: 0, KG: 3})


def test_a_missing_value_is_named():
    with pytest.raises(InputError, match=r"code\(A\)"):
        evaluate(member(A, [1]), {})


def test_partial_knowledge():
    domains = {A: (0, 1, 10), KG: (2, 4, 8), SK: (1, 2)}
    assert evaluate_partial(member(A, [0, 1, 10]), {}, domains) is True
    assert evaluate_partial(member(A, [20]), {}, domains) is False
    assert evaluate_partial(member(A, [0]), {}, domains) is None
    assert evaluate_partial(compare(Relation.LE, multiply(KG, SK), 16), {}, domains) is True
    assert evaluate_partial(compare(Relation.GT, KG, 8), {}, domains) is False
    assert bind(divides(SK, KG), {SK: 2}) == divides(2, KG)
    assert bind(divides(SK, KG), {SK: 2, KG: 4}) == TRUE
