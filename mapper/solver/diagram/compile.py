"""A space as a decision diagram: exact counts, uniform samples, all solutions.

Complements CP-SAT, which serves for objectives, repair, explanation and what does not
decompose. Nothing here knows what a variable means.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from mapper.constraint_rules.predicate import (
    And,
    CodeVariable,
    ParameterVariable,
    Predicate,
    Variable,
)
from mapper.errors import LimitError, Problem
from mapper.solver.diagram.automaton import build_automaton
from mapper.solver.diagram.bit_sweep import bit_sweep
from mapper.solver.diagram.events import EventCompiler, NotBooleanError, reordered, scopes_of
from mapper.solver.diagram.expression import Graph
from mapper.solver.diagram.layers import Diagram, Layer
from mapper.solver.diagram.order import Strategy, decide_order, group_order
from mapper.solver.diagram.sweep import TooManyArcsError, sweep
from mapper.solver.limits import Watch
from mapper.solver.space import Space

_FIRST_ARCS = 1 << 20
_MORE_ARCS = 4
_NOBODY = ParameterVariable("")


def compile_space(
    space: Space, watch: Watch | None = None, first: Collection[Variable] = ()
) -> Diagram:
    """The diagram of all solutions of a space, deciding the variables in ``first`` first.

    LimitError past the limits of ``watch``; Cancelled if it is told to stop.
    """
    watch = watch or Watch()
    if not first and any(isinstance(variable, CodeVariable) for variable, _ in space.variables):
        try:
            return compile_codes(space, watch)
        except NotBooleanError:
            pass
    return compile_arithmetic(space, watch, first)


def compile_codes(space: Space, watch: Watch) -> Diagram:
    """By the automaton of what breaks a constraint; NotBooleanError where that does not serve."""
    names = [variable for variable, _ in space.variables]
    domains = space.domains
    compiler = EventCompiler(domains, names)
    events = compiler.compile([constraint.predicate for constraint in space.constraints])
    _refuse_large(compiler.size, watch)
    places = group_order(len(names), scopes_of(events))
    order = [names[place] for place in places]
    automaton = build_automaton(reordered(events, places), len(order))
    if automaton is None:
        return empty_diagram(names, {})
    allowed = [events.allowed[place] for place in places]
    layers, _ = bit_sweep(automaton, order, [domains[v] for v in order], allowed, watch)
    return Diagram(layers, names, {})


def compile_arithmetic(space: Space, watch: Watch, first: Collection[Variable] = ()) -> Diagram:
    """By sweeping over partial values of the constraints' terms."""
    domains = space.domains
    fixed = {variable: domain[0] for variable, domain in space.variables if len(domain) == 1}
    names = [variable for variable, _ in space.variables]
    open_names = [variable for variable in names if variable not in fixed]
    graph = Graph(domains, open_names)
    roots: list[int] = []
    for constraint in space.constraints:
        for predicate in conjuncts(constraint.predicate):
            roots.append(graph.enter(predicate))
        _refuse_large(len(graph.nodes), watch)
    # What holds anyway would only tie variables together.
    roots = [root for root in dict.fromkeys(roots) if not graph.nodes[root].low]
    if any(not graph.nodes[root].high for root in roots):
        return empty_diagram(names, fixed)
    scopes = [graph.nodes[root].scope for root in roots]
    sizes = [len(domains[variable]) for variable in open_names]
    # No order is good for every space, so they race: each gets a number of arcs, then more.
    allowed = _FIRST_ARCS
    while True:
        for strategy in Strategy:
            order = decide_order(sizes, scopes, strategy)
            order.sort(key=lambda place: open_names[place] not in first)
            ordered = [open_names[place] for place in order]
            graph.reorder(ordered)
            try:
                layers = sweep(graph, roots, [domains[v] for v in ordered], watch, allowed)
            except TooManyArcsError:
                continue
            return Diagram(layers, names, fixed)
        allowed *= _MORE_ARCS


def empty_diagram(names: list[Variable], fixed: dict[Variable, int]) -> Diagram:
    """The diagram without a solution."""
    none = np.zeros(0, np.int32)
    # One layer without arcs, of whatever variable: the root leads nowhere.
    variable = next((name for name in names if name not in fixed), _NOBODY)
    return Diagram([Layer(variable, (0,), 1, 0, none, none, none)], names, fixed)


def conjuncts(predicate: Predicate) -> Iterator[Predicate]:
    """What a predicate demands, part by part."""
    if isinstance(predicate, And):
        for part in predicate.parts:
            yield from conjuncts(part)
    else:
        yield predicate


def _refuse_large(nodes: int, watch: Watch) -> None:
    limit = watch.limits.expression_nodes
    if limit is not None and nodes > limit:
        raise LimitError(
            Problem("", "the constraints are too large", f"over {limit} parts", f"at most {limit}")
        )
