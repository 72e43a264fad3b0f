"""Rule exhaustive-indexing."""

from __future__ import annotations

import pytest

from mapper.ast_model.nest import Nest
from mapper.ast_model.types import Memory
from mapper.constraint_rules.rule import Mode, RuleOptions
from tests.unit.constraint_rules.nests import broken, nest, tree_map

TREE = nest(tree_map("A", tree_map("B", memory="g>p"), tree_map("C")))


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("codes", ["A=S B=S C=G0", "A=G0 B=S C=G1"])
def test_a_dimension_used_in_one_chain_is_used_in_all(mode: Mode, codes: str):
    assert "exhaustive-indexing" in broken(TREE, codes, mode)
    assert broken(TREE, "A=G0 B=S C=S", mode) == set()


def test_private_chains_may_be_replicated():
    options = RuleOptions(replicate_private=True)
    assert broken(TREE, "A=S B=S C=G0", options=options) == set()
    assert broken(TREE, "A=S B=S C=G0", Mode.PAPER, options) == {"exhaustive-indexing"}


def test_a_write_under_no_map_forbids_all_parallelism():
    tree = Nest("k", (tree_map("A"),), (Memory.GLOBAL,))
    assert broken(tree, "A=G0") == {"exhaustive-indexing", "exhaustive-writes"}
    assert broken(tree, "A=S") == set()
