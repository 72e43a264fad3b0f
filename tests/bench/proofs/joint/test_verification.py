"""Every limit and promise that a candidate breaks has its sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.proofs.joint.printed_kernels import read_kernels
from bench.proofs.joint.verification import Seen, faults, seen
from mapper.ast_model.elaborate import elaborate
from mapper.ast_model.loop_nest import LoopProgram
from mapper.ast_model.text_form import parse
from mapper.errors import InputError
from mapper.host_plan import HostPlan
from mapper.kernel_gen.generate import Choices, generate_from
from mapper.profiles import load_profile
from mapper.schedule import ScheduleCode

POCL = load_profile("pocl")
# Each row goes through local memory and comes back reversed: other work-items read what one
# wrote, so that there is a barrier.
PROGRAM = parse("""
program "reversed" {
  input x : [[float]8]4
  kernel k = map#rows(row =>
    map#out(e => id(e), reorder(reverse, to_local(
      map#in(e => let q = to_private(id(e)) in add(q, e), row)))), x)
}
""")


def candidate() -> tuple[HostPlan, LoopProgram, Choices]:
    codes = {"rows": 20, "in": 10, "out": 10}
    choices = Choices({}, {m: ScheduleCode(code) for m, code in codes.items()}, {"k": (4, 1, 1)})
    loops = elaborate(PROGRAM)
    return generate_from(loops, PROGRAM, choices), loops, choices


def test_a_good_candidate_has_no_faults():
    plan, loops, choices = candidate()
    assert list(faults(plan, loops, choices, POCL)) == []
    assert seen(plan) == Seen(
        local_bytes=32, private_bytes=4, work_items=4, global_bytes=2 * 4 * 32, barriers=1
    )


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({"local_bytes": 31}, "32 local bytes, the device has 31"),
        ({"private_bytes": 3}, "4 private bytes, the device has 3"),
        ({"max_work_group_size": 3}, "groups of (4, 1, 1) work-items, the device allows 3"),
        ({"max_work_item_sizes": (3, 9, 9)}, "4 work-items in dimension 0, the device allows 3"),
        ({"max_alloc_bytes": 127}, "buffer x of 128 bytes cannot be allocated"),
        ({"global_bytes": 255}, "256 bytes of global memory, the device has 255"),
    ],
)
def test_each_limit_of_a_device_is_held(limits: dict[str, object], sentence: str):
    plan, loops, choices = candidate()
    found = list(faults(plan, loops, choices, replace(POCL, **limits)))  # type: ignore[arg-type]
    assert any(sentence in fault for fault in found), found


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"local_bytes": 16}, "32 local bytes are declared, 16 planned"),
        ({"private_bytes": 0}, "4 private bytes are declared, 0 planned"),
        ({"local_size": (8, 1, 1)}, "demands groups of (4, 1, 1), is launched in (8, 1, 1)"),
        ({"global_size": (15, 1, 1)}, "is no multiple of (4, 1, 1)"),
        ({"kernel": "k_other"}, "is launched as k_other"),
    ],
)
def test_a_plan_that_disagrees_with_its_source_is_found(changes: dict[str, object], sentence: str):
    plan, loops, choices = candidate()
    launch = replace(plan.launches[0], **changes)  # type: ignore[arg-type]
    found = list(faults(replace(plan, launches=(launch,)), loops, choices, POCL))
    assert any(sentence in fault for fault in found), found


def test_a_buffer_smaller_than_its_shape_is_found():
    plan, loops, choices = candidate()
    first = replace(plan.buffers[0], bytes=100)
    found = list(faults(replace(plan, buffers=(first, *plan.buffers[1:])), loops, choices, POCL))
    assert found == ["buffer x of shape (4, 8) is given 100 bytes"]


def test_a_missing_barrier_is_found():
    plan, loops, choices = candidate()
    source = plan.source.replace("barrier(CLK_LOCAL_MEM_FENCE);", "")
    found = list(faults(replace(plan, source=source), loops, choices, POCL))
    assert found == ["k_k: 0 barriers are printed, 1 planned"]


def test_a_barrier_that_not_all_work_items_meet_is_refused():
    # Four rows for three work-items, and the barrier stands within the rows.
    codes = {"rows": 11, "in": 10, "out": 10}
    choices = Choices({}, {m: ScheduleCode(code) for m, code in codes.items()}, {"k": (4, 3, 1)})
    loops = elaborate(PROGRAM)
    plan = generate_from(loops, PROGRAM, choices, refuse=False)
    (kernel,) = read_kernels(plan.source)
    assert len(kernel.divergent) == 1
    with pytest.raises(InputError, match="not all work-items"):
        list(faults(plan, loops, choices, POCL))
