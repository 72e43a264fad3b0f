"""Rule vectorisation: which innermost maps may run as OpenCL vectors.

"Mapping Parallelism in a Functional IR through Constraint Satisfaction" (CC'22), section
3.3: accesses must differ by 1 between iterations. Width v must also divide the trip count.
Local memory alone may be written in larger steps: what one load brought is stored lane by lane.
Vectors are read and written with vload and vstore, which need the alignment of one element
only, so that no alignment is asked for (docs/decisions). What is read may have a padded border if
each vector lies wholly inside of it or wholly outside: v divides where the border is, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mapper.ast_model.index_expr import Expr, Monomial, Symbol
from mapper.ast_model.loop_nest import (
    Constant,
    Guard,
    Guarded,
    LaneSum,
    Load,
    Loop,
    LoopKernel,
    Operate,
    Statement,
    Store,
    Value,
    guards_of,
    loads,
)
from mapper.ast_model.types import Memory
from mapper.ast_model.views import LANE
from mapper.constraint_rules.owners import has_code
from mapper.constraint_rules.predicate import all_of, divides, implies, negate, term_of
from mapper.constraint_rules.rule import PARALLEL_MAPPING, Constraint, Provenance
from mapper.constraint_rules.runs import map_id
from mapper.schedule import VECTOR_CODES

RULE_ID = "vectorisation"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a map cannot be vectorised, and the buffer whose accesses forbid it."""

    reason: str
    buffer: str | None = None


WORKS_ON_VECTORS = Obstacle("it works on vectors already")


def produce(kernel: LoopKernel) -> Iterator[Constraint]:
    """One instance for each innermost map."""
    for loop in _innermost(kernel.statements):
        obstacle = why_not(loop)
        if obstacle is not None:
            predicate = negate(has_code(map_id(loop), VECTOR_CODES))
            sentence = f"map {loop.map_id} cannot be vectorised: {obstacle.reason}"
            remedy = "make it sequential or parallel"
            if obstacle.buffer is not None:
                remedy += ", or lay the buffer out along it"
        else:
            borders = _borders_of(loop)
            divided = [term_of(part, {}) for part in (loop.trip, *borders)]
            predicate = all_of(
                *(
                    implies(
                        has_code(map_id(loop), (code,)),
                        all_of(*(divides(int(code), part) for part in divided)),
                    )
                    for code in sorted(VECTOR_CODES)
                )
            )
            sentence = (
                f"the vector width must divide the trip count {loop.trip} of map {loop.map_id}"
            )
            if borders:
                places = ", ".join(map(str, borders))
                sentence += f" and the places of the padded border in what it reads: {places}"
            remedy = "choose a width that divides it"
        yield Constraint(
            id=f"{RULE_ID}/{loop.map_id}",
            rule=RULE_ID,
            subjects=(map_id(loop),),
            predicate=predicate,
            provenance=Provenance(PARALLEL_MAPPING, "3.3"),
            buffer=None if obstacle is None else obstacle.buffer,
            sentence=sentence,
            remedy=remedy,
        )


def _innermost(statements: tuple[Statement, ...]) -> Iterator[Loop]:
    for statement in statements:
        if isinstance(statement, Loop):
            inner = list(_maps_below(statement.body))
            if statement.map_id is not None and not inner:
                yield statement
            yield from _innermost(statement.body)


def _maps_below(statements: tuple[Statement, ...]) -> Iterator[Loop]:
    for statement in statements:
        if isinstance(statement, Loop):
            if statement.map_id is not None:
                yield statement
            yield from _maps_below(statement.body)


def why_not(loop: Loop) -> Obstacle | None:
    """What stands in the way of vectorising a map, or None."""
    for statement in loop.body:
        if not isinstance(statement, Store):
            return Obstacle("its body is more than one expression")
        if statement.lane is not None:
            return WORKS_ON_VECTORS
        if any(loop.variable.name in guard.index.names() for guard in statement.guards):
            return Obstacle("some of its results are cropped", statement.buffer.name)
        if not _unit_stride(statement.indices, loop.variable) and not _is_scattered(
            statement, loop.variable
        ):
            name = statement.buffer.name
            return Obstacle(f"its writes to {name} are not neighbours in memory", name)
        obstacle = _value_obstacle(statement.value, loop.variable)
        if obstacle is not None:
            return obstacle
    return None if loop.body else Obstacle("it is empty")


def _value_obstacle(value: Value, variable: Symbol) -> Obstacle | None:
    match value:
        case Constant():
            return None
        case Load():
            mentioned = any(variable.name in index.names() for index in value.indices)
            if mentioned and not _unit_stride(value.indices, variable):
                name = value.buffer.name
                return Obstacle(f"its reads of {name} are not neighbours in memory", name)
            if any(LANE in index.names() for index in value.indices):
                return WORKS_ON_VECTORS
            return None
        case Guarded():
            if _borders(value.guard, variable) is None:
                return Obstacle("some of what it reads lies in a padded border")
            return _value_obstacle(value.value, variable)
        case LaneSum():
            return WORKS_ON_VECTORS
        case Operate():
            for operand in value.operands:
                obstacle = _value_obstacle(operand, variable)
                if obstacle is not None:
                    return obstacle
            return None


def _borders_of(loop: Loop) -> tuple[Expr, ...]:
    """What a width has to divide for vectors that lie on one side of each border that is read."""
    found: dict[Expr, None] = {}
    for statement in loop.body:
        if isinstance(statement, Store):
            for guard in guards_of(statement.value):
                found |= dict.fromkeys(_borders(guard, loop.variable) or ())
    return tuple(found)


def _borders(guard: Guard, variable: Symbol) -> tuple[Expr, ...] | None:
    """What a width has to divide for vectors along the variable that lie on one side of a guard's
    ends: its limit, and in what steps other loops move a vector. None if no width does."""
    if variable.name not in guard.index.names():
        return ()
    parts = guard.index.coefficient(variable)
    if parts is None or parts[0] != 1:
        return None
    found: dict[Expr, None] = {}
    for monomial, factor in (*parts[1].terms, *guard.limit.terms):
        step: Monomial = ()
        for atom in monomial:
            if not isinstance(atom, Symbol):
                return None
            if atom.extent is None:
                step += (atom,)
        if not step and factor % 2:
            return None
        if step or factor % max(VECTOR_CODES):
            found[Expr(((step, factor),))] = None
    return tuple(found)


def _is_scattered(store: Store, variable: Symbol) -> bool:
    """Whether neighbours that are read are written to local memory, even steps apart: lane by lane,
    from one load."""
    along = [index for index in store.indices if variable.name in index.names()]
    if store.buffer.memory is not Memory.LOCAL or len(along) != 1:
        return False
    parts = along[0].coefficient(variable)
    return (
        parts is not None
        and variable.name not in parts[1].names()
        and any(_unit_stride(load.indices, variable) for load in loads(store.value))
    )


def _unit_stride(indices: tuple[Expr, ...], variable: Symbol) -> bool:
    """The variable occurs once, with factor 1, in the last index only."""
    if not indices or any(variable.name in index.names() for index in indices[:-1]):
        return False
    parts = indices[-1].coefficient(variable)
    return parts is not None and parts[0] == 1
