"""Each rule of suitability: a mapping that it keeps, and one that it takes away."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mapper.ast_model.text_form import parse
from mapper.constraint_rules.predicate import to_text
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.constraint_rules.suits.catalogue import ALL_SUITS, SUITS, wanted_suits
from mapper.constraint_rules.suits.suit import DeviceKind, kind_of
from mapper.errors import InputError
from mapper.pipeline import derive_space, rule_counts, subject_of_program
from mapper.profiles import load_profile
from mapper.solver.counting import count_mappings
from mapper.solver.explanation import explain_conflict
from tests.unit.constraint_rules.suits.programs import (
    COPY,
    CPU,
    DEEP,
    GPU,
    MALI,
    PRODUCTS,
    STAGED,
    SUMS,
    space_of,
    unsuited,
)

STAGED_WELL = "A=W0 B=L0 C=F D=L0 E=F"


def test_kinds_of_the_shipped_profiles():
    kinds = {name: kind_of(load_profile(name)) for name in ("h200", "mali-g72", "pocl")}
    assert kinds == {
        "h200": DeviceKind.GPU, "mali-g72": DeviceKind.GPU, "pocl": DeviceKind.CPU,
    }  # fmt: skip


def test_what_suits_is_kept():
    assert unsuited(STAGED, GPU, STAGED_WELL, size=64) == set()
    assert unsuited(COPY, GPU, "A=G0 B=F", size=128) == set()
    assert unsuited(COPY, CPU, "A=G0 B=S", size=8) == set()
    assert unsuited(SUMS, GPU, "A=G0 Z=V4 C=V4 E=S F=F", v=4, size=64) == set()


def test_one_line():
    assert "suits-one-line" in unsuited(STAGED, GPU, "A=W1 B=L1 C=F D=L1 E=F")


def test_dimensions_in_order():
    # The outer map has the lower dimension.
    assert unsuited(COPY, CPU, "A=G0 B=G1") >= {"suits-dimensions-in-order"}
    # Dimension 0 is left out.
    assert unsuited(SUMS, CPU, "A=G1 Z=V4 C=V4 E=S F=F", v=4) == {"suits-dimensions-in-order"}


def test_groups_outside():
    # One work-group of dimension 0 elsewhere, and the map around the local buffer sequential:
    # local memory without a work-group is refused as it is, so a second map is needed.
    text = STAGED.replace("map#A(plane", "map#O(outer => map#A(plane", 1)
    text = text.replace("buffer), x)", "buffer), outer), x)").replace(
        "[[[float]K]J]I", "[[[[float]K]J]I]4"
    )
    assert unsuited(text, GPU, "O=W0 A=S B=L0 C=F D=L0 E=F", size=32) == {"suits-groups-outside"}
    assert unsuited(text, GPU, "O=W0 A=F B=L0 C=F D=L0 E=F", size=32) == set()


def test_items_inside():
    assert unsuited(SUMS, GPU, "A=S Z=V4 C=V4 E=S F=F", v=4) == {"suits-items-inside"}
    # On a processor a work-item may make several.
    assert unsuited(SUMS, CPU, "A=S Z=V4 C=V4 E=S F=F", v=4) == set()


def test_what_has_no_dimension_left_may_be_sequential():
    rest = "Z=V4 C=V4 E=S F=F"
    assert unsuited(DEEP, GPU, f"O=S P=G2 Q=G1 A=G0 {rest}", v=4) == set()
    assert unsuited(DEEP, GPU, f"O=S P=S Q=G1 A=G0 {rest}", v=4) == {"suits-items-inside"}


def test_global_items():
    assert unsuited(SUMS, GPU, "A=W0 Z=V4 C=V4 E=S F=F", v=4) == {"suits-global-items"}


def test_lone_items():
    assert "suits-lone-items" in unsuited(COPY, CPU, "A=W0 B=L0", size=4)
    # Local memory is of a group, and then local maps are what it is for.
    assert unsuited(STAGED, CPU, STAGED_WELL, size=8) == set()


def test_copies_in_line():
    assert unsuited(COPY, GPU, "A=G0 B=S") == {"suits-copies-in-line"}
    assert unsuited(COPY, GPU, "A=G1 B=G0") == {"suits-copies-in-line"}


def test_whole_vectors():
    one = "A=G0 Z={} C={} E=S F=F"
    assert unsuited(SUMS, GPU, one.format("V4", "V4"), v=8) == {"suits-whole-vectors"}
    assert unsuited(SUMS, GPU, one.format("S", "S"), v=4) == {"suits-whole-vectors"}
    # The GPU has no vectors of eight; a processor with AVX-512 has.
    assert unsuited(SUMS, GPU, one.format("S", "S"), v=8) == set()
    assert unsuited(SUMS, CPU, one.format("S", "S"), v=8) == {"suits-whole-vectors"}


def test_lanes_along():
    assert unsuited(STAGED, GPU, "A=W0 B=L0 C=S D=L0 E=F", size=32) >= {"suits-lanes-along"}
    assert unsuited(STAGED, GPU, "A=W0 B=S C=L0 D=S E=L0", size=32) == set()


def test_whole_warps():
    assert unsuited(STAGED, GPU, STAGED_WELL, size=48) == {"suits-whole-warps"}
    # A quad of a Mali is four; where nothing is known of lanes nothing is asked for.
    staged = {"suits-nothing-staged"}
    assert unsuited(STAGED, MALI, STAGED_WELL, size=4) == staged
    assert unsuited(STAGED, MALI, STAGED_WELL, size=6) == staged | {"suits-whole-warps"}
    assert unsuited(STAGED, replace(GPU, lanes=None), STAGED_WELL, size=48) == set()


def test_sums_in_registers():
    # 64 sums of one lane each, in 32 registers.
    assert unsuited(SUMS, CPU, "A=G0 Z=S C=S E=S F=F", v=64) == {"suits-sums-in-registers"}
    assert unsuited(SUMS, CPU, "A=G0 Z=V16 C=V16 E=S F=F", v=16) == set()


def test_vectors_wider_than_a_register_take_several():
    # 8 vectors of 16 floats in 16 registers of 32 bytes.
    narrow = replace(CPU, vector_registers=16, vector_bytes=32)
    mapping = "A=G0 Y=S Z=V16 M=S C=V16 E=S G=F F=F"
    rule = {"suits-sums-in-registers"}
    assert not unsuited(PRODUCTS, narrow, mapping, m=8, v=16) & rule
    assert unsuited(PRODUCTS, narrow, mapping, m=16, v=16) >= rule
    unknown = replace(CPU, vector_registers=None)
    assert unsuited(PRODUCTS, unknown, mapping, m=32, v=16) == set()


def test_operands_in_registers():
    rule = {"suits-operands-in-registers"}
    wide = "A=G0 Y=S Z=V16 M=S C=V16 E=S G=F F=F"
    # A vector of the second operand stands beside 31 sums in 32 registers, not beside 32.
    assert unsuited(PRODUCTS, CPU, wide, m=31, v=16) == set()
    assert unsuited(PRODUCTS, CPU, wide, m=32, v=16) == rule
    # 64 registers of one float: 8 x 4 sums and 4 of the row, but not 16 x 4.
    short = "A=G0 Y=S Z=V4 M=S C=V4 E=S G=F F=F"
    assert unsuited(PRODUCTS, MALI, short, m=8, v=4) == set()
    assert unsuited(PRODUCTS, MALI, short, m=16, v=4) == rule
    # A sum of one operand needs none beside it.
    assert not any(c.rule in rule for c in space_of(SUMS, CPU, *rule).constraints)


def test_nothing_staged_where_local_memory_is_ordinary_memory():
    assert unsuited(STAGED, MALI, STAGED_WELL, size=4) == {"suits-nothing-staged"}
    assert unsuited(STAGED, GPU, STAGED_WELL, size=64) == set()
    # On a processor a copy is in the order that vectors read it.
    assert CPU.local_memory == "ordinary"
    assert unsuited(STAGED, CPU, STAGED_WELL, size=8) == set()
    # Nothing is left then, and why is said; the rule can be switched off.
    every = space_of(STAGED, MALI, *ALL_SUITS)
    found = explain_conflict(every)
    assert found is not None
    assert [part.rule for part in found.parts] == ["suits-nothing-staged"]
    others = ALL_SUITS - {"suits-nothing-staged"}
    assert count_mappings(space_of(STAGED, MALI, *others)).mappings > 0
    assert count_mappings(every).mappings == 0


def test_none_is_asked_for_unless_named():
    plain = space_of(STAGED, GPU)
    assert not any(c.rule in ALL_SUITS for c in plain.constraints)
    one = space_of(STAGED, GPU, "suits-whole-warps")
    added = [c for c in one.constraints if c.rule in ALL_SUITS]
    assert [to_text(c.predicate) for c in added] == ["local_size(out, 0) % 32 = 0"]
    assert one.constraints[: len(plain.constraints)] == plain.constraints
    assert rule_counts(one, Mode.STRICT).preferences["suits-whole-warps"] == 1


def test_each_switched_off_leaves_at_least_as_much():
    every = count_mappings(space_of(STAGED, GPU, *ALL_SUITS)).mappings
    for suit in SUITS:
        rest = ALL_SUITS - {suit.id}
        assert count_mappings(space_of(STAGED, GPU, *rest)).mappings >= every > 0


def test_names():
    assert wanted_suits(["all"]) == ALL_SUITS
    assert wanted_suits(["all,-suits-whole-warps", "-suits-one-line"]) == ALL_SUITS - {
        "suits-whole-warps", "suits-one-line",
    }  # fmt: skip
    assert wanted_suits([]) == frozenset()
    with pytest.raises(InputError, match="no rule of suitability"):
        wanted_suits(["suits-fast"])


def test_every_rule_says_what_and_whence():
    assert len({suit.id for suit in SUITS}) == len(SUITS)
    for suit in SUITS:
        assert suit.id.startswith("suits-") and suit.sentence and suit.remedy
        assert suit.source.title and suit.kinds


def test_a_kernel_may_be_called_as_a_map_is():
    program = parse("""program "p" {
      size N = 8
      input a : [[float]N]N
      kernel col = map#row(r => map#col(v => add(v, v), r), a)
    }
    """)
    space = derive_space(
        subject_of_program(program), Mode.STRICT, CPU, RuleOptions(suits=ALL_SUITS)
    )
    assert len({c.id for c in space.constraints}) == len(space.constraints)
