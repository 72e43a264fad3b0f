"""Rule algorithmic: what the types demand of sizes and tuning parameters.

"Auto-Generation of Specialized Direct Convolutions for Mobile GPUs" (GPGPU'20), section
5.2: ``split`` and ``asVector`` divide, tiling ``slide`` leaves nothing over. The paper's
formula for slideStrict is a misprint; the condition here is that the step divides
n - (size - step).
"""

from __future__ import annotations

from collections.abc import Iterator

from mapper.ast_model.obligations import Obligation
from mapper.constraint_rules.predicate import compare, term_of
from mapper.constraint_rules.rule import Constraint, Provenance

RULE_ID = "algorithmic"
GPGPU20 = "Auto-Generation of Specialized Direct Convolutions for Mobile GPUs (GPGPU'20)"


def produce(obligations: tuple[Obligation, ...], sizes: dict[str, int]) -> Iterator[Constraint]:
    """One instance for each different condition."""
    seen: set[str] = set()
    for obligation in obligations:
        text = str(obligation)
        if text in seen:
            continue
        seen.add(text)
        yield Constraint(
            id=f"{RULE_ID}/{obligation.rule}/{len(seen)}",
            rule=RULE_ID,
            subjects=(),
            predicate=compare(
                obligation.relation,
                term_of(obligation.left, sizes),
                term_of(obligation.right, sizes),
            ),
            provenance=Provenance(GPGPU20, "5.2"),
            buffer=None,
            sentence=f"{obligation.sentence}: {text}",
            remedy="choose other tuning parameters, or more optimisational padding",
        )
