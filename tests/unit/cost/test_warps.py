"""What a GPU's costs say of registers, of guards and of banks."""

from __future__ import annotations

import pytest

from mapper.ast_model.elaborate import elaborate
from mapper.ast_model.loop_nest import LoopKernel
from mapper.ast_model.text_form import parse
from mapper.constraint_rules.predicate import CodeVariable, LocalSizeVariable, Variable
from mapper.cost.loops import accesses_of
from mapper.cost.warps import WarpCost, turns_of_port
from mapper.profiles import load_profile
from mapper.schedule import ScheduleCode

H200 = load_profile("h200")
LONG = 100


def loops_of(kernel: str) -> tuple[LoopKernel, ...]:
    """Of a kernel of an array of 65536 x 256 x N elements."""
    text = f'program "p" {{ size N = {LONG} input a : [[[float]N]256]65536 kernel c = {kernel} }}'
    return tuple(elaborate(parse(text)).kernels)


def cost_of(kernel: str) -> float:
    """Of 256 work-items a group, with all maps inside of them in turns."""
    loops = loops_of(kernel)
    codes = {"row": ScheduleCode.WORK_GROUP_0, "item": ScheduleCode.LOCAL_0}
    assignment: dict[Variable, int] = {
        CodeVariable(name): codes.get(str(name), ScheduleCode.SEQUENTIAL)
        for name in loops[0].map_ids()
    }
    assignment |= {LocalSizeVariable("c", k): 256 if k == 0 else 1 for k in range(3)}
    return WarpCost(loops, H200).ms(assignment)


def copies(inner: str) -> str:
    return f"map#row(g => map#item(x => {inner}, g), a)"


def chain(names: str) -> str:
    """Private arrays of N elements each, one made of the other."""
    text, last = "", "x"
    for name in names:
        text += f"let {name} = to_private(map#make_{name}(v => add(v, 1.0), {last})) in "
        last = name
    return copies(f"{text}map#out(v => mul(v, 2.0), {last})")


def test_arrays_that_are_needed_one_after_the_other_share_registers() -> None:
    # Two of 100 registers find room, three do not.
    two, three, four = (cost_of(chain(names)) for names in ("pq", "pqr", "pqrs"))
    assert four - three == pytest.approx(three - two, rel=0.01)


def operations(inner: str) -> float:
    """Of the last statement of a kernel."""
    _, statements = accesses_of(loops_of(copies(inner))[0])
    return statements[-1].steps


def test_a_guard_takes_an_operation_where_memory_is_accessed_and_none_in_registers() -> None:
    kept = "let p = to_private(map#make(v => add(v, 1.0), x)) in "
    bordered = "map#out(v => mul(v, 2.0), pad(1, 1, 0.0, {}))"
    assert operations(bordered.format("x")) == 1 + operations("map#out(v => mul(v, 2.0), x)")
    assert operations(kept + bordered.format("p")) == operations("map#out(v => mul(v, 2.0), x)")


@pytest.mark.parametrize(
    ("lanes", "bytes_", "turns"),
    [
        (((4, 32),), 4, 1),  # neighbours
        (((0, 32),), 4, 1),  # one place for all
        (((128, 32),), 4, 32),  # one bank
        (((132, 32),), 4, 1),  # rows with one element more
        (((8, 32),), 8, 2),
        (((16, 32),), 16, 4),
        (((16, 8), (0, 4)), 16, 4),  # a quarter of a warp at a time, though many read the same
        (((0, 32),), 16, 2),  # but twice as many where each has what a neighbour has
        (((0, 2), (16, 16)), 16, 2),
        (((16, 2), (0, 16)), 16, 2),
        (((512, 10), (4, 4)), 4, 10),  # columns of a tile, ten at a time
    ],
)
def test_local_memory_takes_a_turn_for_what_meets_in_a_bank(
    lanes: tuple[tuple[int, int], ...], bytes_: int, turns: int
) -> None:
    assert turns_of_port(lanes, bytes_, 32, local=True) == turns
