"""Random programs with producers and consumers: the shapes that race if a rule is missing.

Nests of maps up to five deep in which stages hand buffers of any memory to one another
through views; reduces with accumulators of any memory; lets; windows; ragged sizes; vectors;
tuning parameters; one to three kernels. Every element is computed exactly: inputs are small
integers, and functions keep halves.
"""

from __future__ import annotations

from bench.proofs.soundness.choices import Chooser
from bench.proofs.soundness.growth import FUNCTIONS, MAX_ELEMENTS, Growth, Scope
from bench.proofs.soundness.layouts import views
from bench.proofs.soundness.shapes import Length, Shape
from bench.proofs.soundness.stages import writing
from mapper.ast_model.index_expr import symbol
from mapper.ast_model.nodes import Call, Kernel, Node, Program, Ref, Relation, Requirement, children

#: Two is the simplest length at which anything can go wrong. 5, 7 and 9 divide little.
_LENGTHS = (2, 3, 4, 1, 6, 8, 5, 7, 9, 16)
_KERNELS = ("one", "two", "three")


def random_program(choose: Chooser) -> Program:
    """A program; reading it may still refuse it, with a reason, and it may have no mapping."""
    growth = Growth(choose)
    shape = _input_shape(growth)
    first = growth.new_input(shape)
    assert first is not None
    scope: Scope = ((first, shape),)
    node: Node = first
    kernels: list[Kernel] = []
    count = choose.pick((1, 1, 1, 2, 2, 3))
    for name in _KERNELS[:count]:
        viewed, viewed_shape = views(growth, node, shape)
        fuel = choose.number(1, 4 - count)
        body, shape = writing(growth, viewed, viewed_shape, scope, 0, fuel)
        kernels.append(Kernel(name, body))
        node = Ref(name)
        scope = ((Ref(name), shape), *scope)
    return Program(
        "random",
        tuple(growth.sizes),
        tuple(growth.parameters),
        _requirements(growth),
        tuple(f for f in FUNCTIONS if any(_calls(k.body, f.name) for k in kernels)),
        tuple(growth.inputs),
        tuple(kernels),
    )


def _input_shape(growth: Growth) -> Shape:
    rank = growth.choose.pick((1, 2, 3, 3, 4, 4, 5))
    lengths: list[Length] = []
    room = MAX_ELEMENTS
    for left in range(rank - 1, -1, -1):
        # Two elements are kept for each dimension to come.
        fitting = [n for n in _LENGTHS if n <= max(2, room // 2**left)]
        length = growth.size(growth.choose.pick(fitting))
        room = max(1, room // length.most)
        lengths.append(length)
    return Shape(tuple(lengths))


def _calls(node: Node, function: str) -> bool:
    if isinstance(node, Call) and node.function == function:
        return True
    return any(_calls(child, function) for _, child in children(node))


def _requirements(growth: Growth) -> tuple[Requirement, ...]:
    names = [parameter.name for parameter in growth.parameters]
    if len(names) < 2 or not growth.choose.chance(40):
        return ()
    return (Requirement(symbol(names[0]), Relation.LE, symbol(names[1])),)
