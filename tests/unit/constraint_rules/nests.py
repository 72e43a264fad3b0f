"""Small nest trees, and the rules that a mapping of one breaks."""

from __future__ import annotations

import json
from pathlib import Path

from mapper.ast_model.index_expr import ExprLike, as_expr
from mapper.ast_model.nest import Nest, NestMap
from mapper.ast_model.nest_codec import nest_from_json
from mapper.ast_model.types import Memory
from mapper.constraint_rules.predicate import CodeVariable, LocalSizeVariable, Variable
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.schedule import parse_code
from mapper.solver.space import build_space, check

ROOT = Path(__file__).parents[3]
MEMORIES = {"g": Memory.GLOBAL, "l": Memory.LOCAL, "p": Memory.PRIVATE}
OPTIONS = RuleOptions()


def tree_map(
    name: str,
    *nested: NestMap,
    memory: str = "g>g",
    trip: ExprLike = 8,
    perfect: bool = False,
    leaf: str = "",
) -> NestMap:
    """A map that reads and writes as ``memory`` says: ``gp>l`` reads global and private."""
    reads, writes = memory.split(">")
    return NestMap(
        name,
        as_expr(trip),
        frozenset(MEMORIES[letter] for letter in reads),
        MEMORIES[writes],
        perfect,
        tuple(nested),
        tuple(MEMORIES[letter] for letter in leaf),
    )


def nest(*roots: NestMap) -> Nest:
    """The bare nest of one kernel."""
    return Nest("k", roots)


def broken(
    tree: Nest,
    mapping: str,
    mode: Mode = Mode.STRICT,
    options: RuleOptions = OPTIONS,
    local: tuple[int, int, int] = (4, 4, 4),
) -> set[str]:
    """The ids of the rules that ``A=W0 B=L0`` breaks; local sizes of unused dimensions are 1."""
    codes = {part.split("=")[0]: parse_code(part.split("=")[1]) for part in mapping.split()}
    space = build_space(tree, mode, options)
    used = {code.dimension for code in codes.values()}
    assignment: dict[Variable, int] = {}
    for variable, _ in space.variables:
        match variable:
            case CodeVariable(map_id):
                assignment[variable] = codes[str(map_id)]
            case LocalSizeVariable(_, dimension):
                assignment[variable] = local[dimension] if dimension in used else 1
            case _:
                raise AssertionError(variable)
    return {violation.rule for violation in check(space, assignment)}


def published_tree() -> Nest:
    """The 43 maps of CC'22, section 5.3."""
    text = (ROOT / "examples" / "cc22_convolution_tree.json").read_text(encoding="utf-8")
    return nest_from_json(text).nest


def published_golden() -> dict[str, object]:
    """What is known of them."""
    text = (ROOT / "examples" / "cc22_convolution_tree.json").read_text(encoding="utf-8")
    return json.loads(text)["golden"]


def listing_1(buffer: str) -> Nest:
    """CC'22, Listing 1, with the intermediate buffer in a memory ("l" or "g")."""
    return nest(
        tree_map(
            "A",
            tree_map("B", tree_map("C", memory=f"g>{buffer}", perfect=True), memory=f"g>{buffer}"),
            tree_map("D", tree_map("E", memory=f"{buffer}>g", perfect=True), memory=f"{buffer}>g"),
        )
    )


def listing_3(c: str = "g>g", d: str = "g>g", b: str = "g>g") -> Nest:
    """CC'22, Listing 3: A contains C and B, C contains D."""
    return nest(
        tree_map(
            "A",
            tree_map("C", tree_map("D", memory=d, perfect=True), memory=c),
            tree_map("B", memory=b),
        )
    )
