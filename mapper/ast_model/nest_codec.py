"""Bare nest trees as JSON (``nestmap/nest/1``), as in ``examples/cc22_convolution_tree.json``.

A tree says which maps nest in which and what memories they use; mappings and constraints
are answered for it, kernels are not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from mapper.ast_model.bounded_json import check_depth, kind_of, loads_bounded, object_keys, pointer
from mapper.ast_model.codec import expression_to_json
from mapper.ast_model.index_expr import Expr, const
from mapper.ast_model.json_reader import JsonReader
from mapper.ast_model.nest import Nest, NestMap
from mapper.ast_model.nodes import MapId, Relation, Requirement
from mapper.ast_model.text_form import parse_requirement
from mapper.ast_model.types import Memory
from mapper.errors import InputError, Problem

NEST_SCHEMA = "nestmap/nest/1"
MAX_MAPS = 10_000
_TOP_FIELDS = ("name", "source", "symbols", "divides", "note", "golden", "schema")
_NODE_FIELDS = ("id", "trip", "reads", "writes", "perfectly_nested", "nested")


@dataclass(frozen=True, slots=True)
class NestDocument:
    """A nest tree, what its file requires of the symbols, and what they stand for."""

    nest: Nest
    requirements: tuple[Requirement, ...] = ()
    symbols: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class _Entry:
    """A map under way; the id -1 says that a problem with the id was reported."""

    id: MapId = -1
    trip: Expr = field(default_factory=lambda: const(1))
    reads: frozenset[Memory] = frozenset()
    writes: Memory = Memory.GLOBAL
    perfectly_nested: bool = False
    leaf_writes: tuple[Memory, ...] | None = None
    reads_constants: bool = False
    nested: list[int] = field(default_factory=list[int])


def nest_from_json(value: object) -> NestDocument:
    """The nest of a JSON text (str or bytes) or of a JSON value.

    ``tree`` is one map or a list of them. A map with nothing nested writes its ``writes``;
    the optional ``leaf_writes`` says what others write under no further map, and
    ``reads_constants`` that the argument is a constant. Raises InputError with all problems.
    """
    if isinstance(value, str | bytes):
        value = loads_bounded(value)
    check_depth(value)
    reader = JsonReader()
    top = reader.object(value, "", ("tree",), _TOP_FIELDS)
    reader_top = top or {}
    if reader_top.get("schema", NEST_SCHEMA) != NEST_SCHEMA:
        reader.fail("/schema", "another schema", kind_of(reader_top["schema"]), NEST_SCHEMA)
    for name in ("name", "source", "note"):
        reader.text(reader_top.get(name, ""), f"/{name}")
    symbols = _read_symbols(reader, reader_top.get("symbols", {}))
    requirements = reader.items(
        reader_top.get("divides", []), "/divides", lambda item, path: _divides(reader, item, path)
    )
    names = frozenset(name for name, _ in symbols) if "symbols" in reader_top else None
    if "tree" not in reader_top:
        reader.finish()
    entries, roots = _read_tree(reader, reader_top.get("tree"), names)
    reader.finish()
    nest = Nest(str(reader_top.get("name", "nest")), _build(entries, roots))
    return NestDocument(nest, requirements, symbols)


def nest_to_json(document: NestDocument | Nest) -> dict[str, Any]:
    """The JSON value of a nest; :func:`nest_from_json` gives it back.

    What only a program's nest knows (``root_writes``, ``known_buffers``) is left out.
    """
    if isinstance(document, Nest):
        document = NestDocument(document)
    trees: list[dict[str, Any]] = []
    stack = [(root, trees) for root in reversed(document.nest.roots)]
    while stack:
        current, siblings = stack.pop()
        nested: list[dict[str, Any]] = []
        tree: dict[str, Any] = {
            "id": current.id,
            "trip": expression_to_json(current.trip),
            "reads": sorted(memory.value for memory in current.reads),
            "writes": current.writes.value,
            "perfectly_nested": current.perfectly_nested,
            "nested": nested,
        }
        if current.leaf_writes != _default_leaf_writes(current.writes, bool(current.nested)):
            tree["leaf_writes"] = [memory.value for memory in current.leaf_writes]
        if current.reads_constants:
            tree["reads_constants"] = True
        siblings.append(tree)
        stack += [(inner, nested) for inner in reversed(current.nested)]
    result: dict[str, Any] = {"schema": NEST_SCHEMA, "name": document.nest.name}
    if document.symbols:
        result["symbols"] = dict(document.symbols)
    if document.requirements:
        result["divides"] = [f"{r.left}|{r.right}" for r in document.requirements]
    result["tree"] = trees[0] if len(trees) == 1 else trees
    return result


def _default_leaf_writes(writes: Memory, has_nested: bool) -> tuple[Memory, ...]:
    return () if has_nested else (writes,)


def _read_symbols(reader: JsonReader, value: object) -> tuple[tuple[str, str], ...]:
    fields = reader.object(value, "/symbols", (), object_keys(value)) or {}
    read = [(name, reader.text(text, pointer("/symbols", name))) for name, text in fields.items()]
    return tuple((name, text) for name, text in read if text is not None)


def _divides(reader: JsonReader, item: object, path: str) -> Requirement | None:
    requirement = reader.parsed(item, path, parse_requirement)
    if requirement is not None and requirement.relation is not Relation.DIVIDES:
        reader.fail(path, "says nothing about division", kind_of(item), "a|b")
        return None
    return requirement


def _read_tree(
    reader: JsonReader, value: object, names: frozenset[str] | None
) -> tuple[list[_Entry], list[int]]:
    """All maps, outer before inner, and the positions of the roots."""
    entries: list[_Entry] = []
    roots: list[int] = []
    paths: dict[str, str] = {}
    lone = not isinstance(value, list)
    trees = [value] if lone else cast(list[object], value)
    if not trees:
        reader.fail("/tree", "the tree has no maps", "an empty list", "a map or a list of maps")
    stack = [
        (tree, "/tree" if lone else pointer("/tree", index), roots)
        for index, tree in enumerate(trees)
    ][::-1]
    while stack:
        raw, path, siblings = stack.pop()
        if len(entries) >= MAX_MAPS:
            raise InputError(Problem("/tree", "the tree has too many maps", f"more than {MAX_MAPS}",
                                     f"{MAX_MAPS} maps"))  # fmt: skip
        entry = _Entry()
        siblings.append(len(entries))
        entries.append(entry)
        inner = _read_map(reader, raw, path, entry, names)
        known = paths.setdefault(str(entry.id), path) if entry.id != -1 else path
        if known != path:
            reader.fail(pointer(path, "id"), "the map id is taken", f"{entry.id} at {known}",
                        "each id once")  # fmt: skip
        if entry.perfectly_nested and siblings is roots:
            reader.fail(pointer(path, "perfectly_nested"), "an outermost map is nested in none",
                        "true", "false")  # fmt: skip
        stack += [
            (item, pointer(pointer(path, "nested"), index), entry.nested)
            for index, item in enumerate(inner)
        ][::-1]
    return entries, roots


def _read_map(
    reader: JsonReader, raw: object, path: str, entry: _Entry, names: frozenset[str] | None
) -> list[object]:
    """Reads a map's own fields into ``entry``; what is nested in it comes back as it is."""
    fields = reader.object(raw, path, _NODE_FIELDS, ("leaf_writes", "reads_constants"))
    if fields is None:
        return []
    inner = reader.list(fields.get("nested", []), pointer(path, "nested"))
    if "id" in fields:
        read_id = reader.id(fields["id"], pointer(path, "id"))
        entry.id = -1 if read_id is None else read_id
    if "trip" in fields:
        entry.trip = _trip(reader, fields["trip"], pointer(path, "trip"), names)
    reads = fields.get("reads", [])
    entry.reads = frozenset(reader.items(reads, pointer(path, "reads"), reader.memory))
    if "writes" in fields:
        writes = reader.memory(fields["writes"], pointer(path, "writes"))
        entry.writes = writes or Memory.GLOBAL
    if "perfectly_nested" in fields:
        where = pointer(path, "perfectly_nested")
        entry.perfectly_nested = reader.flag(fields["perfectly_nested"], where) or False
    where = pointer(path, "reads_constants")
    entry.reads_constants = reader.flag(fields.get("reads_constants", False), where) or False
    if "leaf_writes" in fields:
        where = pointer(path, "leaf_writes")
        entry.leaf_writes = reader.items(fields["leaf_writes"], where, reader.memory)
    return inner


