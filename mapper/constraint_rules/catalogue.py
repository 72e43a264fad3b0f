"""All rules over the nest of a kernel, in one order, and what they derive."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mapper.ast_model.nest import Nest, NestMap
from mapper.ast_model.nodes import MapId
from mapper.constraint_rules import (
    duplicate_scheduling,
    exhaustive_indexing,
    exhaustive_writes,
    local_hierarchy,
    local_sizes,
    no_mixing,
    private_memory_scoping,
    sequential_fusion,
    shared_memory_scoping,
    sibling_cross_group,
    sibling_synchronisability,
    thread_dimensionality,
)
from mapper.constraint_rules.kernel_context import KernelContext
from mapper.constraint_rules.rule import Constraint, Mode, Rule, RuleOptions
from mapper.errors import InputError, Problem
from mapper.schedule import PAPER_CODES, VECTOR_CODES, ScheduleCode

# The order of CC'22, Table 4, then what the paper lacks. A broken mapping is reported in this
# order, so the rule that names the cause best stands before those that it entails.
RULES: tuple[Rule, ...] = (
    *private_memory_scoping.RULES,
    *shared_memory_scoping.RULES,
    *no_mixing.RULES,
    *duplicate_scheduling.RULES,
    *thread_dimensionality.RULES,
    *local_hierarchy.RULES,
    *exhaustive_indexing.RULES,
    *exhaustive_writes.RULES,
    *sibling_cross_group.RULES,
    *sibling_synchronisability.RULES,
    *local_sizes.RULES,
    *sequential_fusion.RULES,
)

DEFAULT_OPTIONS = RuleOptions()


def contexts_of(nests: Nest | Sequence[Nest]) -> tuple[KernelContext, ...]:
    """The contexts of all kernels; InputError where kernels share a name or a map id."""
    items = (nests,) if isinstance(nests, Nest) else tuple(nests)
    contexts = tuple(KernelContext(nest) for nest in items)
    kernels: set[str] = set()
    kernel_of: dict[MapId, str] = {}
    problems: list[Problem] = []
    for context in contexts:
        name = context.nest.name
        if name in kernels:
            problems.append(Problem(name, "two kernels have one name", name))
        kernels.add(name)
        for map_id in context.map_ids:
            if map_id in kernel_of:
                problems.append(
                    Problem(f"{name}/{map_id}", "a map of another kernel has this id", str(map_id))
                )
            kernel_of[map_id] = name
    if problems:
        raise InputError(problems)
    return contexts


def derive(
    nests: Nest | Sequence[Nest],
    mode: Mode = Mode.STRICT,
    options: RuleOptions = DEFAULT_OPTIONS,
    extra: Iterable[Constraint] = (),
) -> tuple[Constraint, ...]:
    """Every constraint instance of the kernels, rule by rule, then the ``extra`` ones."""
    contexts = contexts_of(nests)
    found = [
        constraint
        for rule in RULES
        if mode in rule.modes
        for context in contexts
        for constraint in rule.produce(context, options)
    ]
    found.extend(extra)
    seen: set[str] = set()
    for constraint in found:
        if constraint.id in seen:
            raise ValueError(f"two constraints have the id {constraint.id}")
        seen.add(constraint.id)
    return tuple(found)


def code_domain(
    context: KernelContext,
    item: NestMap,
    mode: Mode = Mode.STRICT,
    options: RuleOptions = DEFAULT_OPTIONS,
) -> tuple[ScheduleCode, ...]:
    """The codes that a map may have at all, ascending.

    Fused is one of them only for a perfectly nested map. Vector codes are offered in strict
    mode for innermost maps of nests whose accesses are known: a bare tree cannot show that
    neighbouring iterations touch neighbouring elements.
    """
    codes = set(PAPER_CODES)
    if not context.perfect_run_above(item.id):
        codes.discard(ScheduleCode.FUSED)
    known = context.nest.known_buffers and not item.nested
    if mode is Mode.STRICT and options.vectorise and known:
        codes |= VECTOR_CODES
    return tuple(sorted(codes))
