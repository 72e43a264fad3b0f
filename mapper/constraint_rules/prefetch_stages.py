"""What memory a reduce with ``prefetch`` takes: registers that it loads ahead into, second buffers.

The generator (:mod:`mapper.kernel_gen.prefetch`) keeps in registers what one work-item copies
to local memory for the next iteration. Which statements are such copies depends on the codes.
With 2 all local buffers of the reduce's body are there twice
(:mod:`mapper.kernel_gen.double_buffers`).
"""

from __future__ import annotations

from collections.abc import Iterator

from mapper.ast_model.loop_nest import Declare, Loop, LoopKernel, Role, Statement, Store, loads
from mapper.ast_model.nodes import Relation
from mapper.ast_model.types import Memory
from mapper.constraint_rules.owners import has_code, is_fused
from mapper.constraint_rules.predicate import (
    IntConst,
    IntTerm,
    LocalSizeVariable,
    Predicate,
    add,
    all_of,
    any_of,
    compare,
    floor_divide,
    multiply,
    negate,
    select,
    term_of,
)
from mapper.constraint_rules.runs import map_id
from mapper.schedule import DIMENSIONS, PARALLEL_CODES

#: Of a copy whose maps do not run as one a work-item may load so many floats more ahead than its
#: equal share.
MORE_THAN_A_SHARE = 8


def local_copies(loops: tuple[Loop, ...]) -> IntTerm:
    """How many copies of a local buffer declared under these loops its iterations use in turns."""
    if not loops or loops[-1].prefetch is None or loops[-1].prefetch.constant in (0, 1):
        return IntConst(1)
    reduce = loops[-1]
    assert reduce.prefetch is not None
    doubled = all_of(
        compare(Relation.EQ, term_of(reduce.prefetch, {}), 2),
        compare(Relation.GT, term_of(reduce.trip, {}), 1),
    )
    return select(doubled, 2, 1)


def stages(kernel: LoopKernel) -> Iterator[tuple[tuple[Loop, ...], IntTerm]]:
    """The loops from the outermost to each reduce that may load ahead, and the bytes that a
    work-item keeps then."""
    yield from _below(kernel, kernel.statements, ())


def _below(
    kernel: LoopKernel, statements: tuple[Statement, ...], around: tuple[Loop, ...]
) -> Iterator[tuple[tuple[Loop, ...], IntTerm]]:
    for statement in statements:
        if not isinstance(statement, Loop):
            continue
        loops = (*around, statement)
        if statement.prefetch is not None and statement.prefetch != 0:
            copies = list(_copies(statement))
            if copies:
                yield loops, _bytes(kernel.name, statement, copies)
        yield from _below(kernel, statement.body, loops)


def _copies(reduce: Loop) -> Iterator[tuple[Loop, ...]]:
    """Maps around one store from inputs to local memory, before anything else is done."""
    for statement in reduce.body:
        if isinstance(statement, Declare) and statement.buffer.memory is not Memory.PRIVATE:
            continue
        chain = _chain(statement)
        if chain is None:
            return
        yield chain


def _chain(statement: Statement) -> tuple[Loop, ...] | None:
    chain: list[Loop] = []
    while isinstance(statement, Loop) and statement.map_id is not None and len(statement.body) == 1:
        chain.append(statement)
        statement = statement.body[0]
    if not chain or not isinstance(statement, Store) or statement.guards:
        return None
    sources = [load.buffer.role for load in loads(statement.value)]
    copies = bool(sources) and all(role is Role.INPUT for role in sources)
    return tuple(chain) if copies and statement.buffer.memory is Memory.LOCAL else None


def _bytes(kernel: str, reduce: Loop, copies: list[tuple[Loop, ...]]) -> IntTerm:
    """Bytes that a work-item keeps of all copies; 0 where the reduce does not load ahead."""
    assert reduce.prefetch is not None
    elements: dict[int, list[IntTerm]] = {}
    # A copy that is not shared out ends what is loaded ahead.
    wanted: list[Predicate] = [
        compare(Relation.NE, term_of(reduce.prefetch, {}), 0),
        compare(Relation.GT, term_of(reduce.trip, {}), 1),
    ]
    for chain in copies:
        wanted.append(_shared_out_once(chain))
        share = _share_of_a_work_item(kernel, chain)
        more = select(_is_one_run(chain), 0, MORE_THAN_A_SHARE)
        (store,) = chain[-1].body
        assert isinstance(store, Store)
        kept = elements.setdefault(store.buffer.dtype.held.bytes, [])
        kept.append(select(all_of(*wanted), add(share, more), 0))
    return add(*(multiply(size, add(*terms)) for size, terms in elements.items()))


def _is_one_run(chain: tuple[Loop, ...]) -> Predicate:
    """All maps but the first are fused."""
    return all_of(*(is_fused(map_id(loop)) for loop in chain[1:]))


def _shared_out_once(chain: tuple[Loop, ...]) -> Predicate:
    """Exactly one of the maps has a parallel code of its own."""
    parallel = [has_code(map_id(loop), PARALLEL_CODES) for loop in chain]
    return any_of(
        *(
            all_of(one, *(negate(other) for other in parallel if other is not one))
            for one in parallel
        )
    )


def _share_of_a_work_item(kernel: str, chain: tuple[Loop, ...]) -> IntTerm:
    """The most elements of a copy that a work-item loads ahead.

    They are an equal share where all maps of the copy run as one over all work-items. Otherwise
    they may be more, and the generator loads ahead only up to what is allowed here: said exactly,
    codes, sizes and parameters would meet in one term, and to draw mappings would take thirty
    times as long.
    """
    elements = multiply(*(term_of(loop.trip, {}) for loop in chain))
    size = multiply(*(LocalSizeVariable(kernel, dimension) for dimension in DIMENSIONS))
    return floor_divide(add(elements, size, -1), size)
