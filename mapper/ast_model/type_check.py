"""Types of programs, and what sizes and tuning parameters must satisfy for them to be right.

The checker goes on after an error (with "no type", which fits everything), so that all
errors are told at once. Whatever depends on numbers that are not fixed yet becomes an
:class:`Obligation`: "Auto-Generation of Specialized Direct Convolutions for Mobile GPUs"
(GPGPU'20), section 3.1 (types of the primitives) and its section on constraint inference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mapper.ast_model.bounds import (
    MAX_TYPE_DEPTH,
    check_node_bounds,
    is_name,
    writes,
)
from mapper.ast_model.declarations import declaration_problems, lane_reducing
from mapper.ast_model.element_types import WrongElements, typed_body
from mapper.ast_model.index_expr import (
    Expr,
    const,
    exact_div,
    floor_div,
)
from mapper.ast_model.nodes import (
    BUILTIN_FUNCTIONS,
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
    MapId,
    Node,
    OrderKind,
    Pad,
    Program,
    Reduce,
    Ref,
    Relation,
    Reorder,
    Slide,
    Split,
    To,
    Transpose,
    Zip,
)
from mapper.ast_model.obligations import Obligation
from mapper.ast_model.type_findings import Findings, type_text
from mapper.ast_model.type_memory import TypeMemory
from mapper.ast_model.types import (
    ArrayType,
    Memory,
    ScalarType,
    TupleType,
    Type,
    VectorType,
    array,
    dimensions,
)
from mapper.errors import TypeErrors

Environment = Mapping[str, Type | None]


@dataclass(frozen=True, slots=True)
class ProgramTypes:
    """Types of the kernels' results, by name, and what they depend on."""

    kernel_types: dict[str, Type]
    obligations: tuple[Obligation, ...]


def infer(node: Node, env: Mapping[str, Type], program: Program) -> Type:
    """The type of ``node`` under ``env``; ``program`` gives functions, sizes, parameters.

    Raises TypeErrors with all problems found, LimitError for a node too large.
    """
    check_node_bounds([("", node)])
    return infer_part(node, env, program)


def infer_part(
    node: Node,
    env: Mapping[str, Type],
    program: Program,
    memory: TypeMemory | None = None,
) -> Type:
    """As :func:`infer`, for a part of a program that is known to be within the bounds.

    With ``memory`` what was inferred with it before is not inferred again.
    """
    known = None if memory is None else memory.recall(node, env)
    if known is not None:
        return known
    checker = _Checker(program, memory)
    result = checker.infer(node, env, "")
    if checker.problems or result is None:
        raise TypeErrors(checker.problems)
    return result


def check_program(program: Program) -> ProgramTypes:
    """Check a whole program.

    Raises TypeErrors that carry every problem, each with its path from the program down
    (``kernels/partial/body/argument``), or LimitError before anything else is looked at.
    """
    check_node_bounds((f"kernels/{k.name}/body", k.body) for k in program.kernels)
    checker = _Checker(program)
    checker.check_declarations()
    env: dict[str, Type | None] = {}
    for input_ in program.inputs:
        lengths, element = dimensions(input_.type)
        path = f"inputs/{input_.name}/type"
        for length in lengths[:MAX_TYPE_DEPTH]:
            checker.check_size(length, path, "requirement", "the length")
        if isinstance(element, VectorType):
            checker.check_size(element.width, path, "requirement", "the vector width")
        env[input_.name] = input_.type if len(lengths) <= MAX_TYPE_DEPTH else None
    kernel_types: dict[str, Type] = {}
    for kernel in program.kernels:
        path = f"kernels/{kernel.name}/body"
        result = checker.infer(kernel.body, env, path)
        if result is not None:
            lengths, element = dimensions(result)
            if not lengths or not isinstance(element, ScalarType | VectorType):
                checker.fail(path, "a kernel's result must be an array of scalars or vectors",
                             type_text(result), "[float]n, [[half]m]n, [char<w>]n and so on",
                             "a map whose body returns one number")  # fmt: skip
            kernel_types[kernel.name] = result
        env[kernel.name] = result
    if checker.problems:
        raise TypeErrors(checker.problems)
    return ProgramTypes(kernel_types, tuple(checker.obligations))


def check_declarations(program: Program) -> None:
    """What a program declares, without its kernels; TypeErrors carry every problem."""
    checker = _Checker(program)
    checker.check_declarations()
    if checker.problems:
        raise TypeErrors(checker.problems)


