"""A program of 32-bit floats as one whose inputs and result are stored in 16 bits.

Inputs become arrays of half. What only copies goes on in 16 bits (padded images, packed
weights, tiles in local memory); what computes converts its operands first, so that sums stay
32-bit floats; the last kernel rounds as it stores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from mapper.ast_model.bounds import writes
from mapper.ast_model.builders import call
from mapper.ast_model.nodes import (
    Call,
    Input,
    Kernel,
    Let,
    Map,
    Node,
    Program,
    Reduce,
    Ref,
    Zip,
    children,
)
from mapper.ast_model.type_check import infer_part
from mapper.ast_model.type_memory import TypeMemory
from mapper.ast_model.types import (
    ArrayType,
    ScalarType,
    TupleType,
    Type,
    VectorType,
    dimensions,
    element_dtype,
)
from mapper.elements import Element
from mapper.errors import InputError, Problem

Environment = Mapping[str, Type]


def stored_in_half(program: Program) -> Program:
    """The program with 16-bit inputs and a 16-bit result.

    Raises InputError for a program that accumulates in the elements of an input.
    """
    inputs = tuple(Input(i.name, _in_half(i.type)) for i in program.inputs)
    conversion = _Conversion(replace(program, inputs=inputs))
    env: dict[str, Type] = {i.name: i.type for i in inputs}
    kernels: list[Kernel] = []
    for kernel in program.kernels:
        body = conversion.converted(kernel.body, env)
        if kernel is program.kernels[-1]:
            body = conversion.rounded(body, env)
        kernels.append(Kernel(kernel.name, body))
        env[kernel.name] = conversion.type_of(body, env)
    return replace(program, inputs=inputs, kernels=tuple(kernels))


def _in_half(type_: Type) -> Type:
    match type_:
        case ScalarType() | VectorType():
            return replace(type_, dtype=Element.FLOAT16)
        case TupleType():
            return TupleType(tuple(_in_half(item) for item in type_.items))
        case ArrayType():
            return ArrayType(_in_half(type_.element), type_.length)


class _Conversion:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._memory = TypeMemory()
        self._roundings = 0

    def type_of(self, node: Node, env: Environment) -> Type:
        names = self._memory.free_names(node)
        return infer_part(node, {n: env[n] for n in names if n in env}, self._program, self._memory)

    def converted(self, node: Node, env: Environment) -> Node:
        """The node with every operand of an operator made a 32-bit float."""
        match node:
            case Call():
                operands = tuple(self.converted(argument, env) for argument in node.arguments)
                return replace(node, arguments=self.as_floats(node, operands, env))
            case Map():
                argument = self.converted(node.argument, env)
                inner = {**env, node.parameter: self.element_of(argument, env)}
                return replace(node, body=self.converted(node.body, inner), argument=argument)
            case Reduce():
                return self.converted_reduce(node, env)
            case Let():
                value = self.converted(node.value, env)
                inner = {**env, node.name: self.type_of(value, env)}
                return replace(node, value=value, body=self.converted(node.body, inner))
            case Zip():
                return Zip(tuple(self.converted(argument, env) for argument in node.arguments))
            case _:
                return _with_children(node, lambda child: self.converted(child, env))

    def as_floats(
        self, node: Call, operands: tuple[Node, ...], env: Environment
    ) -> tuple[Node, ...]:
        function = self._program.function(node.function)
        if function is None or isinstance(function.body, str):
            # It computes nothing.
            return operands
        return tuple(
            call("float_of", operand) if self.is_half(operand, env) else operand
            for operand in operands
        )

    def is_half(self, node: Node, env: Environment) -> bool:
        return element_dtype(self.type_of(node, env)) is Element.FLOAT16

    def element_of(self, node: Node, env: Environment) -> Type:
        type_ = self.type_of(node, env)
        assert isinstance(type_, ArrayType)
        return type_.element

    def converted_reduce(self, node: Reduce, env: Environment) -> Node:
        initial = self.converted(node.initial, env)
        argument = self.converted(node.argument, env)
        if self.is_half(initial, env):
            raise InputError(
                Problem(
                    "layer.dtype",
                    "the program accumulates in the elements of an input, where 16 bits are few",
                    Element.FLOAT16.value,
                    Element.FLOAT32.value,
                )
            )
        inner = {
            **env,
            node.accumulator: self.type_of(initial, env),
            node.parameter: self.element_of(argument, env),
        }
        body = self.converted(node.body, inner)
        return replace(node, body=body, initial=initial, argument=argument)

    def rounded(self, node: Node, env: Environment) -> Node:
        """A result with 32-bit elements, rounded where it is written."""
        match node:
            case Map() if writes(node.body):
                inner = {**env, node.parameter: self.element_of(node.argument, env)}
                return replace(node, body=self.rounded(node.body, inner))
            case Map():
                # A change of layout.
                return replace(node, argument=self.rounded(node.argument, env))
            case Let():
                inner = {**env, node.name: self.type_of(node.value, env)}
                return replace(node, body=self.rounded(node.body, inner))
            case Call() if self.is_half(node, env):
                return node
            case Call():
                moves = node.function == "id"
                return call("half_of", node.arguments[0] if moves else node)
            case Reduce() | Zip() | Ref():
                return self.copied(node, len(dimensions(self.type_of(node, env))[0]))
            case _:
                # A change of layout, or of the memory that is written to.
                return _with_children(node, lambda child: self.rounded(child, env))

    def copied(self, node: Node, depth: int) -> Node:
        """Every element of a result rounded into a place of its own."""
        if depth == 0:
            return call("half_of", node)
        self._roundings += 1
        number = self._roundings
        parameter = f"rounded{number}"
        body = self.copied(Ref(parameter), depth - 1)
        return Map(f"round_{number}" if number > 1 else "round", parameter, body, node)


def _with_children(node: Node, change: Callable[[Node], Node]) -> Node:
    """The node with its sub-nodes changed; none of them is under a name that it binds."""
    changed = {name: change(child) for name, child in children(node)}
    return replace(node, **changed) if changed else node
