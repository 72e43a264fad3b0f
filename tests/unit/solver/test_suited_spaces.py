"""Spaces with rules of suitability: counted as by other means, and what they hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mapper.constraint_rules.predicate import Assignment, CodeVariable, Variable
from mapper.constraint_rules.rewriting import bind
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.constraint_rules.suits.catalogue import ALL_SUITS
from mapper.errors import LimitError, UnsatisfiableError
from mapper.layer_sets import named_layer
from mapper.layer_spec import LayerSpec, Layout
from mapper.pipeline import assignment_from_json, derive_space, subject_of_layer
from mapper.profiles import load_profile
from mapper.solver.counting import count_assignments, count_mappings
from mapper.solver.factored import combined
from mapper.solver.factored.narrowing import Narrowing, is_suited
from mapper.solver.factored.suited import SuitedSpace
from mapper.solver.factored.values import FactoredValues
from mapper.solver.joint import JointSpace
from mapper.solver.limits import Watch
from mapper.solver.sampling import Measure, complete, sample_of
from mapper.solver.solutions import solutions_of
from mapper.solver.space import Space, check
from mapper.tuning_records import records_of, shipped_records
from mapper.tuning_space.where import with_where

SMALL = LayerSpec(
    name="small",
    channels=2,
    height=4,
    width=4,
    filters=4,
    kernel_height=3,
    kernel_width=3,
    pad_top=1,
    pad_left=1,
    pad_bottom=1,
    pad_right=1,
)
EVERY = RuleOptions(suits=ALL_SUITS)


def space_of(layer: LayerSpec, variant: str, device: str, options: RuleOptions = EVERY) -> Space:
    return derive_space(
        subject_of_layer(layer, variant), Mode.STRICT, load_profile(device), options
    )


def codes_in(assignment: Assignment) -> dict[Variable, int]:
    return {v: code for v, code in assignment.items() if isinstance(v, CodeVariable)}


@pytest.mark.parametrize("variant", ["blocked", "blocked-in-place", "high-level"])
def test_programs_are_counted_as_by_classes_and_tables(variant: str):
    space = space_of(SMALL, variant, "pocl")
    found, other = solutions_of(space), JointSpace(space)
    assert isinstance(found, SuitedSpace)
    assert found.count_joint() == other.count_joint() > 0
    assert found.count_mappings() == other.count_mappings()


def test_constraints_of_one_s_own_are_counted_as_by_classes_and_tables():
    texts = ["code(pack_tap) != S or tw == 1", "bm + bc < 6", "local_size(convolution, 0) <= 2"]
    space = with_where(space_of(SMALL, "blocked", "pocl"), texts)
    assert SuitedSpace(space).count_joint() == JointSpace(space).count_joint() > 0


def test_values_of_a_record_s_codes_are_counted_as_by_one_diagram():
    # The diagram over all parameters took 105 s to be made (docs/decisions/0026, part a).
    layer = replace(named_layer("vgg16/7"), layout=Layout.NCHW)
    space = space_of(layer, "tiled-vectors-slices", "h200", RuleOptions())
    assert not is_suited(space)
    (record,) = records_of(shipped_records("h200"), layer)
    chosen = assignment_from_json(space, dict(record.choices))
    codes = codes_in(chosen)
    entries = [entry for entry in space.variables if entry[0] not in codes]
    demands = [bind(constraint.predicate, codes) for constraint in space.constraints]
    assert FactoredValues(entries, demands, Watch()).count == 646_073_428


def test_a_space_that_was_refused_is_counted_and_holds_the_record():
    layer = replace(named_layer("vgg16/10"), layout=Layout.NCHW)
    space = space_of(layer, "tiled-vectors-slices", "h200")
    (record,) = records_of(shipped_records("h200"), layer)
    assert not check(space, assignment_from_json(space, dict(record.choices)))
    narrowing = Narrowing(space, Watch().tick)
    codes = [domain for v, domain in narrowing.domains.items() if isinstance(v, CodeVariable)]
    assert len(codes) == 62 and sum(len(domain) > 1 for domain in codes) <= 20
    # It is made once, which takes most of the time; each is checked as it is drawn.
    solutions = solutions_of(space)
    for measure in Measure:
        drawn = sample_of(solutions, space, 5, 3, measure=measure, watch=Watch())
        assert len(list(drawn)) == 5
    # The codes of the record alone are one of its mappings.
    chosen = assignment_from_json(space, dict(record.choices))
    pins = codes_in(chosen)
    assert count_mappings(space, pins).mappings == 1
    assert 0 < count_assignments(space, pins) < solutions.count_joint()


def test_a_solver_is_given_what_is_left():
    layer = replace(named_layer("vgg16/7"), layout=Layout.NCHW)
    space = space_of(layer, "tiled-vectors-slices", "h200")
    # The rules' own terms are up to 2^73 there, and CP-SAT computes in 64 bits.
    codes = {v: 0 for v, _ in space.variables if str(v) == "code(image_c)"}
    found = complete(space, codes)
    assert not check(space, found) and found.items() >= codes.items()
    with pytest.raises(UnsatisfiableError):
        complete(space, dict.fromkeys(codes, 30))


def test_codes_that_no_value_goes_with_are_none():
    space = space_of(SMALL, "blocked", "pocl")
    size = next(v for v, _ in space.variables if str(v) == "local_size(convolution, 0)")
    code = next(v for v, _ in space.variables if str(v) == "code(image)")
    # A work-group map without a local one: one work-item a group.
    assert count_mappings(space, {size: 2, code: 20}).mappings == 0


def test_too_many_demands_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(combined, "_MOST", 3)
    with pytest.raises(LimitError, match="demand too much"):
        count_mappings(space_of(SMALL, "blocked", "pocl"))
