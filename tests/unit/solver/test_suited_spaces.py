"""Spaces with rules of suitability: counted as by other means, and what they hold."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from mapper.constraint_rules.predicate import Assignment, CodeVariable, Variable
from mapper.constraint_rules.rewriting import bind
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.constraint_rules.suits.catalogue import ALL_SUITS
from mapper.errors import LimitError, UnsatisfiableError
from mapper.layer_sets import named_layer
from mapper.layer_spec import LayerSpec, Layout
from mapper.pipeline import assignment_from_json, derive_space
from mapper.profiles import load_profile
from mapper.solver.counting import count_assignments, count_mappings
from mapper.solver.factored import combined
from mapper.solver.factored.narrowing import Narrowing
from mapper.solver.factored.suited import SuitedSpace
from mapper.solver.factored.values import FactoredValues
from mapper.solver.joint import JointSpace
from mapper.solver.limits import Watch
from mapper.solver.restrictions import Restrictions, narrowed
from mapper.solver.sampling import Measure, complete, sample_of
from mapper.solver.solutions import solutions_of
from mapper.solver.space import Space, check
from mapper.tuning_records import TuningRecord, best_record, shipped_records
from mapper.tuning_space.where import with_where
from nestmap.tuning.record_subjects import subject_of_record
from nestmap.tuning.sketch_subjects import layer_in

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
    profile = load_profile(device)
    return derive_space(layer_in(layer, variant, profile), Mode.STRICT, profile, options)


def codes_in(assignment: Assignment) -> dict[Variable, int]:
    return {v: code for v, code in assignment.items() if isinstance(v, CodeVariable)}


@pytest.mark.parametrize("variant", ["tile-packed-filter", "tile-filter", "high-level"])
def test_programs_are_counted_as_by_classes_and_tables(variant: str):
    space = space_of(SMALL, variant, "pocl")
    found, other = solutions_of(space), JointSpace(space)
    assert isinstance(found, SuitedSpace)
    assert found.count_joint() == other.count_joint() > 0
    assert found.count_mappings() == other.count_mappings()


def test_constraints_of_one_s_own_are_counted_as_by_classes_and_tables():
    texts = ["code(weights_packed_2) != S or own_column == 1", "own_filter + chunk_convolution < 6",
             "local_size(convolution, 0) <= 2"]  # fmt: skip
    space = with_where(space_of(SMALL, "tile-packed-filter", "pocl"), texts)
    assert SuitedSpace(space).count_joint() == JointSpace(space).count_joint() > 0


def test_values_of_a_solution_s_codes_are_counted_as_by_classes_and_tables():
    space = space_of(SMALL, "tile-packed-filter", "pocl")
    solved, random = SuitedSpace(space), Random(1)
    for _ in range(5):
        chosen = solved.draw_joint(random)
        assert chosen is not None
        codes = codes_in(chosen)
        entries = [entry for entry in space.variables if entry[0] not in codes]
        demands = [bind(constraint.predicate, codes) for constraint in space.constraints]
        found = FactoredValues(entries, demands, Watch()).count
        pinned = narrowed(space, Restrictions(pins=codes))
        assert found == JointSpace(pinned).count_joint() > 0


def record_and_space() -> tuple[TuningRecord, Space]:
    """The fastest of vgg16/10 on the H200: it keeps windows in registers."""
    layer, profile = replace(named_layer("vgg16/10"), layout=Layout.NCHW), load_profile("h200")
    record = best_record(shipped_records("h200"), layer)
    assert record is not None and "registers" in record.variant
    subject = subject_of_record(record, profile)
    return record, derive_space(subject, Mode.STRICT, profile, EVERY)


def test_a_large_space_is_counted_and_holds_the_record():
    record, space = record_and_space()
    chosen = assignment_from_json(space, dict(record.choices))
    assert not check(space, chosen)
    narrowing = Narrowing(space, Watch().tick)
    codes = [domain for v, domain in narrowing.domains.items() if isinstance(v, CodeVariable)]
    assert len(codes) > 50 and sum(len(domain) > 1 for domain in codes) <= 20
    # It is made once, which takes most of the time; each is checked as it is drawn.
    solutions = solutions_of(space)
    for measure in Measure:
        drawn = sample_of(solutions, space, 5, 3, measure=measure, watch=Watch())
        assert len(list(drawn)) == 5
    # The codes of the record alone are one of its mappings.
    pins = codes_in(chosen)
    assert count_mappings(space, pins).mappings == 1
    assert 0 < count_assignments(space, pins) < solutions.count_joint()


def test_a_solver_is_given_what_is_left():
    layer = replace(named_layer("vgg16/7"), layout=Layout.NCHW)
    space = space_of(layer, "blocks-sliced-packed-filter", "h200")
    codes = {v: 0 for v, _ in space.variables if str(v) == "code(image_local)"}
    # The rules' own terms are beyond the 64 bits that CP-SAT computes in.
    with pytest.raises(LimitError):
        complete(space_of(layer, "blocks-sliced-packed-filter", "h200", RuleOptions()), codes)
    found = complete(space, codes)
    assert codes and not check(space, found) and found.items() >= codes.items()
    with pytest.raises(UnsatisfiableError):
        complete(space, dict.fromkeys(codes, 30))


def test_codes_that_no_value_goes_with_are_none():
    space = space_of(SMALL, "tile-packed-filter", "pocl")
    size = next(v for v, _ in space.variables if str(v) == "local_size(convolution, 0)")
    code = next(v for v, _ in space.variables if str(v) == "code(filter_tile)")
    # A work-group map without a local one: one work-item a group.
    assert count_mappings(space, {size: 2, code: 20}).mappings == 0


def test_too_many_demands_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(combined, "_MOST", 3)
    with pytest.raises(LimitError, match="demand too much"):
        count_mappings(space_of(SMALL, "tile-packed-filter", "pocl"))
