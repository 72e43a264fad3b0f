"""How one kernel becomes a loop nest.

Expressions in write position are compiled to code that fills a destination; expressions
in read position become views. A user function or a reduce that stands in read position is
first written to a buffer of the memory that the enclosing ``to_…`` names (global if none
does; accumulators and scalars: private).
"""

from __future__ import annotations

from dataclasses import replace

from mapper.ast_model.builders import said_name
from mapper.ast_model.function_values import apply_function, loads_in_lane_sums
from mapper.ast_model.index_expr import (
    Expr,
    const,
    symbol,
    the_symbol,
)
from mapper.ast_model.kernel_state import Environment, KernelState
from mapper.ast_model.loop_nest import (
    Constant,
    Guarded,
    Load,
    Loop,
    Statement,
    Store,
    Value,
    loads,
)
from mapper.ast_model.nodes import (
    AsScalar,
    AsVector,
    Call,
    Fill,
    Get,
    Join,
    Layout,
    Let,
    Literal,
    Map,
    Node,
    Pad,
    Reduce,
    Ref,
    Reorder,
    Slide,
    Split,
    To,
    Transpose,
    Zip,
)
from mapper.ast_model.types import (
    ArrayType,
    Memory,
    ScalarType,
    TupleType,
    Type,
    VectorType,
    dimensions,
)
from mapper.ast_model.views import (
    ArrayDestination,
    ArrayView,
    Destination,
    ScalarDestination,
    ScalarView,
    TupleView,
    View,
    as_array,
    as_array_destination,
    buffer_destination,
    buffer_view,
    destination_buffer,
    destination_view,
    fill_view,
    join_view,
    lane_symbol,
    pad_view,
    reordered_index,
    scalar_view,
    slide_view,
    split_view,
    transpose_view,
    vector_view,
)
from mapper.ast_model.write_views import WriteViews
from mapper.errors import InputError


