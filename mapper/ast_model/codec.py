"""Programs (``nestmap/program/1``) and bare nest trees (``nestmap/nest/1``) as JSON.

Integer expressions are integers or text, types and the bodies of user functions are text as
in the text form; nothing is ever evaluated. A node is an object with its ``op`` and the
fields of its class in :mod:`mapper.ast_model.nodes`. Reading reports all problems at once,
each with its JSON pointer, and walks trees without recursion.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from mapper.ast_model.bounded_json import check_depth, kind_of, loads_bounded, object_keys, pointer
from mapper.ast_model.bounds import MAX_NODE_DEPTH, MAX_NODES, check_node_bounds
from mapper.ast_model.index_expr import Expr, const
from mapper.ast_model.json_reader import JsonObject, JsonReader
from mapper.ast_model.nodes import (
    AsScalar,
    AsVector,
    Call,
    Fill,
    Get,
    Input,
    Join,
    Kernel,
    Let,
    Literal,
    Map,
    Node,
    OrderKind,
    Pad,
    Parameter,
    Program,
    Reduce,
    Ref,
    Reorder,
    Slide,
    Split,
    To,
    Transpose,
    UserFunction,
    Zip,
    children,
)
from mapper.ast_model.printer import function_text, type_text
from mapper.ast_model.text_form import parse_function, parse_requirement, parse_type
from mapper.elements import BY_TEXT, Element
from mapper.errors import LimitError, Problem

PROGRAM_SCHEMA = "nestmap/program/1"
# A node may stand in a list in an object, so it may take two levels of brackets.
MAX_PROGRAM_DEPTH = 2 * MAX_NODE_DEPTH + 20

# op: class, then its fields in order and what each is; "node" and "nodes" are sub-trees.
_NODES: dict[str, tuple[type[Any], dict[str, str]]] = {
    "ref": (Ref, {"name": "text"}),
    "literal": (Literal, {"value": "number", "dtype": "element"}),
    "fill": (Fill, {"value": "number", "shape": "expressions", "dtype": "element"}),
    "call": (Call, {"function": "text", "arguments": "nodes"}),
    "map": (Map, {"id": "id", "parameter": "text", "body": "node", "argument": "node"}),
    "reduce": (
        Reduce,
        {
            "accumulator": "text",
            "parameter": "text",
            "body": "node",
            "initial": "node",
            "argument": "node",
            "unroll": "expression",
            "prefetch": "expression",
        },
    ),
    "zip": (Zip, {"arguments": "nodes"}),
    "get": (Get, {"index": "integer", "argument": "node"}),
    "split": (Split, {"size": "expression", "argument": "node"}),
    "join": (Join, {"argument": "node"}),
    "slide": (
        Slide,
        {"size": "expression", "step": "expression", "argument": "node", "strict": "flag"},
    ),
    "pad": (
        Pad,
        {"left": "expression", "right": "expression", "value": "number", "argument": "node"},
    ),
    "transpose": (Transpose, {"argument": "node"}),
    "reorder": (Reorder, {"kind": "order", "amount": "expression", "argument": "node"}),
    "as_vector": (AsVector, {"width": "expression", "argument": "node"}),
    "as_scalar": (AsScalar, {"argument": "node"}),
    "to": (To, {"memory": "memory", "argument": "node", "spread": "integer"}),
    "let": (Let, {"name": "text", "value": "node", "body": "node"}),
}
_OPS = {class_: op for op, (class_, _) in _NODES.items()}
# Fields that may be left out.
_DEFAULTS: dict[tuple[str, str], object] = {
    ("literal", "dtype"): Element.FLOAT32,
    ("fill", "dtype"): Element.FLOAT32,
    ("reduce", "unroll"): const(0),
    ("reduce", "prefetch"): const(0),
    ("slide", "strict"): False,
    ("reorder", "amount"): const(1),
    ("to", "spread"): 0,
}


def program_from_json(value: object) -> Program:
    """The program of a JSON text (str or bytes) or of a JSON value; types are not checked.

    Raises InputError with all problems, LimitError for a program too large.
    """
    if isinstance(value, str | bytes):
        value = loads_bounded(value, max_depth=MAX_PROGRAM_DEPTH)
    check_depth(value, MAX_PROGRAM_DEPTH)
    reader = JsonReader()
    top = reader.object(
        value,
        "",
        ("schema", "name", "inputs", "kernels"),
        ("sizes", "parameters", "requirements", "functions", "constants"),
    )
    if top is None:
        reader.finish()
        raise AssertionError
    if top.get("schema", PROGRAM_SCHEMA) != PROGRAM_SCHEMA:
        reader.fail("/schema", "another schema", kind_of(top["schema"]), PROGRAM_SCHEMA)
    bodies = _NodeReader(reader)

    def parameter(item: object, path: str) -> Parameter | None:
        got = _fields(reader, item, path, {"name": "text", "values": "integers"})
        return None if got is None else Parameter(got["name"], got["values"])

    def function(item: object, path: str) -> UserFunction | None:
        got = _fields(
            reader, item, path, {"name": "text", "parameters": "texts", "body": "function"}
        )
        return None if got is None else UserFunction(got["name"], got["parameters"], got["body"])

    def an_input(item: object, path: str) -> Input | None:
        got = _fields(reader, item, path, {"name": "text", "type": "type"})
        return None if got is None else Input(got["name"], got["type"])

    def kernel(item: object, path: str) -> tuple[str, int] | None:
        fields = reader.object(item, path, ("name", "body"))
        if fields is None or not {"name", "body"} <= fields.keys():
            return None
        name = reader.text(fields["name"], pointer(path, "name"))
        position = bodies.read(fields["body"], pointer(path, "body"))
        return None if name is None else (name, position)

    name = reader.text(top.get("name", ""), "/name")
    sizes = reader.object(
        sizes_value := top.get("sizes", {}), "/sizes", (), object_keys(sizes_value)
    )
    pairs = [(n, reader.integer(v, pointer("/sizes", n))) for n, v in (sizes or {}).items()]
    parameters = reader.items(top.get("parameters", []), "/parameters", parameter)
    requirements = reader.items(
        top.get("requirements", []),
        "/requirements",
        lambda item, path: reader.parsed(item, path, parse_requirement),
    )
    functions = reader.items(top.get("functions", []), "/functions", function)
    inputs = reader.items(top.get("inputs", []), "/inputs", an_input)
    kernels = reader.items(top.get("kernels", []), "/kernels", kernel)
    constants = reader.items(top.get("constants", []), "/constants", reader.text)
    for position, constant in enumerate(constants):
        if constant not in [i.name for i in inputs]:
            found = ", ".join(i.name for i in inputs)
            reader.fail(pointer("/constants", position), "not an input", repr(constant)[:80], found)
    reader.finish()
    nodes = bodies.build()
    program = Program(
        name or "",
        tuple((n, v) for n, v in pairs if v is not None),
        parameters,
        requirements,
        functions,
        inputs,
        tuple(Kernel(kernel_name, nodes[position]) for kernel_name, position in kernels),
        constants,
    )
    check_node_bounds((f"kernels/{k.name}/body", k.body) for k in program.kernels)
    return program


def program_to_json(program: Program) -> dict[str, Any]:
    """The program as a JSON value; :func:`program_from_json` gives it back."""
    check_node_bounds((f"kernels/{k.name}/body", k.body) for k in program.kernels)
    return {
        "schema": PROGRAM_SCHEMA,
        "name": program.name,
        "sizes": dict(program.sizes),
        "parameters": [{"name": p.name, "values": list(p.values)} for p in program.parameters],
        "requirements": [str(requirement) for requirement in program.requirements],
        "functions": [
            {"name": f.name, "parameters": list(f.parameters), "body": function_text(f.body)}
            for f in program.functions
        ],
        "inputs": [{"name": i.name, "type": type_text(i.type)} for i in program.inputs],
        "kernels": [{"name": k.name, "body": _node_to_json(k.body)} for k in program.kernels],
        **({"constants": list(program.constants)} if program.constants else {}),
    }


def expression_to_json(expression: Expr) -> int | str:
    """An integer where it is one, else text."""
    return str(expression) if expression.constant is None else expression.constant


def _fields(
    reader: JsonReader, value: object, path: str, kinds: dict[str, str]
) -> dict[str, Any] | None:
    """All fields of an object read by their kinds, or None after a problem."""
    fields = reader.object(value, path, tuple(kinds))
    if fields is None:
        return None
    got = {
        name: _read(reader, kind, fields[name], pointer(path, name))
        for name, kind in kinds.items()
        if name in fields
    }
    return None if len(got) < len(kinds) or None in got.values() else got


def _read(reader: JsonReader, kind: str, value: object, path: str) -> Any:
    match kind:
        case "text":
            return reader.text(value, path)
        case "texts":
            return reader.items(value, path, reader.text)
        case "integer":
            return reader.integer(value, path)
        case "integers":
            return reader.items(value, path, reader.integer)
        case "number":
            return reader.number(value, path)
        case "flag":
            return reader.flag(value, path)
        case "id":
            return reader.id(value, path)
        case "memory":
            return reader.memory(value, path)
        case "expression":
            return reader.expression(value, path)
        case "expressions":
            return reader.items(value, path, reader.expression)
        case "type":
            return reader.parsed(value, path, parse_type)
        case "function":
            return reader.parsed(value, path, parse_function)
        case "element":
            if isinstance(value, str) and value in BY_TEXT:
                return BY_TEXT[value]
            reader.fail(path, "not an element type", kind_of(value), ", ".join(BY_TEXT))
            return None
        case "order":
            if value in [order.value for order in OrderKind]:
                return OrderKind(value)
            reader.fail(path, "not an order", kind_of(value), ", ".join(o.value for o in OrderKind))
            return None
        case _:
            raise AssertionError(kind)


@dataclass(slots=True)
class _Entry:
    """A node under way; its sub-nodes are positions among the entries, all later ones."""

    class_: type[Any]
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    single: dict[str, int] = field(default_factory=dict[str, int])
    several: dict[str, list[int]] = field(default_factory=dict[str, list[int]])


class _NodeReader:
    """Reads trees of nodes: forward to check and number them, backward to build them."""

    def __init__(self, reader: JsonReader) -> None:
        self._reader = reader
        self._entries: list[_Entry] = []

    def read(self, value: object, path: str) -> int:
        """The position of a tree's root among the nodes that :meth:`build` gives."""
        first = len(self._entries)
        stack: list[tuple[object, str, _Entry | None, str]] = [(value, path, None, "")]
        while stack:
            raw, where, parent, name = stack.pop()
            if len(self._entries) >= MAX_NODES:
                raise LimitError(Problem("", "the program is too large", "", f"{MAX_NODES} nodes"))
            position = len(self._entries)
            if parent is not None and name in parent.several:
                parent.several[name].append(position)
            elif parent is not None:
                parent.single[name] = position
            entry = _Entry(Ref)
            self._entries.append(entry)
            stack += reversed(list(self._read_fields(raw, where, entry)))
        return first

    def _read_fields(
        self, raw: object, path: str, entry: _Entry
    ) -> Iterator[tuple[object, str, _Entry, str]]:
        """Reads a node's own fields and hands out its sub-trees."""
        reader = self._reader
        if not isinstance(raw, dict):
            reader.fail(path, "not a node", kind_of(raw), "an object with op")
            return
        raw = cast(JsonObject, raw)
        op = raw.get("op")
        if not isinstance(op, str) or op not in _NODES:
            found = kind_of(op) if "op" in raw else "no op"
            reader.fail(pointer(path, "op"), "not the op of a node", found, ", ".join(_NODES))
            return
        entry.class_, kinds = _NODES[op]
        optional = [name for name in kinds if (op, name) in _DEFAULTS]
        required = ["op", *(name for name in kinds if name not in optional)]
        fields = reader.object(raw, path, required, optional) or {}
        for name, kind in kinds.items():
            where = pointer(path, name)
            if name not in fields:
                entry.values[name] = _DEFAULTS.get((op, name))
            elif kind == "node":
                yield fields[name], where, entry, name
            elif kind == "nodes":
                entry.several[name] = []
                for index, item in enumerate(reader.list(fields[name], where)):
                    yield item, pointer(where, index), entry, name
            else:
                entry.values[name] = _read(reader, kind, fields[name], where)

    def build(self) -> list[Node]:
        """All nodes by position; to be called when no problem was found."""
        nodes: dict[int, Node] = {}
        for position in range(len(self._entries) - 1, -1, -1):
            entry = self._entries[position]
            single = {name: nodes[child] for name, child in entry.single.items()}
            several = {name: tuple(nodes[c] for c in kids) for name, kids in entry.several.items()}
            nodes[position] = entry.class_(**entry.values, **single, **several)
        return [nodes[position] for position in range(len(self._entries))]


def _node_to_json(root: Node) -> dict[str, Any]:
    """A tree of nodes, without recursion: objects first, sub-trees put in afterwards."""
    top: dict[str, Any] = {}
    stack: list[tuple[Node, dict[str, Any]]] = [(root, top)]
    while stack:
        node, target = stack.pop()
        op = _OPS[type(node)]
        target["op"] = op
        for name, kind in _NODES[op][1].items():
            value = getattr(node, name)
            if (op, name) in _DEFAULTS and _DEFAULTS[op, name] == value:
                continue
            match kind:
                case "node":
                    target[name] = {}
                case "nodes":
                    target[name] = [{} for _ in value]
                case "expression":
                    target[name] = expression_to_json(value)
                case "expressions":
                    target[name] = [expression_to_json(item) for item in value]
                case "element":
                    target[name] = value.text
                case "memory" | "order":
                    target[name] = value.value
                case _:
                    target[name] = value
        for path, child in children(node):
            name, _, index = path.partition("/")
            stack.append((child, target[name][int(index)] if index else target[name]))
    return top
