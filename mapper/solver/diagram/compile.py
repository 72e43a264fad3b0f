"""A space as a decision diagram: exact counts, uniform samples, all solutions.

Complements CP-SAT, which serves for objectives, repair, explanation and what does not
decompose. Nothing here knows what a variable means.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mapper.constraint_rules.evaluation import evaluate
from mapper.constraint_rules.predicate import (
    And,
    CodeVariable,
    ParameterVariable,
    Predicate,
    Variable,
    variables,
)
from mapper.errors import LimitError, Problem
from mapper.solver.diagram.automaton import build_automaton
from mapper.solver.diagram.bit_sweep import bit_sweep
from mapper.solver.diagram.elimination import Elimination, plan
from mapper.solver.diagram.events import EventCompiler, NotBooleanError, reordered, scopes_of
from mapper.solver.diagram.expression import Graph
from mapper.solver.diagram.factors import (
    NO_SOLUTION,
    DiagramFactor,
    EliminatedFactor,
    Factor,
    Factors,
    FreeFactor,
)
from mapper.solver.diagram.grid import MOST_AXES, Grid, TooManyCombinationsError
from mapper.solver.diagram.layers import Diagram, Layer
from mapper.solver.diagram.order import Strategy, bits, decide_order, group_order, groups_of
from mapper.solver.diagram.sweep import TooManyArcsError, sweep
from mapper.solver.limits import Watch
from mapper.solver.space import Space

_Entry = tuple[Variable, tuple[int, ...]]
_FIRST_ARCS = 1 << 20
_MORE_ARCS = 4
_NOBODY = ParameterVariable("")
_NOTHING: Mapping[Variable, int] = {}


def compile_space(space: Space, watch: Watch | None = None) -> Diagram | Factors:
    """All solutions of a space: one diagram where there are codes, else independent factors.

    LimitError past the limits of ``watch``; Cancelled if it is told to stop.
    """
    watch = watch or Watch()
    if any(isinstance(variable, CodeVariable) for variable, _ in space.variables):
        return compile_diagram(space, watch)
    return compile_factors(space, watch)


def compile_diagram(space: Space, watch: Watch) -> Diagram:
    """One diagram of all solutions, by the automaton of codes where that serves."""
    if any(isinstance(variable, CodeVariable) for variable, _ in space.variables):
        try:
            return compile_codes(space, watch)
        except NotBooleanError:
            pass
    return compile_arithmetic(space, watch)


def compile_factors(space: Space, watch: Watch) -> Factors:
    """Each group of tied variables on its own: by elimination where arrays over its constraints
    are small, else by a diagram."""
    fixed = {variable: domain[0] for variable, domain in space.variables if len(domain) == 1}
    entries = [entry for entry in space.variables if len(entry[1]) > 1]
    demands = [part for c in space.constraints for part in conjuncts(c.predicate)]
    names = [variable for variable, _ in space.variables]
    factors: list[Factor] = []
    for own, inside in _small_parts(entries, demands):
        found = _factors_of(own, fixed, inside, space, watch)
        if found is None:
            return Factors([NO_SOLUTION], names, fixed)
        factors += found
    return Factors(factors, names, fixed)


def _small_parts(
    entries: list[_Entry], demands: list[Predicate]
) -> Iterator[tuple[list[_Entry], list[Predicate]]]:
    """Parts of a space that nothing ties together; the whole if it has few variables."""
    if len(entries) <= MOST_AXES:
        yield entries, demands
        return
    places = {variable: place for place, (variable, _) in enumerate(entries)}
    scopes = [_scope(demand, places) for demand in demands]
    yield [], [demand for demand, scope in zip(demands, scopes, strict=True) if not scope]
    for group in groups_of(len(entries), [scope for scope in scopes if scope]):
        own = [entries[place] for place in bits(group)]
        yield own, [d for d, scope in zip(demands, scopes, strict=True) if scope & group]


def _scope(predicate: Predicate, places: Mapping[Variable, int]) -> int:
    return sum(1 << places[name] for name in variables(predicate) if name in places)


def _factors_of(
    entries: Sequence[_Entry],
    fixed: Mapping[Variable, int],
    demands: Sequence[Predicate],
    space: Space,
    watch: Watch,
) -> list[Factor] | None:
    """The factors of variables of which ``demands`` speak, and nothing else does; None if a
    demand cannot be met."""
    names = [variable for variable, _ in entries]
    domains = [domain for _, domain in entries]
    places = {variable: place for place, variable in enumerate(names)}
    grid = Grid(domains, places, fixed)
    tied: list[tuple[Predicate, Any, int]] = []
    for demand in demands:
        watch.tick()
        try:
            if len(names) > MOST_AXES:
                raise TooManyCombinationsError
            truth, scope = grid.truth(demand)
        except TooManyCombinationsError:
            truth, scope = None, _scope(demand, places)
            if not scope:
                truth = evaluate(demand, fixed)
        _refuse_large(grid.parts, watch)
        if scope:
            tied.append((demand, truth, scope))
        elif not truth:
            return None
    sizes = [len(domain) for domain in domains]
    found: list[Factor] = []
    for group in groups_of(len(names), [scope for _, _, scope in tied]):
        inside = [item for item in tied if item[2] & group]
        if not inside:
            (place,) = bits(group)
            found.append(FreeFactor(names[place], domains[place]))
            continue
        arrays = [truth for _, truth, _ in inside if truth is not None]
        steps = None
        if len(arrays) == len(inside):
            steps = plan(group, [scope for _, _, scope in inside], sizes)
        if steps is not None:
            found.append(EliminatedFactor(Elimination(steps, arrays, sizes, watch), names, domains))
            continue
        own = [names[place] for place in bits(group)]
        # A demand may mention another variable though it holds for all of its values alike.
        seen = {name: domain[:1] for name, domain in space.variables}
        seen.update((names[place], domains[place]) for place in bits(group))
        found.append(DiagramFactor(_swept(own, seen, [d for d, _, _ in inside], watch)))
    return found


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
    """One diagram by sweeping over partial values of the constraints' terms.

    The variables in ``first`` are decided first.
    """
    fixed = {variable: domain[0] for variable, domain in space.variables if len(domain) == 1}
    names = [variable for variable, _ in space.variables]
    demands = (part for c in space.constraints for part in conjuncts(c.predicate))
    return _swept(names, space.domains, demands, watch, first, fixed)


def _swept(
    names: list[Variable],
    domains: dict[Variable, tuple[int, ...]],
    demands: Iterable[Predicate],
    watch: Watch,
    first: Collection[Variable] = (),
    fixed: Mapping[Variable, int] = _NOTHING,
) -> Diagram:
    open_names = [variable for variable in names if variable not in fixed]
    graph = Graph(domains, open_names)
    roots: list[int] = []
    for demand in demands:
        watch.tick()
        roots.append(graph.enter(demand))
        _refuse_large(len(graph.nodes), watch)
    # What holds anyway would only tie variables together.
    roots = [root for root in dict.fromkeys(roots) if not graph.nodes[root].low]
    if any(not graph.nodes[root].high for root in roots):
        return empty_diagram(names, dict(fixed))
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
            return Diagram(layers, names, dict(fixed))
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
