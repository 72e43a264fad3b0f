"""What a growing random program has so far: names, maps, inputs, sizes, tuning parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.proofs.soundness.choices import Chooser
from bench.proofs.soundness.shapes import Length, Shape
from mapper.ast_model.builders import Builder
from mapper.ast_model.index_expr import Expr, symbol
from mapper.ast_model.nodes import Apply, Input, Op, Parameter, Ref, UserFunction
from mapper.ast_model.types import FLOAT, Memory, array

MAX_MAPS = 14
MAX_ELEMENTS = 500
_MAX_INPUTS = 3
_MAX_PARAMETERS = 2

#: The program's own functions. All keep small integers and halves exact in 32-bit floats, so
#: that any difference between two runs is a fault and no rounding.
FUNCTIONS = (
    UserFunction("half", ("v",), Apply(Op.MUL, ("v", 0.5))),
    UserFunction("mixed", ("v", "w"), Apply(Op.FMA, ("v", 2.0, Apply(Op.SUB, ("v", "w"))))),
    UserFunction("larger", ("v", "w"), Apply(Op.MAX, ("v", Apply(Op.ADD, ("w", 1.0))))),
    UserFunction(
        "nearer",
        ("v", "w"),
        Apply(
            Op.SELECT,
            (
                Apply(Op.LT, (Apply(Op.ABS, ("v",)), Apply(Op.ABS, ("w",)))),
                "v",
                Apply(Op.MUL, ("w", 0.5)),
            ),
        ),
    ),
    UserFunction("lanes", ("acc", "v"), Apply(Op.ADD, ("acc", Apply(Op.SUM, ("v",))))),
)

Scope = tuple[tuple[Ref, Shape], ...]
"""The arrays and scalars that may be named where an expression stands."""


@dataclass
class Growth:
    """State of one program's generation."""

    choose: Chooser
    build: Builder = field(default_factory=Builder)
    maps: int = 0
    inputs: list[Input] = field(default_factory=list[Input])
    sizes: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    parameters: list[Parameter] = field(default_factory=list[Parameter])

    def map_id(self) -> str:
        """A fresh id of a map."""
        self.maps += 1
        return f"m{self.maps}"

    def map_ids(self, count: int) -> list[str]:
        """Fresh ids of a perfect nest."""
        return [self.map_id() for _ in range(count)]

    def room(self, maps: int) -> bool:
        """Whether so many further maps keep the program small enough."""
        return self.maps + maps <= MAX_MAPS

    def memory(self, depth: int) -> Memory:
        """A memory for an intermediate under ``depth`` maps."""
        if depth == 0:
            # Local memory needs a work-group's map around it: there would be no mapping.
            return self.choose.pick((Memory.GLOBAL, Memory.GLOBAL, Memory.PRIVATE))
        return self.choose.pick((Memory.PRIVATE, Memory.LOCAL, Memory.LOCAL, Memory.GLOBAL))

    def parameter(self, values: Sequence[int]) -> Expr | None:
        """A new tuning parameter; None if there are enough."""
        if len(self.parameters) == _MAX_PARAMETERS:
            return None
        name = f"p{len(self.parameters) + 1}"
        self.parameters.append(Parameter(name, tuple(sorted(values))))
        return symbol(name)

    def size(self, value: int) -> Length:
        """A length, sometimes by a name that stays symbolic in the rules."""
        if not self.choose.chance(30):
            return Length.of(value)
        name = f"N{len(self.sizes) + 1}"
        self.sizes.append((name, value))
        return Length(symbol(name), value, value)

    def new_input(self, shape: Shape) -> Ref | None:
        """A further input of this shape; None if it is not known, or there are enough."""
        known = all(length.value is not None for length in shape.lengths)
        if not known or len(self.inputs) == _MAX_INPUTS:
            return None
        name = ("x", "y", "z")[len(self.inputs)]
        self.inputs.append(Input(name, array(FLOAT, *shape.exprs)))
        return Ref(name)

    def other_like(self, shape: Shape, scope: Scope) -> Ref | None:
        """Another array of this shape: one in scope, or a new input."""
        found = [ref for ref, other in scope if other.exprs == shape.exprs]
        if found and not self.choose.chance(25):
            return self.choose.pick(found)
        return self.new_input(shape)