def _trip(reader: JsonReader, value: object, path: str, names: frozenset[str] | None) -> Expr:
    trip = reader.expression(value, path)
    if trip is None:
        return const(1)
    if trip.constant is not None and trip.constant < 1:
        reader.fail(path, "a map runs at least once", str(trip), "1 or more")
    unknown = trip.names() - names if names is not None else frozenset[str]()
    if unknown:
        known = ", ".join(sorted(names or ()))
        reader.fail(path, "a name is not among the symbols", ", ".join(sorted(unknown)), known)
    return trip


def _build(entries: list[_Entry], roots: list[int]) -> tuple[NestMap, ...]:
    """Inner maps stand after outer ones, so they are built backward."""
    maps: dict[int, NestMap] = {}
    for position in range(len(entries) - 1, -1, -1):
        entry = entries[position]
        leaf_writes = entry.leaf_writes
        if leaf_writes is None:
            leaf_writes = _default_leaf_writes(entry.writes, bool(entry.nested))
        maps[position] = NestMap(
            entry.id,
            entry.trip,
            entry.reads,
            entry.writes,
            entry.perfectly_nested,
            tuple(maps[inner] for inner in entry.nested),
            leaf_writes,
            entry.reads_constants,
        )
    return tuple(maps[root] for root in roots)
