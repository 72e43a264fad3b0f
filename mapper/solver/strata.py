"""Parts of a space by the dimensions that its mappings use, and one mapping of each kind.

Both only add constraints, so that whatever solves, counts and samples a space does so for its
parts. Mappings that differ by a permutation of OpenCL's dimensions run alike but for the limits
of single dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from mapper.constraint_rules.predicate import (
    TRUE,
    CodeVariable,
    Predicate,
    all_of,
    any_of,
    member,
    negate,
)
from mapper.constraint_rules.rule import NESTMAP, Constraint, Provenance
from mapper.schedule import DIMENSIONS, PARALLEL_CODES
from mapper.solver.space import Space

_PROVENANCE = Provenance(NESTMAP, "")


def by_dimensions(space: Space) -> Iterator[tuple[tuple[int, ...], Space]]:
    """For each set of dimensions the part of the space whose mappings use just these.

    The parts have nothing in common and are the whole space together; some may be empty.
    """
    codes = [v for v, _ in space.variables if isinstance(v, CodeVariable)]
    used = {d: any_of(*(_uses(code, d) for code in codes)) for d in DIMENSIONS}
    for size in range(len(DIMENSIONS) + 1):
        for chosen in combinations(DIMENSIONS, size):
            demand = all_of(*(used[d] if d in chosen else negate(used[d]) for d in DIMENSIONS))
            names = ", ".join(map(str, chosen)) or "none"
            sentence = f"the mapping uses these dimensions: {names}"
            constraint = _constraint("dimensions-used", "", demand, sentence, "")
            yield chosen, Space(space.variables, (*space.constraints, constraint))


def up_to_symmetry(space: Space, kernels: Sequence[Sequence[CodeVariable]]) -> Space:
    """The mappings in which each kernel's maps use dimension 0 before 1, and 1 before 2.

    ``kernels`` are the codes of each kernel in the order of its nest, outer maps first. Of the
    mappings that differ by permuting a kernel's dimensions one is left, if the dimensions have
    equal limits; where they have not, that one may be the one that the limits refuse.
    """
    found: list[Constraint] = []
    for index, codes in enumerate(kernels):
        for dimension in DIMENSIONS[1:]:
            demands: list[Predicate] = []
            for place, code in enumerate(codes):
                earlier = any_of(*(_uses(other, dimension - 1) for other in codes[:place]))
                demands.append(any_of(negate(_uses(code, dimension)), earlier))
            found.append(
                _constraint(
                    "up-to-symmetry",
                    f"/{index}/{dimension}",
                    all_of(TRUE, *demands),
                    f"dimension {dimension} is used by no map before dimension {dimension - 1} is",
                    "allow mappings that differ by permuted dimensions, or pin lower dimensions",
                )
            )
    return Space(space.variables, (*space.constraints, *found))


def _uses(code: CodeVariable, dimension: int) -> Predicate:
    return member(code, {int(c) for c in PARALLEL_CODES if c.dimension == dimension})


def _constraint(
    rule: str, part: str, predicate: Predicate, sentence: str, remedy: str
) -> Constraint:
    return Constraint(rule + part, rule, (), predicate, _PROVENANCE, None, sentence, remedy)
