"""Programs that a sound checker rejects or accepts, beyond Table 1: rules.md's own list."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.ast_model.interpreter import interpret
from mapper.ast_model.kernel_state import buffer_dimensions
from mapper.ast_model.text_form import parse
from mapper.errors import InputError
from mapper.pipeline import Subject, generate_kernels, subject_of_program
from mapper.solver.space import check
from tests.kernels import run_once
from tests.unit.kernel_gen.listing1 import assignment, strict_space
from worker.oclgrind import check as oclgrind_check

HEAD = "size N = 6 size M = 4 size K = 8"
TWO_NESTS = f"""
program "two_nests" {{ {HEAD} input x : [[float]M]N
  kernel out = map#D(r => map#E(v => add(v, v), r),
                   transpose(to_global(map#B(r => map#C(v => id(v), r), x)))) }}
"""
LOCAL_COPY = f"""
program "local_copy" {{ {HEAD} input x : [[[float]K]M]N
  kernel out = map#A(p =>
      let b = to_local(map#B(r => map#C(v => id(v), r), p)) in
      map#D(r => map#E(v => add(v, v), r), transpose(b)), x) }}
"""
RAGGED = f"""
program "ragged" {{ {HEAD} input x : [[[[[float]K]M]N]2]2
  kernel out = map#Y(y => map#Z(z => map#A(p =>
      let b = to_local(map#B(r => map#C(v => id(v), r), p)) in
      map#D(r => map#E(v => add(v, v), r), transpose(b)), z), y), x) }}
"""
SUM_UNDER_GROUP = f"""
program "sum_under_group" {{ {HEAD} input x : [[[float]K]M]N
  kernel out = map#A(p =>
      let total = reduce((acc, r) => map#U(t => add(t.0, t.1), zip(acc, r)),
                         to_local(map#I(z => id(z), fill(0.0, K))), p) in
      map#B(one => map#C(v => id(v), one), total), x) }}
"""
TRANSPOSED_SUM = f"""
program "transposed_sum" {{ {HEAD} input x : [[[[float]K]M]N]3
  kernel out = map#A(p =>
      map#O(one => map#P(r => map#Q(v => id(v), r), one),
        reduce((acc, s) => map#U(t => map#V(w => add(w.0, w.1), t),
                                 map#z(t => zip(t.0, t.1), zip(acc, s))),
               to_local(map#I(r => map#J(z => id(z), r), fill(0.0, M, K))), p)), x) }}
"""
IN_REDUCE = f"""
program "in_reduce" {{ {HEAD} input x : [[[[float]K]M]N]3
  kernel out = map#A(p =>
      map#O(one => map#P(r => map#Q(v => id(v), r), one),
        reduce((acc, s) =>
            let b = to_local(map#F(r => map#G(v => id(v), r), s)) in
            map#U(t => map#V(w => add(w.0, w.1), t),
                  map#z(t => zip(t.0, t.1), zip(acc, transpose(b)))),
          to_global(map#I(r => map#J(z => id(z), r), fill(0.0, K, M))), p)), x) }}
"""
PRIVATE_PREFETCH = f"""
program "private_prefetch" {{ {HEAD} input x : [[float]M]N input w : [float]K
  kernel out = map#A(r =>
      let p = to_private(map#F(v => id(v), w)) in
      map#B(v => map#C(y => mul(v, y), p), r), x) }}
"""


def subject_of(text: str) -> Subject:
    return subject_of_program(parse(text))


def rules_broken(
    text: str, ids: str, codes: str, local: tuple[int, int, int], **options: bool
) -> set[str]:
    space = strict_space(subject_of(text), **options)
    return {v.rule for v in check(space, assignment(space, ids, codes, local))}


@pytest.mark.parametrize(
    ("name", "text", "ids", "codes", "local", "rule"),
    [
        ("sequential nest, local memory", LOCAL_COPY, "A B C D E", "S S F S F", (1, 1, 1),
         "shared-memory-scoping"),
        ("W0{L0{G0}}", LOCAL_COPY, "A B C D E", "W0 L0 G0 L0 G0", (2, 1, 1), "no-mixing"),
        ("G0{W0{L0}}", LOCAL_COPY, "A B C D E", "G0 W0 L0 W0 L0", (2, 1, 1), "no-mixing"),
        ("two top-level nests through a transpose", TWO_NESTS, "B C D E", "G1 G0 G1 G0",
         (2, 2, 1), "cross-group-dependence"),
        ("reduce into a local accumulator under one thread set", SUM_UNDER_GROUP, "A I U B C",
         "W0 S S S L0", (2, 1, 1), "exhaustive-writes"),
        ("barrier in a ragged local loop", LOCAL_COPY, "A B C D E", "L0 W0 S W0 S", (4, 1, 1),
         "local-hierarchy"),
        ("code 1 on a map that is not perfectly nested", LOCAL_COPY, "A B C D E",
         "W0 F S L0 S", (4, 1, 1), "perfect-nesting"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 60 else "",
)  # fmt: skip
def test_rejected_by_its_rule(
    name: str, text: str, ids: str, codes: str, local: tuple[int, int, int], rule: str
) -> None:
    assert rule in rules_broken(text, ids, codes, local), name


def test_a_barrier_in_a_ragged_local_loop_is_rejected() -> None:
    """Six iterations of A over L1 threads, a barrier inside: 2 or 3 threads, never 4."""
    text = RAGGED
    ids = "Y Z A B C D E"
    assert rules_broken(text, ids, "W0 W1 L1 L0 S L0 S", (4, 4, 1)) == {"synchronisability"}
    assert rules_broken(text, ids, "W0 W1 L1 L0 S L0 S", (4, 3, 1)) == set()


def test_writing_through_a_joined_slide_is_refused() -> None:
    text = f"""program "overlap" {{ {HEAD} input x : [float]N
      kernel out = join(slide(3, 1, map#A(v => id(v), x))) }}"""
    with pytest.raises(InputError, match="injective-write"):
        subject_of(text)


ACCEPTED = [
    ("transposed read of a local buffer", LOCAL_COPY, "A B C D E", "W0 L0 S L0 S", (4, 1, 1), 1),
    ("sum under a group, all threads in the update", SUM_UNDER_GROUP, "A I U B C",
     "W0 L0 L0 S L0", (4, 1, 1), 0),
    ("sum over matrices in local memory", TRANSPOSED_SUM,
     "A I J U V O P Q", "W0 L0 S L0 S S L0 S", (4, 1, 1), 0),
    ("buffer filled anew in each step of a reduce", IN_REDUCE, "A F G I J U V O P Q",
     "W0 L0 S L0 S L0 S S L0 S", (2, 1, 1), 2),
]  # fmt: skip


def inputs_of(subject: Subject) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    program = subject.require_program()
    sizes = dict(program.sizes)
    return {
        i.name: rng.standard_normal([n.evaluate(sizes) for n in buffer_dimensions(i.type)]).astype(
            np.float32
        )
        for i in program.inputs
    }


@pytest.mark.kernels
@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
@pytest.mark.parametrize(
    ("name", "text", "ids", "codes", "local", "barriers"), ACCEPTED, ids=lambda v: str(v)[:40]
)
def test_accepted_runs_right_and_without_races(
    name: str, text: str, ids: str, codes: str, local: tuple[int, int, int], barriers: int
) -> None:
    subject = subject_of(text)
    # The heuristic would have the outermost of three maps fused; soundness is no matter of it.
    space = strict_space(subject, sequential_fusion=False)
    chosen = assignment(space, ids, codes, local)
    assert check(space, chosen) == (), name
    plan = generate_kernels(subject, chosen)
    assert plan.source.count("barrier(") == barriers, plan.source
    inputs = inputs_of(subject)
    expected = interpret(subject.require_program(), {}, inputs)
    np.testing.assert_allclose(run_once(plan, inputs), expected, rtol=1e-5, atol=1e-5)
    report = oclgrind_check(plan, inputs, expected)
    assert report.ok, report.messages


@pytest.mark.kernels
def test_private_prefetch_by_every_thread_needs_the_switch() -> None:
    ids, codes, local = "A F B C", "W0 S L0 S", (4, 1, 1)
    assert rules_broken(PRIVATE_PREFETCH, ids, codes, local)
    assert rules_broken(PRIVATE_PREFETCH, ids, codes, local, replicate_private=True) == set()
    subject = subject_of(PRIVATE_PREFETCH)
    space = strict_space(subject, replicate_private=True)
    plan = generate_kernels(subject, assignment(space, ids, codes, local))
    inputs = inputs_of(subject)
    expected = interpret(subject.require_program(), {}, inputs)
    np.testing.assert_allclose(run_once(plan, inputs), expected, rtol=1e-6)


@pytest.mark.kernels
@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
def test_an_accumulator_set_and_updated_by_different_threads_gets_its_barrier() -> None:
    """Set to zero by L1{L0}, updated by L0{L1}: one barrier, or no mapping if it is ragged."""
    text = (
        TRANSPOSED_SUM.replace("map#A(p =>", "map#Z(q => map#A(p =>")
        .replace(", p)), x)", ", p)), q), x)")
        .replace("[[[[float]K]M]N]3", "[[[[[float]K]M]N]3]2")
    )
    codes = "W1 W0 L1 L0 L0 L1 S L1 L0"
    subject = subject_of(text)
    space = strict_space(subject)
    chosen = assignment(space, "Z A I J U V O P Q", codes, (4, 2, 1))
    assert check(space, chosen) == ()
    plan = generate_kernels(subject, chosen)
    assert plan.source.count("barrier(") >= 2
    inputs = inputs_of(subject)
    expected = interpret(subject.require_program(), {}, inputs)
    np.testing.assert_allclose(run_once(plan, inputs), expected, rtol=1e-5, atol=1e-5)
    report = oclgrind_check(plan, inputs, expected)
    assert report.ok, report.messages