class _Checker(Findings):
    """The types of one program, with the findings on the way."""

    def __init__(self, program: Program, memory: TypeMemory | None = None) -> None:
        super().__init__(program, memory)
        self._map_paths: dict[str, str] = {}

    def check_declarations(self) -> None:
        self.problems += declaration_problems(self.program)
        self.check_function_names()
        self.check_requirements()

    def check_function_names(self) -> None:
        seen: set[str] = set()
        for function in self.program.functions:
            if function.name in seen:
                self.fail(f"functions/{function.name}", "the name is taken", function.name,
                          "each function once")  # fmt: skip
            seen.add(function.name)

    def check_requirements(self) -> None:
        for index, requirement in enumerate(self.program.requirements):
            path = f"requirements/{index}"
            left, relation, right = requirement.left, requirement.relation, requirement.right
            if self._known(left, path, "a requirement") & self._known(right, path, "a requirement"):
                self._oblige(path, "requirement", left, relation, right,
                             "the program itself requires it")  # fmt: skip

    # One Python frame a level of nodes: what happens to the types is in methods that return.
    def infer(self, node: Node, env: Environment, path: str) -> Type | None:
        """The type of a node, or None if a problem in it was reported."""
        if self._memory is not None:
            known = self._memory.recall(node, env)
            if known is not None:
                return known
        match node:
            case Ref(name):
                if name not in env:
                    self.fail(path, "unknown name", name, ", ".join(sorted(env)[:20]))
                return env.get(name)
            case Literal(value, dtype):
                self._check_constant(value, dtype, path)
                return ScalarType(dtype)
            case Fill(value, _, dtype):
                self._check_constant(value, dtype, path)
                found = self._fill(node, path)
            case Call(_, arguments) | Zip(arguments):
                types: list[Type | None] = []
                for index, argument in enumerate(arguments):
                    types.append(self.infer(argument, env, f"{path}/arguments/{index}"))
                if isinstance(node, Call):
                    found = self._call(node.function, types, path)
                else:
                    found = self._zip(types, path)
            case Map(identifier, parameter, body, argument):
                self._check_map(identifier, path)
                self._check_name(parameter, path)
                source = self._array(self.infer(argument, env, f"{path}/argument"), path, "map")
                element = None if source is None else source.element
                result = self.infer(body, {**env, parameter: element}, f"{path}/body")
                if source is None or result is None:
                    return None
                found = self._made(ArrayType(result, source.length), path)
            case Reduce(accumulator, parameter, body, initial, argument, unroll, prefetch):
                self._check_reduce(accumulator, parameter, path)
                self._check_switch("unroll", unroll, path, (0, 1))
                self._check_switch("prefetch", prefetch, path, (0, 1, 2))
                source = self._array(self.infer(argument, env, f"{path}/argument"), path, "reduce")
                start = self.infer(initial, env, f"{path}/initial")
                element = None if source is None else source.element
                inner = {**env, accumulator: start, parameter: element}
                found = self._reduce(start, self.infer(body, inner, f"{path}/body"), path)
            case Get(index, argument):
                found = self._get(index, self.infer(argument, env, f"{path}/argument"), path)
            case To(_, argument, _):
                found = self._to(node, self.infer(argument, env, f"{path}/argument"), path)
            case Let(name, value, body):
                self._check_name(name, path)
                bound = self.infer(value, env, f"{path}/value")
                found = self.infer(body, {**env, name: bound}, f"{path}/body")
            case _:
                found = self._layout(node, self.infer(node.argument, env, f"{path}/argument"), path)
        if self._memory is not None and found is not None:
            self._memory.keep(node, env, found)
        return found

    def _layout(self, node: Layout, argument: Type | None, path: str) -> Type | None:
        match node:
            case Split():
                return self._split(node.size, argument, path)
            case Join():
                return self._join(argument, path)
            case Slide():
                return self._slide(node, argument, path)
            case Pad():
                return self._pad(node, argument, path)
            case Transpose():
                return self._transpose(argument, path)
            case Reorder():
                return self._reorder(node, argument, path)
            case AsVector():
                return self._as_vector(node.width, argument, path)
            case AsScalar():
                return self._as_scalar(argument, path)

    def _fill(self, node: Fill, path: str) -> Type | None:
        shape = node.shape
        if not shape:
            self.fail(path, "fill without a shape", "", "one length or more", "a literal")
            return None
        rights = [self.check_size(n, path, "requirement", "a length of fill") for n in shape]
        if len(shape) > MAX_TYPE_DEPTH:
            self.fail(path, "too many dimensions", str(len(shape)), str(MAX_TYPE_DEPTH))
            return None
        return array(ScalarType(node.dtype), *shape) if all(rights) else None

    def _call(self, name: str, types: list[Type | None], path: str) -> Type | None:
        function = self.program.function(name)
        if function is None:
            known = sorted({f.name for f in self.program.functions} | set(BUILTIN_FUNCTIONS))
            self.fail(path, "unknown function", name, ", ".join(known[:30]))
            return None
        if len(types) != len(function.parameters):
            self.fail(path, f"wrong number of arguments of {name}", str(len(types)),
                      str(len(function.parameters)))  # fmt: skip
            return None
        width: Expr | None = None
        right = True
        for index, type_ in enumerate(types):
            where = f"{path}/arguments/{index}"
            match type_:
                case None:
                    right = False
                case ScalarType():
                    pass
                case VectorType():
                    if width is None:
                        width = type_.width
                    right &= self._equal(width, type_.width, where, "widths of the vectors")
                case ArrayType() | TupleType():
                    remedy = "map it" if isinstance(type_, ArrayType) else "take a component, e.0"
                    self.fail(where, f"{name} works on scalars and vectors", type_text(type_),
                              "float, int, half<w> and so on", remedy)  # fmt: skip
                    right = False
        if not right:
            return None
        scalars = [t for t in types if isinstance(t, ScalarType | VectorType)]
        try:
            dtype = typed_body(function, tuple(t.dtype for t in scalars)).dtype
            scalar = lane_reducing(function, tuple(isinstance(t, VectorType) for t in scalars))
        except KeyError:  # an unknown name in the function, which was reported there
            return None
        except WrongElements as error:
            listed = ", ".join(type_text(t) for t in scalars)
            self.fail(path, f"in {name}, {error}", error.found or listed,
                      error.allowed, error.remedy)  # fmt: skip
            return None
        return ScalarType(dtype) if width is None or scalar else VectorType(width, dtype)

    def _reduce(self, start: Type | None, result: Type | None, path: str) -> Type | None:
        if start is None or result is None:
            return None
        if not self._same(start, result, f"{path}/body", "the body of reduce"):
            return None
        return self._made(ArrayType(start, const(1)), path)

    def _zip(self, types: list[Type | None], path: str) -> Type | None:
        if len(types) < 2:
            self.fail(path, "zip needs arrays to zip", str(len(types)), "two or more")
            return None
        arrays = [self._array(t, f"{path}/arguments/{i}", "zip") for i, t in enumerate(types)]
        first = arrays[0]
        if first is None or any(a is None for a in arrays):
            return None
        items: list[Type] = []
        for index, other in enumerate(arrays):
            assert other is not None
            where = f"{path}/arguments/{index}"
            if not self._equal(first.length, other.length, where, "lengths in zip"):
                return None
            items.append(other.element)
        return self._made(ArrayType(TupleType(tuple(items)), first.length), path)

    def _get(self, index: int, type_: Type | None, path: str) -> Type | None:
        if type_ is None:
            return None
        if not isinstance(type_, TupleType):
            remedy = "map it" if isinstance(type_, ArrayType) else ""
            self.fail(
                path, f".{index} takes a component of a tuple", type_text(type_), "a tuple", remedy
            )
            return None
        if not 0 <= index < len(type_.items):
            self.fail(path, "the tuple has no such component", f".{index} of {type_text(type_)}",
                      f".0 to .{len(type_.items) - 1}")  # fmt: skip
            return None
        return type_.items[index]

    def _split(self, size: Expr, type_: Type | None, path: str) -> Type | None:
        right = self.check_size(size, path, "split", "the size of split")
        source = self._array(type_, path, "split")
        if source is None or not right:
            return None
        if not self._oblige(path, "split", size, Relation.DIVIDES, source.length,
                            "split leaves no remainder"):  # fmt: skip
            return None
        rows = exact_div(source.length, size)
        return self._made(ArrayType(ArrayType(source.element, size), rows), path)

    def _join(self, type_: Type | None, path: str) -> Type | None:
        outer = self._matrix(type_, path, "join")
        if outer is None:
            return None
        return self._product(outer[0].length, outer[1].length, outer[1].element, path)

    def _slide(self, node: Slide, type_: Type | None, path: str) -> Type | None:
        rule = "slide-strict" if node.strict else "slide"
        right = self.check_size(node.size, path, rule, f"the size of {rule}")
        right &= self.check_size(node.step, path, rule, f"the step of {rule}")
        source = self._array(type_, path, rule)
        if source is None or not right:
            return None
        covered = source.length - (node.size - node.step)
        right = self._oblige(path, rule, node.size, Relation.LE, source.length,
                             "a window is no longer than the array")  # fmt: skip
        if node.strict:
            right &= self._oblige(path, rule, node.step, Relation.DIVIDES, covered,
                                  "the windows cover the array with nothing left")  # fmt: skip
        if not right:
            return None
        count = exact_div(covered, node.step) if node.strict else floor_div(covered, node.step)
        return self._made(ArrayType(ArrayType(source.element, node.size), count), path)

    def _pad(self, node: Pad, type_: Type | None, path: str) -> Type | None:
        right = self._known(node.left, path, "a pad amount")
        right &= self._known(node.right, path, "a pad amount")
        source = self._array(type_, path, "pad")
        if source is None or not right:
            return None
        element = dimensions(source)[1]
        if isinstance(element, ScalarType | VectorType):
            self._check_constant(node.value, element.dtype, path)
        else:
            self.fail(path, "pad cannot make up tuples", type_text(source), "arrays of scalars",
                      "pad before zip")  # fmt: skip
            return None
        length = source.length + node.left + node.right
        if not self._oblige(path, "pad", const(1), Relation.LE, length,
                            "something is left after cropping"):  # fmt: skip
            return None
        return self._made(ArrayType(source.element, length), path)

    def _transpose(self, type_: Type | None, path: str) -> Type | None:
        outer = self._matrix(type_, path, "transpose")
        if outer is None:
            return None
        rows, columns = outer
        return ArrayType(ArrayType(columns.element, rows.length), columns.length)

    def _reorder(self, node: Reorder, type_: Type | None, path: str) -> Type | None:
        right = self._known(node.amount, path, "the amount of reorder")
        source = self._array(type_, path, "reorder")
        if source is None or not right:
            return None
        if node.kind is OrderKind.STRIDE:
            right = self.check_size(node.amount, path, "reorder", "the stride")
            right &= self._oblige(path, "reorder", node.amount, Relation.DIVIDES, source.length,
                                  "the stride leaves no remainder")  # fmt: skip
        return source if right else None

    def _as_vector(self, width: Expr, type_: Type | None, path: str) -> Type | None:
        right = self.check_size(width, path, "as-vector", "the vector width")
        source = self._array(type_, path, "as_vector")
        if source is None or not right:
            return None
        if not isinstance(source.element, ScalarType):
            remedy = "map as_vector over the rows" if isinstance(source.element, ArrayType) else ""
            self.fail(
                path, "as_vector works on arrays of scalars", type_text(source), "[float]n", remedy
            )
            return None
        if not self._oblige(path, "as-vector", width, Relation.DIVIDES, source.length,
                            "vectors leave no remainder"):  # fmt: skip
            return None
        vector = VectorType(width, source.element.dtype)
        return ArrayType(vector, exact_div(source.length, width))

    def _as_scalar(self, type_: Type | None, path: str) -> Type | None:
        source = self._array(type_, path, "as_scalar")
        if source is None:
            return None
        if not isinstance(source.element, VectorType):
            self.fail(
                path, "as_scalar works on arrays of vectors", type_text(source), "[float<w>]n"
            )
            return None
        vector = source.element
        return self._product(source.length, vector.width, ScalarType(vector.dtype), path)

    def _to(self, node: To, type_: Type | None, path: str) -> Type | None:
        if isinstance(type_, ArrayType) and not writes(node.argument):
            self.fail(path, f"to_{node.memory.value} of a view, which writes nothing",
                      type_text(type_), "something that computes", "map id over it")  # fmt: skip
            return None
        rank = 0 if type_ is None else len(dimensions(type_)[0])
        if node.spread and (node.memory is not Memory.PRIVATE or not 0 < node.spread <= rank):
            self.fail(path, "spread is not the number of leading dimensions of a private array",
                      f"{node.spread} of to_{node.memory.value}", f"0 to {rank}")  # fmt: skip
            return None
        return type_

    def _check_name(self, name: str, path: str) -> None:
        if not is_name(name):
            self.fail(path, "not a usable name", repr(name)[:80], "an identifier, no reserved word")

    def _check_map(self, identifier: MapId, path: str) -> None:
        text = str(identifier)
        if isinstance(identifier, int) and identifier < 0:
            self.fail(path, "a map's id is negative", text, "0 or more, or a text")
        if not text or len(text) > 63 or not text.isprintable():
            self.fail(path, "not a usable map id", repr(text)[:80], "1 to 63 printable characters")
        if text in self._map_paths:
            self.fail(
                path, "the map id is taken", f"{text} at {self._map_paths[text]}", "each id once"
            )
        self._map_paths.setdefault(text, path)

    def _check_reduce(self, accumulator: str, parameter: str, path: str) -> None:
        self._check_name(accumulator, path)
        self._check_name(parameter, path)
        if accumulator == parameter:
            self.fail(path, "accumulator and parameter have one name", parameter, "two names")

    def _check_switch(self, name: str, value: Expr, path: str, allowed: tuple[int, ...]) -> None:
        if not self._known(value, path, name):
            return
        choices = {p.name: p.values for p in self.program.parameters}.get(str(value), ())
        if value.constant not in (None, *allowed) or not set(choices) <= set(allowed):
            *first, last = map(str, allowed)
            listed = ", ".join((*first, last))
            self.fail(
                path,
                f"{name} is not {', '.join(first)} or {last}",
                str(value),
                f"{listed}, or a parameter in {{{listed}}}",
            )
