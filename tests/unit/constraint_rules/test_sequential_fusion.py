"""Rule sequential-fusion, the heuristic."""

from __future__ import annotations

import pytest

from mapper.constraint_rules.rule import Mode, RuleOptions
from tests.unit.constraint_rules.nests import broken, nest, tree_map

RUN = nest(tree_map("A", tree_map("B", tree_map("C", perfect=True), perfect=True)))


@pytest.mark.parametrize("mode", Mode)
def test_one_sequential_map_in_a_perfect_run(mode: Mode):
    assert broken(RUN, "A=S B=F C=F", mode) == set()
    assert broken(RUN, "A=S B=S C=F", mode) == {"sequential-fusion"}
    # Transitive: the outermost and the innermost are one run too.
    assert broken(RUN, "A=S B=F C=S", mode) == {"sequential-fusion"}
    assert broken(RUN, "A=S B=S C=S", mode, RuleOptions(sequential_fusion=False)) == set()
