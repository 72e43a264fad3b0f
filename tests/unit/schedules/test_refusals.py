"""What primitives refuse, each by an example: where, why, what was found, what is needed."""

from __future__ import annotations

import pytest

from mapper.ast_model.nodes import Program
from mapper.ast_model.text_form import parse
from mapper.ast_model.type_check import check_program
from mapper.schedules.schedule import derived
from mapper.schedules.schedule_text import parse_schedule
from mapper.schedules.step import NotApplicable

SIZES = "size M = 6\nsize N = 4\nsize K = 8\ninput a : [[float]K]M\ninput b : [[float]N]K\n"


def product(step: str = "fma(k.0, k.1, acc)", start: str = "0.0", around: str = "{}") -> str:
    total = around.format(f"reduce((acc, k) => {step}, {start}, zip(x, y))")
    return f"kernel c = map#row(x => join(map#col(y => {total}, transpose(b))), a)"


PROGRAMS = {
    "product": product(),
    "difference": product("sub(acc, mul(k.0, k.1))"),
    "own add": "fun add(x, y) = x - y\n" + product("add(acc, mul(k.0, k.1))"),
    "own fma": "fun fma(x, y, z) = x - y\n" + product("fma(k.0, k.1, acc)"),
    "looks at itself": product("add(acc, mul(acc, k.0))"),
    "epilogue": product(around="map#relu(t => max(t, 0.0), {})"),
    "computed": "kernel c = map#row(x => map#col(y => id(y), map#pre(z => mul(z, 2.0), x)), a)",
    "outer computed": "kernel c = map#row(x => map#col(y => id(y), x), map#pre(z => map#in(w => "
    "mul(w, 2.0), z), a))",
    "reduce computed": "kernel c = join(map#row(x => reduce((acc, k) => add(acc, k), 0.0, "
    "map#pre(z => mul(z, 2.0), x)), a))",
    "tuples": "kernel c = map#row(x => map#pick(z => id(z.0), let t = to_local(map#pair(y => id(y),"
    " x)) in zip(t, t)), a)",
    "windows": "kernel c = map#row(x => join(map#win(w => reduce((acc, k) => add(acc, k), 0.0, w), "
    "slide(3, 1, x))), a)",
    "reversed": "kernel c = map#row(x => map#col(y => id(y), x), reorder(reverse, a))",
    "bordered": "kernel one = map#r1(x => map#c1(y => mul(y, 2.0), x), a)\n"
    "kernel c = map#row(x => join(map#win(w => reduce((acc, k) => add(acc, k), 0.0, w), "
    "slide(3, 1, x))), map#lay(r => pad(1, 1, 0.0, r), one))",
    "staged border": "kernel c = map#row(x => let t = to_local(map#in(y => mul(y, 2.0), x)) in "
    "join(map#win(w => reduce((acc, k) => add(acc, k), 0.0, w), slide(3, 1, pad(1, 1, 0.0, t)))),"
    " a)",
    "two kernels": "kernel one = map#r1(x => map#c1(y => mul(y, 2.0), x), a)\n"
    "kernel c = map#row(x => map#col(y => id(y), x), one)",
    "sums first": "kernel one = join(map#r1(x => reduce((acc, k) => add(acc, k), 0.0, x), a))\n"
    "kernel c = map#row(x => id(x), one)",
    "rows first": "kernel one = transpose(map#r1(x => map#c1(y => mul(y, 2.0), x), a))\n"
    "kernel c = map#row(x => map#col(y => id(y), x), one)",
    "dot": "kernel c = map#row(x => dot(x, 2.0), join(a))",
    "long": f"kernel c = map#{'r' * 60}(x => map#col(y => id(y), x), a)",
    "repeats": "kernel c = map#row(x => map#col(y => map#in(w => id(w), y), x), "
    "map#lay(z => b, a))",
    "repeats scalars": "kernel one = join(map#r1(x => reduce((acc, k) => add(acc, k), 0.0, x), a))"
    "\nkernel c = map#row(x => map#col(y => id(y), x), map#lay(s => map#lie(w => s, b), one))",
    "outer reduce": "kernel c = join(reduce((acc, x) => map#col(z => add(z.0, z.1), zip(acc, x)), "
    "map#zero(y => id(y), fill(0.0, K)), a))",
    "named as an input": "kernel c = let a = pad(1, 1, 0.0, a) in map#row(x => map#col(y => id(y), "
    "x), a)",
    "named view": "kernel c = let wide = map#lay(r => pad(1, 1, 0.0, r), a) in map#row(x => "
    "map#col(y => add(y.0, y.1), zip(x.0, x.1)), zip(wide, wide))",
    "gram": "kernel c = map#row(x => join(map#col(y => reduce((acc, k) => fma(k.0, k.1, acc), 0.0, "
    "zip(x, y)), a)), a)",
    "plain": "kernel c = map#row(x => map#col(y => id(y), x), a)",
    "vectors": "fun dot_add(x, y, z) = x - y\n" + product(),
    "siblings": "kernel c = map#row(x => let t = to_local(map#one(y => id(y), x)) in "
    "map#two(y => id(y), t), a)",
}


