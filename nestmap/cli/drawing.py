"""A mapping drawn on the nest tree that it maps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mapper.ast_model.nest import Nest, NestMap
from mapper.ast_model.specialise import size_values
from mapper.constraint_rules.predicate import (
    CodeVariable,
    LocalSizeVariable,
    ParameterVariable,
    Variable,
    value_text,
)
from mapper.pipeline import Subject
from mapper.schedule import DIMENSIONS, code_name
from nestmap.cli.output import mapping_fields, write_table, write_text

# Deeper maps stand no further right, so that the table stays a table.
MAX_INDENT = 24
COLUMNS = ("map", "schedule", "trip count", "reads", "writes")


def write_mapping(subject: Subject, assignment: Mapping[Variable, int], title: str) -> None:
    """The nest tree of each kernel with schedules and trip counts, then what else was chosen."""
    parameters = {v.name: n for v, n in assignment.items() if isinstance(v, ParameterVariable)}
    write_text(title)
    if parameters:
        shown = {v.name: value_text(v, assignment[v]) for v in assignment
                 if isinstance(v, ParameterVariable)}  # fmt: skip
        write_text(f"parameters: {mapping_fields(shown)}")
    known = dict(parameters)
    if subject.program is not None:
        known |= size_values(subject.program)
    for nest in subject.nests:
        sizes = [assignment.get(LocalSizeVariable(nest.name, d)) for d in DIMENSIONS]
        chosen = "" if None in sizes else f", local size {' x '.join(map(str, sizes))}"
        rows = (
            (
                f"{'  ' * min(depth, MAX_INDENT)}{item.id}",
                code_name(assignment[CodeVariable(item.id)]),
                item.trip.substitute(known),
                ", ".join(sorted(memory.value for memory in item.reads)),
                item.writes.value,
            )
            for item, depth in walk(nest)
        )
        write_table(COLUMNS, rows, f"kernel {nest.name}{chosen}")


def walk(nest: Nest) -> Iterator[tuple[NestMap, int]]:
    """Every map, outer before inner, with its depth."""
    stack = [(root, 0) for root in reversed(nest.roots)]
    while stack:
        item, depth = stack.pop()
        yield item, depth
        stack += [(inner, depth + 1) for inner in reversed(item.nested)]
