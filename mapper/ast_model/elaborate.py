"""From functional programs to loop nests: every write gets a loop nest and a buffer.

Which maps become loops depends on the program alone, never on sizes, so the nest may be
derived with sizes and parameters symbolic (:mod:`mapper.ast_model.elaborator` does it).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mapper.ast_model.elaborator import Elaborator
from mapper.ast_model.index_expr import (
    ExprLike,
    parameter_symbol,
)
from mapper.ast_model.kernel_state import buffer_dimensions
from mapper.ast_model.loop_nest import (
    Buffer,
    LoopKernel,
    LoopProgram,
    Role,
)
from mapper.ast_model.nodes import (
    Program,
)
from mapper.ast_model.specialise import size_values, specialise
from mapper.ast_model.types import (
    Memory,
    Type,
    element_dtype,
)
from mapper.ast_model.views import (
    View,
    buffer_destination,
    buffer_view,
)


def elaborate(program: Program, values: Mapping[str, ExprLike] | None = None) -> LoopProgram:
    """Loop nests of a type-checked program.

    ``values`` replace tuning parameters; sizes are always put in. With a value for every
    parameter all trips and indices are concrete. Raises InputError, naming the kernel and
    the map, for what has no code: a write through a view that is not injective (rule
    injective-write), an accumulator that is not updated element by element, a tuple that
    would have to be stored.
    """
    zeros = {p.name: parameter_symbol(p.name) for p in program.parameters if 0 in p.values}
    return elaborate_symbolic(program, {**zeros, **size_values(program), **(values or {})})


def elaborate_symbolic(program: Program, values: Mapping[str, ExprLike]) -> LoopProgram:
    """As :func:`elaborate`, but sizes stay symbolic unless ``values`` gives them."""
    program = specialise(program, values) if values else program
    inputs = {i.name: global_buffer(i.name, i.type, Role.INPUT) for i in program.inputs}
    views: dict[str, View] = {i.name: buffer_view(inputs[i.name], i.type) for i in program.inputs}
    kernels: list[LoopKernel] = []
    for kernel in program.kernels:
        elaborator = Elaborator(program, kernel.name)
        result_type = elaborator.type_of(kernel.body, views)
        output = global_buffer(kernel.name, result_type, Role.OUTPUT)
        elaborator.write(kernel.body, buffer_destination(output, result_type), views)
        kernels.append(LoopKernel(kernel.name, tuple(elaborator.block), output))
        # To later kernels this result is an input.
        views[kernel.name] = buffer_view(replace(output, role=Role.INPUT), result_type)
    return LoopProgram(program.name, tuple(inputs.values()), tuple(kernels))


def global_buffer(name: str, type_: Type, role: Role) -> Buffer:
    """The buffer of an input or of a kernel's result."""
    dimensions_ = buffer_dimensions(type_)
    return Buffer(name, Memory.GLOBAL, dimensions_, role, dtype=element_dtype(type_), stem=name)
