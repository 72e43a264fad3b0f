"""What the elaboration of a kernel keeps: types, names in use, the statements so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mapper.ast_model.builders import said_name
from mapper.ast_model.index_expr import (
    Expr,
)
from mapper.ast_model.loop_nest import (
    Buffer,
    Declare,
    Role,
    Statement,
)
from mapper.ast_model.nodes import (
    Call,
    Map,
    MapId,
    Node,
    Program,
    Reduce,
    To,
    children,
)
from mapper.ast_model.type_check import infer_part
from mapper.ast_model.type_memory import TypeMemory
from mapper.ast_model.types import (
    Memory,
    TupleType,
    Type,
    VectorType,
    dimensions,
    element_dtype,
)
from mapper.ast_model.views import (
    ArrayView,
    View,
)
from mapper.errors import InputError, Problem

Environment = Mapping[str, View]


def buffer_dimensions(type_: Type) -> tuple[Expr, ...]:
    """Scalar dimensions of a buffer of this type, outermost first, lanes last."""
    lengths, element = dimensions(type_)
    if isinstance(element, VectorType):
        return (*lengths, element.width)
    return lengths


@dataclass
class KernelState:
    """What is known while one kernel is elaborated: the statement list being filled, names in use.

    ``said`` is the name that the program gives to the next buffer, if it does.
    """

    program: Program
    kernel: str
    block: list[Statement] = field(default_factory=list[Statement])
    counter: int = 0
    said: str = ""
    steps: set[str] = field(default_factory=set[str])
    where: list[MapId] = field(default_factory=list[MapId])
    memory: TypeMemory = field(default_factory=TypeMemory)
    writes_cache: dict[int, tuple[Node, bool]] = field(default_factory=dict[int, tuple[Node, bool]])

    def fail(self, message: str, remedy: str = "", rule: str = "") -> InputError:
        path = f"kernels/{self.kernel}" + "".join(f"/map#{m}" for m in self.where)
        prefix = f"{rule}: " if rule else ""
        return InputError(Problem(path, prefix + message, remedy=remedy))

    def type_of(self, node: Node, env: Environment) -> Type:
        types = {n: env[n].type for n in self.memory.free_names(node) if n in env}
        return infer_part(node, types, self.program, self.memory)

    def memories_of(self, node: Map, argument: ArrayView, env: Environment) -> frozenset[Memory]:
        """The memories of a map's argument and of what its body captures."""
        captured = (n for n in self.memory.free_names(node.body) if n != node.parameter)
        return argument.memories.union(*(env[n].memories for n in captured if n in env))

    def is_writing(self, node: Node) -> bool:
        """True if something is written in the node: by a user function, a reduce or a ``to``."""
        cached = self.writes_cache.get(id(node))
        if cached is None:
            writing = isinstance(node, Call | Reduce | To) or any(
                self.is_writing(child) for _, child in children(node)
            )
            # The node is kept beside the answer so that its identity stays taken.
            cached = self.writes_cache[id(node)] = (node, writing)
        return cached[1]

    def fresh(self, stem: str) -> str:
        taken = {i.name for i in self.program.inputs} | {k.name for k in self.program.kernels}
        while True:
            self.counter += 1
            name = f"{stem}_{self.counter}"
            if name not in taken:
                return name

    def step(self, parameter: str) -> str:
        """The name of a reduce's loop variable, after what one of its steps is called."""
        # Counts with the buffers, whose numbers would be others without.
        self.counter += 1
        stem, count = f"r_{said_name(parameter) or 'step'}", 1
        name = stem
        while name in self.steps:
            count += 1
            name = f"{stem}{count}"
        self.steps.add(name)
        return name

    def new_buffer(self, stem: str, memory: Memory, type_: Type, spread: int = 0) -> Buffer:
        if isinstance(dimensions(type_)[1], TupleType):
            raise self.fail(
                "a tuple cannot be stored in memory",
                "store its components one by one, and zip the results",
            )
        said, self.said = self.said, ""
        buffer = Buffer(
            self.fresh(f"{self.kernel}_{stem}"),
            memory,
            buffer_dimensions(type_),
            Role.INTERMEDIATE,
            spread,
            element_dtype(type_),
            said,
        )
        self.block.append(Declare(buffer))
        return buffer
