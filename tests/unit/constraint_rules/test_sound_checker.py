"""Programs that a sound checker rejects, and some that it accepts, as bare nest trees."""

from __future__ import annotations

from mapper.ast_model.index_expr import ExprLike, symbol
from mapper.ast_model.nest import Nest
from mapper.constraint_rules.rule import RuleOptions
from tests.unit.constraint_rules.nests import broken, nest, tree_map


def test_a_sequential_nest_that_writes_local_memory():
    tree = nest(tree_map("A", tree_map("B", memory="g>l"), tree_map("C", memory="l>g")))
    assert broken(tree, "A=S B=S C=S") == {"shared-memory-scoping"}


def test_a_global_map_in_a_work_group():
    tree = nest(tree_map("A", tree_map("B", tree_map("C"))))
    assert broken(tree, "A=W0 B=L0 C=G0") == {"no-mixing"}


def test_a_work_group_in_a_global_map():
    tree = nest(tree_map("A", tree_map("B", tree_map("C"))))
    assert broken(tree, "A=G0 B=W0 C=L0") == {"no-mixing"}


def test_two_top_level_nests_with_a_transposition_between():
    tree = nest(tree_map("D", tree_map("E")), tree_map("B", tree_map("C")))
    assert broken(tree, "D=G1 E=G0 B=G1 C=G0") == {"cross-group-dependence"}


def test_a_reduction_into_a_local_accumulator_by_all_threads():
    tree = nest(
        tree_map("A", tree_map("B", memory="g>l"), tree_map("R", memory="l>l"), memory="g>l")
    )
    assert broken(tree, "A=W0 B=L0 R=S") >= {"exhaustive-writes"}


def test_a_write_beside_nested_maps():
    tree = nest(tree_map("A", tree_map("B"), leaf="l"))
    assert broken(tree, "A=W0 B=L0") >= {"exhaustive-writes"}


def _barrier_under_local(trip: ExprLike) -> Nest:
    inner = (tree_map("P", memory="g>l"), tree_map("Q", memory="l>g"))
    return nest(tree_map("A", tree_map("B", tree_map("C", *inner, trip=trip))))


def test_a_barrier_under_a_ragged_local_loop():
    tree, mapping = _barrier_under_local(6), "A=W0 B=W1 C=L0 P=L1 Q=L1"
    assert broken(tree, mapping, local=(4, 4, 1)) == {"synchronisability"}
    assert broken(tree, mapping, local=(3, 4, 1)) == set()


def test_a_barrier_under_a_local_loop_of_unknown_length():
    tree, mapping = _barrier_under_local(symbol("n")), "A=W0 B=W1 C=L0 P=L1 Q=L1"
    assert broken(tree, mapping, local=(1, 1, 1)) == {"synchronisability"}


def test_fused_trip_counts_are_multiplied():
    inner = (tree_map("P", memory="g>l"), tree_map("Q", memory="l>g"))
    run = tree_map("C", tree_map("D", *inner, trip=4, perfect=True), trip=3)
    tree = nest(tree_map("A", tree_map("B", run)))
    fused, apart = "A=W0 B=W1 C=L0 D=F P=L1 Q=L1", "A=W0 B=W1 C=L0 D=S P=L1 Q=L1"
    assert broken(tree, fused, local=(6, 2, 1)) == set()
    assert broken(tree, apart, local=(6, 2, 1)) == {"synchronisability"}
    assert broken(tree, apart, local=(3, 2, 1)) == set()


def test_fusing_a_map_that_is_not_perfectly_nested():
    tree = nest(tree_map("A", tree_map("B")))
    assert broken(tree, "A=G0 B=F") == {"perfect-nesting"}


def test_private_prefetch_by_every_thread_needs_the_switch():
    tree = nest(tree_map("A", tree_map("P", memory="g>p"), tree_map("B", memory="gp>g")))
    mapping = "A=W0 P=S B=L0"
    assert broken(tree, mapping) >= {"private-memory-scoping", "exhaustive-indexing"}
    assert broken(tree, mapping, options=RuleOptions(replicate_private=True)) == set()


def test_the_switch_does_not_let_private_results_be_spread():
    tree = nest(tree_map("A", tree_map("P", memory="g>p"), tree_map("B", memory="gp>g")))
    options = RuleOptions(replicate_private=True)
    assert broken(tree, "A=W0 P=L0 B=L0", options=options) == {"private-memory-scoping"}


def test_one_barrier_and_a_transposed_read():
    tree = nest(tree_map("A", tree_map("B", memory="g>l"), tree_map("C", memory="l>g")))
    assert broken(tree, "A=W0 B=L0 C=L0") == set()
