"""Small programs in the text form, and the rules of suitability that a mapping of one breaks."""

from __future__ import annotations

from mapper.ast_model.text_form import parse
from mapper.constraint_rules.predicate import CodeVariable, LocalSizeVariable, Variable
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.constraint_rules.suits.catalogue import ALL_SUITS
from mapper.device_profile import DeviceProfile
from mapper.pipeline import derive_space, subject_of_program
from mapper.profiles import load_profile
from mapper.schedule import parse_code
from mapper.solver.space import Space, check

GPU = load_profile("h200")
CPU = load_profile("pocl")
MALI = load_profile("mali-g72")

#: A transposition: nothing but a copy.
COPY = """
program "copy" {
  size I = 64
  size J = 32
  fun id(x) = x
  input x : [[float]J]I
  kernel out = map#A(row => map#B(v => id(v), row), x)
}
"""

#: Rows go through local memory; what is read there is not a copy.
STAGED = """
program "staged" {
  size I = 16
  size J = 8
  size K = 64
  fun id(x) = x
  fun twice(x) = x * 2.0
  input x : [[[float]K]J]I
  kernel out = map#A(plane =>
      let buffer = to_local(map#B(row => map#C(v => id(v), row), plane)) in
      map#D(row => map#E(v => twice(v), row), buffer), x)
}
"""

#: A row of sums a work-item, kept in private memory under a reduce.
SUMS = """
program "sums" {
  size I = 64
  size N = 8
  param v in {4, 8, 16, 64}
  fun id(x) = x
  fun add(x, y) = x + y
  input x : [[[float]v]N]I
  kernel out = join(map#A(rows =>
      map#E(total => map#F(t => id(t), total),
        reduce((acc, row) => map#C(pair => add(pair.0, pair.1), zip(acc, row)),
               to_private(map#Z(z => id(z), fill(0.0, v))), rows)), x))
}
"""

#: As before under three more maps, none of which can be fused with another one.
DEEP = """
program "deep" {
  size I = 64
  size N = 8
  param v in {4}
  fun id(x) = x
  fun add(x, y) = x + y
  input x : [[[[[[float]v]N]I]2]2]2
  kernel out = join(map#O(c => join(map#P(b => join(map#Q(a => join(map#A(rows =>
      map#E(total => map#F(t => id(t), total),
        reduce((acc, row) => map#C(pair => add(pair.0, pair.1), zip(acc, row)),
               to_private(map#Z(z => id(z), fill(0.0, v))), rows)), a)), b)), c)), x))
}
"""

#: Products of two operands, summed in a tile of `m` rows of `v` columns.
PRODUCTS = """
program "products" {
  size I = 64
  size K = 8
  param m in {2, 8, 16, 31, 32}
  param v in {4, 16}
  fun id(x) = x
  fun fma(t, x, y) = t + x * y
  input a : [[[float]m]K]I
  input b : [[[float]v]K]I
  kernel out = join(map#A(both =>
      map#E(total => map#G(row => map#F(t => id(t), row), total),
        reduce((acc, ab) => map#M(row => map#C(p => fma(p.0, row.1, p.1), zip(row.0, ab.1)),
                                  zip(acc, ab.0)),
               to_private(map#Y(y => map#Z(z => id(z), y), fill(0.0, m, v))),
               zip(both.0, both.1))), zip(a, b)))
}
"""


def space_of(text: str, device: DeviceProfile, *suits: str, free_grid: bool = True) -> Space:
    """The space of a program on a device with these rules of suitability."""
    options = RuleOptions(free_grid=free_grid, suits=frozenset(suits))
    return derive_space(subject_of_program(parse(text)), Mode.STRICT, device, options)


def unsuited(text: str, device: DeviceProfile, mapping: str, **values: int) -> set[str]:
    """The rules of suitability that ``A=W0 B=L0`` breaks, which must be valid otherwise.

    ``size`` is the local size of dimension 0, other values are of parameters.
    """
    space = space_of(text, device, *ALL_SUITS)
    codes = {part.split("=")[0]: parse_code(part.split("=")[1]) for part in mapping.split()}
    assignment: dict[Variable, int] = {}
    for variable, _ in space.variables:
        match variable:
            case CodeVariable(map_id):
                assignment[variable] = codes[str(map_id)]
            case LocalSizeVariable(_, dimension):
                assignment[variable] = values.get("size", 1) if dimension == 0 else 1
            case _:
                assignment[variable] = values[variable.name]
    broken = {violation.rule for violation in check(space, assignment)}
    assert broken <= ALL_SUITS, broken
    return broken