def program(name: str) -> Program:
    return parse('program "p" {\n' + SIZES + PROGRAMS[name] + "\n}")


REFUSALS = [
    ("product", "split(nobody, 2)", "no map of this name computes anything"),
    ("product", "split(row, 5)", "split leaves no remainder"),
    ("product", "split(row, 0)", "at least 1"),
    ("long", f"split({'r' * 60}, 2)", "id would be too long"),
    ("computed", "split(col, 3, overhang=guarded)", "what is padded must be a view"),
    ("product", "interchange(col)", "no map stands directly inside"),
    ("siblings", "interchange(row)", "no map stands directly inside"),
    ("computed", "interchange(row)", "no map stands directly inside"),
    ("product", "flatten(col)", "no map stands directly inside"),
    ("product", "nest([row])", "not two or more maps"),
    ("product", "split(row, 2) nest([row_tile, col])", "another map stands directly inside"),
    ("product", "reorder([row, row])", "not two or more different maps"),
    ("siblings", "reorder([one, two])", "do not stand one directly in the other"),
    ("product", "reorder_reduces([k])", "not two or more different reduces"),
    ("product", "move_inside(row)", "no reduce stands directly inside"),
    ("epilogue", "move_inside(col)", "no reduce stands directly inside"),
    ("reduce computed", "move_inside(row)", "is computed"),
    ("product", "split_reduce(nothing, 2)", "no reduce or several have steps of this name"),
    ("product", "split_reduce(k, 3)", "split leaves no remainder"),
    ("product", "split_reduce(k, t, among=[2, 0])", "a size is no positive number"),
    ("reduce computed", "split_reduce(k, 2)", "what is reduced is computed"),
    ("product", "interchange_reduces(k)", "its step is not a reduce"),
    ("product", "flatten_reduces(k)", "its step is not a reduce"),
    ("difference", "split_reduce(k, 2) interchange_reduces(k_tile)", "not known to be associative"),
    ("difference", "rfactor(k, 2)", "not known to be associative"),
    ("own add", "rfactor(k, 2)", "not known to be associative"),
    ("looks at itself", "rfactor(k, 2)", "not known to be associative"),
    ("reduce computed", "rfactor(k, 2)", "what is reduced is computed"),
    ("product", "stage_accumulator(k)", "a scalar accumulator is in a register already"),
    ("product", "move_inside(col) stage_accumulator(k) stage_accumulator(k)", "of its own already"),
    ("difference", "move_inside(col) split_reduce(k, 2) stage_accumulator(k_in_tile)",
     "not known to be associative"),
    ("product", "restart(k)", "its accumulator is a scalar"),
    ("product", "move_inside(col) restart(k)", "does not go on with an accumulator from outside"),
    ("difference", "split_reduce(k, 2) restart(k_in_tile)", "not known to be associative"),
    ("own fma", "split_reduce(k, 2) restart(k_in_tile)", "not known to be associative"),
    ("two kernels", "separate(r1)", "no map around it hands its element on"),
    ("two kernels", "separate(c1)", "every array is gone along by all of the maps"),
    ("repeats", "separate(in)", "a map repeats all that is in it"),
    ("computed", "separate(col)", "what the loop goes over is computed"),
    ("reversed", "separate(col)", "not known to go forward"),
    ("repeats scalars", "stage(row, one, local, once=true)", "holds one element again and again"),
    ("reversed", "stage(row, a, local, once=true)", "not known to go forward"),
    ("product", "dot(k, 3)", "vectors leave no remainder"),
    ("difference", "dot(k, 2)", "its step is no sum of a product"),
    ("reduce computed", "dot(k, 2)", "not over pairs of scalars"),
    ("vectors", "dot(k, 2)", "a function of its own of that name"),
    ("product", "move_inside(col) dot(k, 2)", "its accumulator is an array"),
    ("difference", "interleave(k, 2)", "not known to be associative"),
    ("reduce computed", "interleave(k, 2)", "what is reduced is computed"),
    ("product", "interleave(k, 2, switch=0)", "the order stays as it is"),
    ("product", "interleave(k, 3)", "divides with nothing left"),
    ("plain", "copy_result(c, one)", "no layout around its outermost map"),
    ("product", "copy_result(c, c)", "taken or unusable"),
    ("product", "copy_result(nothing, one)", "no kernel has this name"),
    ("outer reduce", "copy_result(c, one)", "no map is outermost in it"),
    ("named view", "materialise(wide, made)", "a view, which no map writes"),
    ("product", "copy_views(c)", "no view that it reads has a name"),
    ("product", "copy_views(nothing)", "no kernel has this name"),
    ("named as an input", "copy_views(c)", "taken or unusable"),
    ("product", "spread(k, 1)", "no private memory of its own"),
    ("product", "move_inside(col) stage_accumulator(k) spread(k, 2)", "has other dimensions"),
    ("product", "move_inside(col) split_reduce(k, 2) stage_accumulator(k_tile) spread(k_tile, 1)",
     "does not begin with maps over these dimensions"),
    ("product", "move_inside(col) stage_accumulator(k) spread(k, 1) move_inside(row)",
     "no reduce stands directly inside"),
    ("product", "fission(row)", "computes nothing that it works on afterwards"),
    ("outer computed", "fission(row)", "the argument of the map is computed"),
    ("product", "unroll(k) unroll(k)", "it is so already"),
    ("product", "unroll(k, switch=2)", "unroll is not 0 or 1"),
    ("product", "prefetch(k)", "does not begin with a copy to local memory"),
    ("product", "double_buffer(k)", "does not begin with a copy to local memory"),
    ("difference", "contract(k)", "no fma stands in it"),
    ("own fma", "contract(k)", "a function of its own of that name"),
    ("product", "fuse_products(k)", "no sum of a product stands in it"),
    ("two kernels", "commute(one)", "no reduce or several have steps of this name"),
    ("product", "narrow(tile, [2])", "no tuning parameter of this name"),
    ("product", "split(row, tile) narrow(tile, [4, 5])", "none of its values is left"),
    ("product", "split(row, tile) narrow(tile, [1, 2, 3, 6])", "it has no other values"),
    ("two kernels", "overlap(row, a)", "0 arrays of the loop's element come from a"),
    ("windows", "overlap(row, a)", "a dense tile already"),
    ("product", "overlap(k, a)", "the loop's element is a scalar"),
    ("reversed", "overlap(row, a)", "not known to go forward"),
    ("computed", "overlap(col, a)", "what the loop goes over is computed"),
    ("gram", "nest([row, col]) pack(col, a, packed)", "2 arrays of the loop's element come from a"),
    ("gram", "nest([row, col]) pack(col, a, packed, use=3)", "use=1 to 2"),
    ("gram", "nest([row, col]) overlap(col, a)", "2 arrays of the loop's element come from a"),
    ("gram", "nest([row, col]) stage(col, a, private, use=3)", "use=1 to 2"),
    ("windows", "widen(win, a)", "there is nothing to add"),
    ("windows", "widen(win, a, vector=3)", "3 | K"),
    ("windows", "stage(win, a, local, order=[0, 1])", "no permutation of the dimensions"),
    ("windows", "stage(win, a, local, vector=2)", "split leaves no remainder"),
    ("windows", "pack(win, a, c)", "taken or unusable"),
    ("windows", "pack(win, a, K)", "taken or unusable"),
    ("windows", "pack(row, a, packed, order=[0])", "no permutation of the dimensions"),
    ("windows", "pack(win, a, packed)",
     "depends on loops around"),
    ("windows", "border(row, a, wide)", "nothing is read in a border of a"),
    ("bordered", "border(row, one, c)", "taken or unusable"),
    ("staged border", "border(win, t, wide)", "depends on loops around"),
    ("two kernels", "compute_at(c, row)", "it is the last kernel"),
    ("two kernels", "compute_at(none, row)", "no kernel has this name"),
    ("two kernels", "compute_at(one, r1)", "0 arrays of the element of r1 come from it"),
    ("bordered", "compute_at(one, row)", "read with a border"),
    ("rows first", "compute_at(one, row)", "not perfectly nested maps"),
    ("product", "inline(t)", "no let or several have this name"),
    ("product", "rfactor(k, 2) inline(k_parts)", "its value is computed"),
    ("product", "rfactor(k, 2) materialise(k_parts, parts)", "what maps around it go over"),
    ("product", "rfactor(k, 2) materialise(k_parts, a)", "taken or unusable"),
    ("product", "layout(c, [1, 0])", "it is the last kernel"),
    ("two kernels", "layout(one, [0, 1])", "it has this layout already"),
    ("two kernels", "layout(one, [0, 2])", "no permutation of the dimensions"),
    ("product", "vectorise(row, 2)", "its elements are no scalars"),
    ("dot", "vectorise(row, 2)", "lane by lane"),
    ("epilogue", "vectorise(col, 2)", "its elements are no scalars"),
    ("outer computed", "vectorise(row, 2)", "its elements are no scalars"),
    ("computed", "vectorise(col, 2)", "its argument is computed"),
    ("product", "reshare(row, 0, 2)", "no number of maps"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "steps", "why"), REFUSALS)
def test_primitives_say_why_they_do_not_apply(name: str, steps: str, why: str) -> None:
    schedule = parse_schedule(f'schedule "s" {{ {steps} }}')
    with pytest.raises(NotApplicable) as caught:
        derived(program(name), schedule)
    problem = caught.value.problems[0]
    assert why in f"{problem.message} {problem.allowed} {problem.found}"
    last = schedule.uses[-1].primitive
    assert problem.path.startswith(f"step {len(schedule.uses)}, ")
    assert last in problem.path or last.endswith("_reduces")


def test_the_programs_of_the_examples_are_programs() -> None:
    for name in PROGRAMS:
        check_program(program(name))
