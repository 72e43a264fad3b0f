"""Layout changes in write position: the change moves to where the result is written.

Writing ``join(e)`` to a destination is writing ``e`` to the destination split, and so on for
every layout change that has an inverse. What has none (``slide``, a border) is refused, for
one element would go to several places: rule injective-write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from mapper.ast_model.index_expr import floor_div, is_nonnegative, modulo
from mapper.ast_model.nodes import (
    AsScalar,
    AsVector,
    Join,
    Map,
    Node,
    Pad,
    Program,
    Ref,
    Reorder,
    Slide,
    Split,
    Transpose,
)
from mapper.ast_model.type_check import infer_part
from mapper.ast_model.type_memory import TypeMemory
from mapper.ast_model.types import ArrayType, Type, VectorType
from mapper.ast_model.views import (
    ArrayDestination,
    Destination,
    as_array_destination,
    component_destination,
    crop_destination,
    lane_destination,
    nested_destination,
    reordered_target,
)
from mapper.errors import InputError


class Failure(Protocol):
    """Makes the error that says where in the program it happened."""

    def __call__(self, message: str, remedy: str = "", rule: str = "") -> InputError: ...


@dataclass(frozen=True, slots=True)
class WriteViews:
    """Moves layout changes of one program from results to destinations."""

    program: Program
    fail: Failure
    memory: TypeMemory

    def push(
        self, node: Node, target: Destination, types: Mapping[str, Type]
    ) -> tuple[Node, Destination]:
        """The argument of a layout change and where it must be written instead."""
        if not isinstance(
            node, Split | Join | Transpose | Reorder | Pad | AsVector | AsScalar | Map
        ):
            if isinstance(node, Slide):
                raise self.fail(
                    "a result cannot be written through 'slide': one element would go to "
                    "several places",
                    "write the argument to memory first (to_global, to_local or to_private "
                    "around it) and map id over the windows",
                    rule="injective-write",
                )
            raise self.fail(
                "a map over a written result may only change its layout (split, join, "
                "transpose, reorder, crop, vectors), or write",
                "write the argument to memory first (to_global, to_local or to_private around "
                "it) and map id over it",
            )
        destination = as_array_destination(target)
        memory = destination.memory
        argument = node.argument
        argument_type = infer_part(argument, types, self.program, self.memory)
        assert isinstance(argument_type, ArrayType)
        match node:
            case Split():
                size = node.size
                return argument, ArrayDestination(
                    lambda k: as_array_destination(destination.at(floor_div(k, size))).at(
                        modulo(k, size)
                    ),
                    memory,
                )
            case Join():
                row_type = argument_type.element
                assert isinstance(row_type, ArrayType)
                length = row_type.length
                return argument, nested_destination(
                    memory, lambda i, j: destination.at(i * length + j)
                )
            case Transpose():
                return argument, nested_destination(
                    memory, lambda i, j: as_array_destination(destination.at(j)).at(i)
                )
            case Reorder():
                kind, amount = node.kind, node.amount
                return argument, ArrayDestination(
                    lambda k: destination.at(
                        reordered_target(kind, amount, argument_type.length, k)
                    ),
                    memory,
                )
            case Pad():
                if not (is_nonnegative(-node.left) and is_nonnegative(-node.right)):
                    raise self.fail(
                        "a result can be cropped as it is written, but a border cannot be "
                        "filled in",
                        "write the argument to memory first and map id over the padded view",
                        rule="injective-write",
                    )
                length = argument_type.length + node.left + node.right
                return argument, crop_destination(destination, node.left, length)
            case AsScalar():
                vector = argument_type.element
                assert isinstance(vector, VectorType)
                return argument, lane_destination(destination, vector.width)
            case AsVector():
                return argument, component_destination(destination, node.width)
            case Map():
                inner_types = {**types, node.parameter: argument_type.element}
                return argument, ArrayDestination(
                    lambda i: self.push_all(
                        node.body, node.parameter, destination.at(i), inner_types
                    ),
                    memory,
                )

    def push_all(
        self, node: Node, parameter: str, destination: Destination, types: Mapping[str, Type]
    ) -> Destination:
        """Push a destination through a body that only changes the layout of its parameter."""
        while node != Ref(parameter):
            node, destination = self.push(node, destination, types)
        return destination
