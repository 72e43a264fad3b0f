"""How deeply what an expression becomes is nested."""

from __future__ import annotations

from mapper.constraint_rules.predicate import IntTerm, Predicate, subterms
from mapper.errors import LimitError, Problem

# Of predicates and terms within one another: whoever evaluates them recurs so deep.
MAX_LEVELS = 100


def check_levels(predicate: Predicate) -> None:
    """LimitError for a predicate nested so deeply that evaluating it could fail."""
    # So few parts cannot be nested deeper, and most predicates have few.
    stack: list[Predicate | IntTerm] = [predicate]
    for _ in range(MAX_LEVELS):
        if not stack:
            return
        stack += subterms(stack.pop())
    level: list[Predicate | IntTerm] = [predicate]
    for _ in range(MAX_LEVELS):
        level = list({id(part): part for item in level for part in subterms(item)}.values())
        if not level:
            return
    raise too_deep()


def too_deep() -> LimitError:
    """What to raise for such a predicate."""
    return LimitError(
        Problem("", "what the expression becomes is nested too deeply", "",
                f"{MAX_LEVELS} levels", "several constraints: all must hold")
    )  # fmt: skip