class Elaborator(KernelState):
    """Turns the body of one kernel into statements in ``block``."""

    # -- write position ------------------------------------------------------------------

    def write(self, node: Node, destination: Destination, env: Environment) -> None:
        match node:
            case Map():
                self.write_map(node, as_array_destination(destination), env)
            case Reduce():
                self.write_reduce(node, as_array_destination(destination), env)
            case Let():
                self.write(node.body, destination, {**env, node.name: self.bind(node, env)})
            case To():
                self.write_to(node, destination, env)
            case Zip():
                raise self.fail("a tuple cannot be written", "store its components one by one")
            case Ref() | Get() | Fill() | Literal() | Call():
                if isinstance(destination, ArrayDestination):
                    raise self.copy_error()
                self.store(self.scalar(node, env), destination)
            case _:
                self.write_through(node, destination, env)

    def copy_error(self) -> InputError:
        return self.fail(
            "a layout change alone writes nothing, and here a result is wanted",
            "map the user function id over it, with a map id of your choice",
        )

    def store(self, view: ScalarView, destination: ScalarDestination) -> None:
        lane = destination.lane
        if lane is None and isinstance(view.type, VectorType):
            lane = lane_symbol(view.type.width)
        self.block.append(
            Store(destination.buffer, destination.indices, view.value, destination.guards, lane)
        )

    def write_map(self, node: Map, destination: ArrayDestination, env: Environment) -> None:
        if not self.is_writing(node.body):
            self.write_through(node, destination, env)
            return
        argument = as_array(self.read(node.argument, env))
        reads = self.memories_of(node, argument, env)
        index = symbol(f"i_{node.id}", argument.type.length)
        outer, self.block = self.block, []
        self.where.append(node.id)
        self.write(node.body, destination.at(index), {**env, node.parameter: argument.at(index)})
        self.where.pop()
        body, self.block = tuple(self.block), outer
        self.block.append(
            Loop(
                the_symbol(index),
                argument.type.length,
                node.id,
                body,
                reads,
                destination.memory,
                perfectly_nested=False,
                spreads=destination.spread > 0,
            )
        )
        _mark_perfect(self.block, node)

    def write_reduce(self, node: Reduce, destination: ArrayDestination, env: Environment) -> None:
        inner = destination.at(const(0))
        element = self.type_of(node.initial, env)
        if isinstance(node.initial, To) or not isinstance(element, ArrayType):
            view = self.run_reduce(node, None, env)
            if not isinstance(view, ScalarView) or isinstance(inner, ArrayDestination):
                raise self.fail(
                    "the accumulator of this reduce lives in a memory of its own, so its "
                    "result has to be copied out",
                    "map id over the result of the reduce",
                )
            self.store(view, inner)
            return
        self.run_reduce(node, (inner, element), env)

    def write_to(self, node: To, destination: Destination, env: Environment) -> None:
        memory = (
            destination.memory
            if isinstance(destination, ArrayDestination)
            else destination.buffer.memory
        )
        if memory is node.memory:
            self.write(node.argument, destination, env)
            return
        view = self.read(node, env)
        if isinstance(destination, ArrayDestination) or not isinstance(view, ScalarView):
            raise self.fail(
                f"a result written to {node.memory.value} memory is wanted in {memory.value} "
                "memory",
                f"map id over it, inside to_{memory.value}",
            )
        self.store(view, destination)

    def write_through(self, node: Map | Layout, destination: Destination, env: Environment) -> None:
        """Write what stands under a layout change: the change moves to the destination."""
        if not self.is_writing(node):
            raise self.copy_error()
        types = {name: view.type for name, view in env.items()}
        views = WriteViews(self.program, self.fail, self.memory)
        inner, target = views.push(node, destination, types)
        self.write(inner, target, env)

    # -- read position -------------------------------------------------------------------

    def read(self, node: Node, env: Environment) -> View:
        match node:
            case Ref():
                return env[node.name]
            case Literal() | Call():
                return self.scalar(node, env)
            case Fill():
                return fill_view(self.type_of(node, env), node.value)
            case To():
                return self.materialise(node.argument, node.memory, env, node.spread)
            case Let():
                return self.read(node.body, {**env, node.name: self.bind(node, env)})
            case Reduce():
                return self.reduced(node, self.run_reduce(node, None, env), env)
            case Map():
                return self.read_map(node, env)
            case Zip():
                return self.read_zip(node, env)
            case Get():
                view = self.read(node.argument, env)
                assert isinstance(view, TupleView)
                return view.items[node.index]
            case _:
                return self.read_layout(node, env)

    def read_map(self, node: Map, env: Environment) -> View:
        if self.is_writing(node.body):
            return self.materialise(node, Memory.GLOBAL, env)
        argument = as_array(self.read(node.argument, env))
        type_ = self.type_of(node, env)
        assert isinstance(type_, ArrayType)
        return ArrayView(
            type_,
            lambda i: self.read(node.body, {**env, node.parameter: argument.at(i)}),
            self.memories_of(node, argument, env),
        )

    def read_zip(self, node: Zip, env: Environment) -> View:
        arrays = tuple(as_array(self.read(argument, env)) for argument in node.arguments)
        type_ = self.type_of(node, env)
        assert isinstance(type_, ArrayType) and isinstance(type_.element, TupleType)
        element = type_.element

        def at(i: Expr) -> View:
            return TupleView(element, tuple(a.at(i) for a in arrays))

        memories = frozenset[Memory]().union(*(a.memories for a in arrays))
        return ArrayView(type_, at, memories)

    def read_layout(self, node: Layout, env: Environment) -> View:
        view = as_array(self.read(node.argument, env))
        type_ = self.type_of(node, env)
        assert isinstance(type_, ArrayType)
        match node:
            case Split():
                return split_view(view, node.size, type_)
            case Join():
                return join_view(view, type_)
            case Slide():
                return slide_view(view, node.step, type_)
            case Pad():
                return pad_view(view, node.left, node.value, type_)
            case Transpose():
                return transpose_view(view, type_)
            case Reorder():
                kind, amount, length = node.kind, node.amount, type_.length
                return ArrayView(
                    type_,
                    lambda i: view.at(reordered_index(kind, amount, length, i)),
                    view.memories,
                )
            case AsVector():
                return vector_view(view, node.width, type_)
            case AsScalar():
                vector = view.type.element
                assert isinstance(vector, VectorType)
                return scalar_view(view, vector.width, type_)

    def bind(self, node: Let, env: Environment) -> View:
        """A let-bound value: scalars that are computed are kept in private memory."""
        self.said = said_name(node.name) if _makes_buffer(node.value) else ""
        if isinstance(node.value, Call):
            view = self.materialise(node.value, Memory.PRIVATE, env)
        else:
            view = self.read(node.value, env)
        self.said = ""
        return view

    def materialise(self, node: Node, memory: Memory, env: Environment, spread: int = 0) -> View:
        if isinstance(node, Reduce):
            return self.reduced(node, self.run_reduce(node, None, env, memory), env)
        type_ = self.type_of(node, env)
        buffer = self.new_buffer("tmp", memory, type_, spread)
        self.write(node, buffer_destination(buffer, type_), env)
        return buffer_view(buffer, type_)

    def reduced(self, node: Reduce, accumulator: View, env: Environment) -> ArrayView:
        """The result of a reduce: one element, which is its accumulator."""
        type_ = self.type_of(node, env)
        assert isinstance(type_, ArrayType)
        return ArrayView(type_, lambda _: accumulator, accumulator.memories)

    def run_reduce(
        self,
        node: Reduce,
        target: tuple[Destination, Type] | None,
        env: Environment,
        memory: Memory | None = None,
    ) -> View:
        """Emit a reduce and return the view of its accumulator."""
        initial, spread = node.initial, 0
        if isinstance(initial, To):
            memory, initial, spread = initial.memory, initial.argument, initial.spread
        element = self.type_of(initial, env)
        if target is None:
            self.said = self.said or said_name(node.accumulator)
            buffer = self.new_buffer("acc", memory or Memory.PRIVATE, element, spread)
            destination: Destination = buffer_destination(buffer, element)
        else:
            destination, element = target
        if not self.already_there(initial, destination, element, env):
            self.write(initial, destination, env)
        argument = as_array(self.read(node.argument, env))
        index = symbol(self.step(node.parameter), argument.type.length)
        accumulator = destination_view(destination, element)
        outer, self.block = self.block, []
        inner_env = {
            **env,
            node.accumulator: accumulator,
            node.parameter: argument.at(index),
        }
        self.write(node.body, destination, inner_env)
        body, self.block = tuple(self.block), outer
        self.check_accumulator(body, destination)
        self.block.append(
            Loop(
                the_symbol(index),
                argument.type.length,
                None,
                body,
                unroll=node.unroll,
                prefetch=node.prefetch,
            )
        )
        return accumulator

    def already_there(
        self, initial: Node, destination: Destination, element: Type, env: Environment
    ) -> bool:
        """True for a reduce that goes on with what its destination holds already.

        So does one inside another which accumulates into the elements of the outer one.
        """
        if self.is_writing(initial):
            return False
        places = tuple(const(0) if n.constant == 1 else symbol(f"at_{k}", n)
                       for k, n in enumerate(dimensions(element)[0]))  # fmt: skip
        present, wanted = self.read(initial, env), destination_view(destination, element)
        for place in places:
            present, wanted = as_array(present).at(place), as_array(wanted).at(place)
        return (
            isinstance(present, ScalarView)
            and isinstance(wanted, ScalarView)
            and _is_load(present.value)
            and present.value == wanted.value
        )

    def check_accumulator(self, body: tuple[Statement, ...], destination: Destination) -> None:
        """The accumulator is updated in place, so each element may only depend on itself."""
        name = destination_buffer(destination).name
        pending = list(body)
        while pending:
            statement = pending.pop()
            if isinstance(statement, Loop):
                pending.extend(statement.body)
            elif isinstance(statement, Store):
                own = statement.indices if statement.buffer.name == name else None
                # Under a sum over lanes an element's new value depends on its neighbours.
                mixed = {id(load) for load in loads_in_lane_sums(statement.value)}
                for load in loads(statement.value):
                    if load.buffer.name == name and (load.indices != own or id(load) in mixed):
                        raise self.fail(
                            "the accumulator of a reduce must be updated element by element, "
                            "but one element's new value depends on others",
                            "zip the accumulator with the new values and map over that",
                        )

    # -- scalars -------------------------------------------------------------------------

    def scalar(self, node: Node, env: Environment) -> ScalarView:
        match node:
            case Literal():
                constant = Constant(node.dtype.stored(node.value), node.dtype)
                return ScalarView(ScalarType(node.dtype), constant, frozenset())
            case Call():
                function = self.program.function(node.function)
                assert function is not None
                operands = [self.scalar(argument, env) for argument in node.arguments]
                value, type_ = apply_function(function, operands)
                memories = frozenset[Memory]().union(*(o.memories for o in operands))
                return ScalarView(type_, value, memories)
            case _:
                view = self.read(node, env)
                assert isinstance(view, ScalarView)
                return view


def _is_load(value: Value) -> bool:
    """True for an element of a buffer, perhaps only where guards hold."""
    while isinstance(value, Guarded):
        value = value.value
    return isinstance(value, Load)


def _makes_buffer(node: Node) -> bool:
    """True for what is computed into one buffer, perhaps under changes of its layout."""
    while isinstance(node, Layout):
        node = node.argument
    return isinstance(node, To | Reduce | Call)


def _mark_perfect(block: list[Statement], node: Map) -> None:
    """Mark the map directly inside as perfectly nested where the definition says so.

    The outer map's body is exactly the inner map applied to the parameter (CC'22, section
    4.1: fusion by split and join needs nothing in between).
    """
    inner = node.body
    if not (isinstance(inner, Map) and inner.argument == Ref(node.parameter)):
        return
    loop = block[-1]
    assert isinstance(loop, Loop)
    if len(loop.body) == 1 and isinstance(loop.body[0], Loop):
        block[-1] = replace(loop, body=(replace(loop.body[0], perfectly_nested=True),))
