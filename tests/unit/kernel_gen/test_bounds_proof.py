"""No kernel is handed out that is not proven to stay inside of its arrays; right ones are."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mapper.errors import InputError
from mapper.host_plan import BufferRole, HostPlan, Launch, PlannedBuffer
from mapper.kernel_gen.bounds_proof import require_in_bounds
from mapper.kernel_gen.printed_index import Bounds, Scope
from mapper.kernel_gen.printed_tree import NotRead, parsed
from tests.effort import cases
from tests.unit.kernel_gen.test_golden_kernels import plan_of
from worker.oclgrind import FindingKind, Simulation, check_many

WRONG = Path(__file__).parent / "wrong_kernels"


@pytest.mark.parametrize("path", sorted(WRONG.glob("*.json")), ids=lambda path: path.stem)
def test_kernels_that_were_handed_out_and_left_their_arrays_are_refused(path: Path) -> None:
    plan = HostPlan.from_json(json.loads(path.read_text()))
    with pytest.raises(InputError, match="not handed out") as caught:
        require_in_bounds(plan)
    (problem,) = caught.value.problems
    assert problem.path.startswith("kernel/k_") and problem.found and problem.remedy


def plan(body: str, elements: int = 16, threads: int = 16, group: int = 4) -> HostPlan:
    """A plan of one kernel over an input and an output of so many elements."""
    source = (
        "__attribute__((reqd_work_group_size(4, 1, 1)))\n__kernel void k_k(\n"
        "    __global const float *restrict g_x,\n    __global float *restrict g_y)\n{\n"
        f"{body}\n}}\n"
    )
    buffers = tuple(
        PlannedBuffer(name, role, 4 * elements, (elements,), 0, 0)
        for name, role in (("x", BufferRole.INPUT), ("y", BufferRole.OUTPUT))
    )
    launch = Launch("k_k", (threads, 1, 1), (group, 1, 1), ("x", "y"))
    return HostPlan(source, buffers, (launch,))


RIGHT = {
    "an element each": "g_y[get_global_id(0)] = g_x[get_global_id(0)];",
    "ids that a condition bounds": "if ((index_t)get_global_id(0) < 12) {\n"
    "const index_t i = get_global_id(0);\ng_y[i + 4] = g_x[i];\n}",
    "an id as a signed number": "if ((index_t)get_global_id(0) - 8 >= 0) {\n"
    "g_y[get_global_id(0) - 8] = 0.0f;\n}",
    "digits of a counter": "const index_t f = get_global_id(0);\nconst index_t a = f/4;\n"
    "const index_t b = f%4;\ng_y[a + b*4] = g_x[a*4 + b];",
    "digits that belong together": "const index_t f = get_global_id(0);\n"
    "for (index_t j = 0; j < 5; ++j) {\nif (f - f%5 + j < 15) {\n"
    "g_y[f/5*5 + j] = 0.0f;\n}\n}",
    "a border behind a choice": "const index_t i = get_global_id(0);\n"
    "g_y[i] = (i - 3 >= 0 && i - 3 < 13 ? g_x[i - 3] : 0.0f);",
    "a border loaded without a branch": "const index_t i = get_global_id(0);\n"
    "const int inside_1 = (i*2 - 3 >= 0) & (i*2 - 3 < 16);\n"
    "const float loaded_1 = g_x[(inside_1 ? i*2 - 3 : 0)];\ng_y[i] = loaded_1;",
    "a choice by values": "const index_t i = get_global_id(0);\n"
    "g_y[i] = ((g_x[i] < 0.5f) ? g_x[i] : 1.0f);",
    "a border in a choice by values": "const index_t i = get_global_id(0);\n"
    "g_y[i] = ((g_x[i] < 0.5f) ? (i - 3 >= 0 ? g_x[i - 3] : 0.0f) : 1.0f);",
    "a guard around a choice": "if ((index_t)get_global_id(0) < 1) {\n"
    "const index_t i = get_global_id(0);\nfor (index_t j = 0; j < 200; ++j) {\n"
    "for (index_t k = 0; k < 200; ++k) {\nfor (index_t m = 0; m < 200; ++m) {\n"
    "const int inside_1 = (j + k + m - 1 >= 0) & (j + k + m - 1 < 16);\n"
    "g_y[0] = g_x[(inside_1 ? i + j + k + m - 1 : 0)];\n}\n}\n}\n}",
    "a number behind conditions on its digits": "const index_t f = get_global_id(0);\n"
    "for (index_t r = 0; r < 9; ++r) {\n"
    "const int inside_1 = (f/8 + r/3 - 1 >= 0) & (f/8 + r/3 - 1 < 2) & ((f/2)%4 + r%3 - 1 >= 0) "
    "& ((f/2)%4 + r%3 - 1 < 4);\n"
    "g_y[f] = g_x[(inside_1 ? f + (r/3)*8 + (r%3)*2 - 10 : 0)];\n}",
    "whole vectors": "if ((index_t)get_global_id(0) < 4) {\nconst index_t i = get_global_id(0);\n"
    "((__global float4 *)g_y)[i] = ((__global const float4 *)g_x)[i];\n}",
    "vectors at any place": "const index_t i = get_local_id(0);\n"
    "vstore4(vload4(0, g_x + (i*4)), i, g_y);\nstore8((float8)(0.0f), g_y + (i));",
    "strided rounds": "for (index_t i = get_local_id(0); i < 13; i += 4) { /* map m: L0 */\n"
    "g_y[i + 3] = g_x[i];\n}",
    "own arrays": "__local float l_t[8] __attribute__((aligned(16)));\nfloat4 p_s[2];\n"
    "for (index_t j = 0; j < 2; ++j) {\np_s[j] = (float4)(l_t[j*4 + 3]);\n}\n"
    "g_y[0] = p_s[1].s0;",
    "halves in local memory": "__local ushort bits_l_t[8];\n"
    "__local half *const l_t = (__local half *)bits_l_t;\n"
    "vstore_half4_rte((float4)(0.0f), 1, l_t);\ng_y[0] = vload_half(7, l_t);",
}
WRONG_BODIES = {
    "a value bounds no index": "const index_t i = get_global_id(0);\n"
    "g_y[i] = ((g_x[i] < 0.5f) ? g_x[i - 3] : 1.0f);",
    "one behind the end": "g_y[get_global_id(0) + 1] = 0.0f;",
    "one before the start": "g_y[get_global_id(0) - 1] = 0.0f;",
    "an array that is read": "g_y[0] = g_x[get_global_id(0)*2];",
    "one iteration too many": "for (index_t j = 0; j < 17; ++j) {\ng_y[j] = 0.0f;\n}",
    "a condition that is one too wide": "if ((index_t)get_global_id(0) < 14) {\n"
    "g_y[get_global_id(0) + 3] = 0.0f;\n}",
    "outside of its choice": "const index_t i = get_global_id(0);\n"
    "g_y[i] = (i - 3 >= 0 && i - 3 < 13 ? 0.0f : g_x[i - 3]);",
    "a quotient that C rounds towards zero": "g_y[(get_local_id(0) - 8)/4 + 1] = 0.0f;",
    "a vector over the end": "vstore4((float4)(0.0f), 0, g_y + (get_global_id(0)));",
    "a vector too many": "((__global float4 *)g_y)[get_global_id(0)] = (float4)(0.0f);",
    "the last of a private array": "float p_s[4];\ng_y[0] = p_s[4];",
    "an array of another scope": "{\nfloat p_s[4];\n}\ng_y[0] = p_s[0];",
    "an id that is compared as an unsigned number": "if (get_global_id(0) - 8 >= 0) {\n"
    "g_y[get_global_id(0) - 8] = 0.0f;\n}",
    "an id that is divided as an unsigned number": "g_y[(get_global_id(0) - 16)/16 + 1] = 0.0f;",
    "a loop up to an unsigned number": "for (index_t j = -1; j < get_local_id(0); ++j) {\n"
    "g_y[j + 1] = 0.0f;\n}",
    "a number that 32 bits do not hold": "const index_t i = get_global_id(0);\n"
    "g_y[i*1000000000/1000000000] = 0.0f;",
    "what nobody prints": "while (1) {\n}",
    "a pointer that goes nowhere known": "g_y[g_x[0]] = 0.0f;",
    "a number that no constant has": "g_y[c_N] = 0.0f;",
    "more halves than there are": "__local ushort bits_l_t[8];\n"
    "__local half *const l_t = (__local half *)bits_l_t;\ng_y[0] = vload_half4(2, l_t).s0;",
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_stays_inside_is_proven(name: str) -> None:
    require_in_bounds(plan(RIGHT[name]))


@pytest.mark.parametrize("name", WRONG_BODIES)
def test_what_may_leave_or_cannot_be_read_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="not handed out"):
        require_in_bounds(plan(WRONG_BODIES[name]))


def test_a_launch_and_its_kernel_belong_together() -> None:
    whole = plan("g_y[0] = 0.0f;")
    with pytest.raises(InputError, match="no launch"):
        require_in_bounds(replace(whole, launches=()))
    with pytest.raises(InputError, match="not in the source"):
        require_in_bounds(replace(whole, source=""))
    with pytest.raises(InputError, match="parameters"):
        require_in_bounds(replace(whole, launches=(replace(whole.launches[0], arguments=("x",)),)))


@pytest.mark.parametrize(
    "head",
    [
        "float load(const __global float *p)\n{\n    return p[1];\n}\n",
        "#define index_t uchar\n",
        "enum { c_N = 4 + 9 };\n",
    ],
)
def test_only_known_text_stands_before_the_first_kernel(head: str) -> None:
    whole = plan("g_y[0] = 0.0f;")
    require_in_bounds(replace(whole, source="/* c_N = 40 */\nenum { c_N = 4 };\n" + whole.source))
    with pytest.raises(InputError, match="before the first kernel"):
        require_in_bounds(replace(whole, source=head + whole.source))


def test_a_constant_is_no_number_of_a_comment() -> None:
    whole = plan("g_y[c_N] = 0.0f;")
    with pytest.raises(InputError, match="c_N"):
        require_in_bounds(replace(whole, source="/* c_N = 4 */\n" + whole.source))


def test_every_value_decides_where_intervals_are_too_wide() -> None:
    bounds, scope = Bounds(), Scope()
    bounds.running(scope, "f", 0, 87)
    index = bounds.sum_of(parsed("f - f/11*11 - f%11"), scope)
    assert bounds.bounds(index, scope)[1] > 0
    assert bounds.exactly(index, scope) == (0, 0)
    # Too many to try: nobody is told that they were.
    for name in "abc":
        bounds.running(scope, name, 0, 999)
    product = bounds.sum_of(parsed("(a + b*1000 + c*1000000)%7"), scope)
    assert bounds.exactly(product, scope) is None


@pytest.mark.parametrize("text", ["", "a b", "f(", "1 ? 2", "x; y", "a[0]", "i << 2"])
def test_what_is_no_index_is_not_read(text: str) -> None:
    with pytest.raises(NotRead):
        parsed(text)


#: Numbers of indices, conditions and loops; not those of types, names or declarations.
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
_CHANGEABLE = re.compile(r"^\s*(?:for|if|const index_t|const int|g_|l_|p_|\(\()")


def changed(source: str, seed: int, count: int) -> Iterator[str]:
    """The source with one number of a kernel's body changed by one, at random."""
    draw = random.Random(seed)
    lines = source.splitlines(keepends=True)
    first = next(n for n, line in enumerate(lines) if line.startswith("__kernel"))
    places = [
        (n, found)
        for n, line in enumerate(lines)
        if n > first and _CHANGEABLE.match(line)
        for found in _NUMBER.finditer(line.partition("/*")[0])
    ]
    for number, found in draw.sample(places, min(count, len(places))):
        line = lines[number]
        text = str(max(0, int(found[0]) + draw.choice((-1, 1))))
        fresh = line[: found.start()] + text + line[found.end() :]
        yield "".join([*lines[:number], fresh, *lines[number + 1 :]])


@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
@pytest.mark.parametrize(
    "name",
    [
        "blocks_halo_strided",
        "blocks_local_two_buffers",
        "tile_ragged",
        "blocks_split",
        "blocks_local_half",
    ],
)
def test_whatever_a_simulator_sees_outside_of_an_array_is_refused(name: str) -> None:
    right = plan_of(name)
    draw = np.random.default_rng(7)
    inputs = {
        b.name: draw.random(b.shape).astype(b.dtype.value)
        for b in right.buffers
        if b.role is BufferRole.INPUT
    }
    plans = [replace(right, source=source) for source in changed(right.source, 7, cases(10, 24))]
    let_through = []
    for one in plans:
        try:
            require_in_bounds(one)
            let_through.append(one)
        except InputError:
            continue
    # Most changes of a number lead out of an array, and some do not.
    assert 0 < len(let_through) < len(plans)
    (shape,) = (b.shape for b in right.buffers if b.role is BufferRole.OUTPUT)
    expected = np.zeros(shape, np.float32)
    reports = check_many([Simulation(one, inputs, expected) for one in let_through])
    for one, report in zip(let_through, reports, strict=True):
        outside = [f for f in report.findings if f.kind is FindingKind.INVALID_ACCESS]
        assert outside == [], one.source
