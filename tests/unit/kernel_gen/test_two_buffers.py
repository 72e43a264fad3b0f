"""A reduce with ``prefetch=2`` copies into two local buffers in turns, with a barrier less."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench.proofs.soundness.judges import Judge
from bench.proofs.soundness.replay import case_of, faults_of, refusals
from mapper.ast_model.text_form import parse
from mapper.errors import InputError
from mapper.pipeline import subject_of_program
from mapper.profiles import load_profile

DEVICE = load_profile("pocl")
ONE_ITERATION_BEFORE = "the iteration before still uses"


def program(chunks: int, prefetch: str, again: int = 1) -> str:
    """Sums over chunks, each copied to local memory and read there by other work-items.

    ``again``: how often a work-group does all that, one time after the other.
    """
    return f"""program "sums" {{
      param p in {{0, 1, 2}} input x : [[[[float]16]{chunks}]{again}]3
      fun idv(v) = v + 0.0
      kernel out = map#g(blocks => map#s(rows => map#w(v => idv(v), join(
        reduce[prefetch={prefetch}]((acc, row) =>
            let t = to_local(map#c(v => idv(v), row)) in
              map#u(q => add(q.0, q.1), zip(acc, reorder(reverse, t))),
          to_private[spread=1](map#z(v => idv(v), fill(0.0, 16))), rows))), blocks), x) }}"""


def case(text: str, **parameters: int) -> dict[str, Any]:
    return {
        "program": text,
        "assignment": {
            "mapping": {"g": "W0", "s": "S", "w": "L0", "c": "L0", "u": "L0", "z": "L0"},
            "local_sizes": {"out": [16, 1, 1]},
            "parameters": parameters,
        },
    }


@pytest.mark.parametrize(
    ("chunks", "again", "barriers"),
    [
        pytest.param(4, 1, 1, id="one run of the reduce"),
        pytest.param(3, 1, 1, id="an odd one"),
        pytest.param(4, 2, 1, id="again after the second buffer"),
        pytest.param(3, 2, 2, id="again after the first buffer, which may still be in use"),
    ],
)
def test_a_barrier_is_left_out_where_buffers_alternate(
    chunks: int, again: int, barriers: int
) -> None:
    source = case_of(case(program(chunks, "p", again), p=2), DEVICE).plan.source
    assert source.count("barrier(CLK_LOCAL_MEM_FENCE);") == barriers
    assert (ONE_ITERATION_BEFORE in source) == (barriers == 2)
    one = case_of(case(program(chunks, "p", again), p=1), DEVICE).plan.source
    assert one.count("barrier(CLK_LOCAL_MEM_FENCE);") == 2


def test_the_second_buffer_counts_as_local_memory() -> None:
    for chunks, prefetch, local in ((4, 2, 128), (4, 1, 64), (4, 0, 64), (1, 2, 64)):
        value = case(program(chunks, "p"), p=prefetch)
        assert case_of(value, DEVICE).plan.launches[0].local_bytes == local
        assert refusals(value, replace(DEVICE, local_bytes=local)) == ()
        assert refusals(value, replace(DEVICE, local_bytes=local - 1)) == ("device-limits",)


@pytest.mark.kernels
@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
@pytest.mark.parametrize(("chunks", "again"), [(4, 1), (3, 2), (1, 2), (4, 2)])
def test_no_work_item_reads_what_the_next_iteration_writes(
    judges: dict[str, Judge], chunks: int, again: int
) -> None:
    value = case(program(chunks, "p", again), p=2)
    assert refusals(value, DEVICE) == ()
    assert faults_of(value, DEVICE, judges) == []


def test_more_than_two_buffers_are_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"prefetch is not 0, 1 or 2.*3.*0, 1, 2, or a parameter"):
        subject_of_program(parse(program(4, "3")))
