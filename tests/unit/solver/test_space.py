"""Spaces: domains, and the check that knows no solver."""

from __future__ import annotations

import pytest

from mapper.ast_model.nodes import Parameter, Relation
from mapper.constraint_rules.predicate import (
    CodeVariable,
    LocalSizeVariable,
    ParameterVariable,
    Variable,
    compare,
)
from mapper.constraint_rules.rule import Constraint, Mode, Provenance
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError
from mapper.solver.space import build_space, check, smooth_numbers
from tests.unit.constraint_rules.nests import listing_1, nest, tree_map

DEVICE = DeviceProfile("d", 48, (48, 16, 4), 1024, 1024, 1 << 20, 1 << 30, 4)


def constraint(predicate, name: str = "test/1") -> Constraint:
    return Constraint(name, "test", (), predicate, Provenance("test", ""), "buf", "why", "do")


def test_smooth_numbers():
    assert smooth_numbers(16) == (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16)
    assert all(n % 11 and n % 13 for n in smooth_numbers(1024))


def test_domains():
    space = build_space(listing_1("g"), device=DEVICE, parameters=[Parameter("t", (1, 2, 4))])
    domains = space.domains
    assert domains[ParameterVariable("t")] == (1, 2, 4)
    assert domains[LocalSizeVariable("k", 2)] == (1, 2, 3, 4)
    assert max(domains[LocalSizeVariable("k", 0)]) == 48
    assert 1 not in domains[CodeVariable("B")] and 1 in domains[CodeVariable("C")]


def test_paper_mode_has_no_local_sizes_unless_asked():
    tree = nest(tree_map("A"))
    size = LocalSizeVariable("k", 1)
    assert size not in build_space(tree, Mode.PAPER).domains
    extra = constraint(compare(Relation.LE, size, 8))
    assert size in build_space(tree, Mode.PAPER, extra=[extra]).domains


def test_constraints_over_unknown_variables_are_refused():
    extra = constraint(compare(Relation.LE, ParameterVariable("t"), 8))
    with pytest.raises(InputError, match="t: a constraint speaks of a variable"):
        build_space(nest(tree_map("A")), extra=[extra])


def test_a_parameter_without_values_is_refused():
    with pytest.raises(InputError, match="t: no value is allowed"):
        build_space(nest(tree_map("A")), parameters=[Parameter("t", ())])


def test_kernels_do_not_share_names_or_maps():
    with pytest.raises(InputError, match="two kernels have one name"):
        build_space([nest(tree_map("A")), nest(tree_map("A"))])


def test_missing_and_unknown_variables_are_named():
    space = build_space(nest(tree_map("A"), tree_map("B")), Mode.PAPER)
    with pytest.raises(InputError) as caught:
        check(space, {CodeVariable("A"): 0, CodeVariable("Z"): 0})
    assert "code(B): no value is given" in str(caught.value)
    assert "code(Z): there is no map Z" in str(caught.value)


@pytest.mark.parametrize(
    ("code", "rule"), [(1, "perfect-nesting"), (4, "vectorisation"), (99, "code-domain")]
)
def test_codes_outside_the_domain(code: int, rule: str):
    space = build_space(nest(tree_map("A")), Mode.PAPER)
    (violation,) = check(space, {CodeVariable("A"): code})
    assert violation.rule == rule and violation.maps == ("A",)
    assert "S, L0" in violation.remedy


def test_violations_carry_the_constraint():
    extra = constraint(compare(Relation.LE, ParameterVariable("t"), 2))
    tree = nest(tree_map("A"))
    space = build_space(tree, Mode.PAPER, parameters=[Parameter("t", (1, 4))], extra=[extra])
    assignment: dict[Variable, int] = {CodeVariable("A"): 30, ParameterVariable("t"): 4}
    (violation,) = check(space, assignment)
    assert (violation.constraint, violation.buffer, violation.sentence) == ("test/1", "buf", "why")
