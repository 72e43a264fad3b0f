"""Programs tuned by the command that a user types, beside a library and a plain copy.

Sizes are written into the files of ``examples/programs``. What is bound by bandwidth is held
against the time in which a plain copy, with the widest vectors, reads and writes as many bytes.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.kernels.as_a_user import Ran, fastest_first, tune_file
from bench.kernels.gpu import Rounds
from bench.kernels.graph_call import GraphCall
from bench.kernels.judging import Judge
from mapper.constraint_rules.rule import Mode
from mapper.errors import InputError, Problem
from mapper.pipeline import generate_kernels
from nestmap.cli.check import judge_text
from nestmap.cli.request import prepare
from nestmap.mappings import schedule_of_text
from nestmap.tuning.policy import INPUT_SEED
from nestmap.tuning.reference import Workload, make_workload
from nestmap.tuning.sketch_subjects import as_written
from worker.measuring.back_to_back import BackToBack
from worker.measuring.loaded_plan import LoadedPlan, Session

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "programs"
#: Elements of the arrays that bandwidth is measured on: 256 MB, more than any cache of a GPU.
_BIG = 8192
#: A copy's work-items do one vector each.
_COPY = """
__kernel void copy(__global const float{width} *from, __global float{width} *to)
{{
    size_t i = get_global_id(0);
    to[i] = from[i];
}}
"""
_COPY_VECTORS = (4, 8, 16)
_COPY_GROUP = 256
_JUDGED_S = 60.0
#: Kernels that take less are timed back to back.
_WORTH_BELOW_NS = 20_000

#: What a library computes of the inputs, in the order of the program, with NumPy or torch.
Call = Callable[[Any, Sequence[Any]], Any]


@dataclass(frozen=True, slots=True)
class Work:
    """A program of some sizes. ``moved_bytes``: what has to be read and written at least, where
    that is what takes the time."""

    name: str
    program: str
    sizes: Mapping[str, int]
    call: Call | None = None
    moved_bytes: int = 0

    def text(self) -> str:
        """The program, with the sizes; InputError where it has none of a name."""
        found = (EXAMPLES / f"{self.program}.txt").read_text(encoding="utf-8")
        for name, size in self.sizes.items():
            found, count = re.subn(rf"size {name} = \d+", f"size {name} = {size}", found)
            if not count:
                raise InputError(Problem(name, "is no size of the program", self.program))
        return found


def _product(_: Any, operands: Sequence[Any]) -> Any:
    return operands[0] @ operands[1]


def _transposed_product(_: Any, operands: Sequence[Any]) -> Any:
    return operands[0].T @ operands[1].T


def _row_sums(_: Any, operands: Sequence[Any]) -> Any:
    return operands[0].sum(1)


def _transposition(library: Any, operands: Sequence[Any]) -> Any:
    turned = operands[0].T
    return np.ascontiguousarray(turned) if library is np else turned.contiguous()


def _softmax(library: Any, operands: Sequence[Any]) -> Any:
    if library is not np:
        return library.softmax(operands[0], 1)
    powers = np.exp(operands[0] - operands[0].max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def _contraction(library: Any, operands: Sequence[Any]) -> Any:
    return library.einsum("aebf,fdec->abcd", *operands)


def _matrices(m: int, n: int, k: int) -> Work:
    name = f"product-{m}" if m == n == k else f"product-{m}x{n}x{k}"
    return Work(name, "matrix_product", {"M": m, "N": n, "K": k}, _product)


def _square(name: str, program: str, sizes: str, matrices: int, call: Call | None = None) -> Work:
    return Work(name, program, dict.fromkeys(sizes, _BIG), call, 4 * matrices * _BIG * _BIG)


def _pooling(size: int, channels: int) -> Work:
    out = (size - 3) // 2 + 1
    moved = 4 * channels * (size * size + out * out)
    return Work("max-pooling", "max_pooling", {"H": size, "W": size, "C": channels}, None, moved)


WORKS: tuple[Work, ...] = (
    _matrices(1024, 1024, 1024),
    _matrices(4096, 4096, 4096),
    _matrices(512, 8192, 2048),
    _matrices(1000, 1000, 1000),
    _matrices(77, 4099, 513),
    Work("product-transposed", "matrix_product_transposed", {}, _transposed_product),
    Work("contraction", "tensor_contraction", {}, _contraction),
    _square("matrix-vector", "matrix_vector_product", "MK", 1, _product),
    _square("row-sums", "row_sums", "MN", 1, _row_sums),
    _square("transposition", "transposition", "MN", 2, _transposition),
    _square("stencil", "stencil_5_point", "HW", 2),
    _pooling(1024, 64),
    _square("softmax", "softmax", "MN", 2, _softmax),
)


def named_work(name: str) -> Work:
    """One of WORKS; InputError where there is none of this name."""
    for work in WORKS:
        if work.name == name:
            return work
    known = ", ".join(work.name for work in WORKS)
    raise InputError(Problem("--program", "is no program of the list", name, known))


@dataclass(slots=True)
class Found:
    """What the command did for a program, and how its fastest kernels compare. Times in ms."""

    work: Work
    ran: Ran
    times_ms: list[float] = field(default_factory=list[float])
    back_to_back_ms: list[float] = field(default_factory=list[float])
    library_ms: list[float] = field(default_factory=list[float])
    copy_ms: float | None = None
    relative_error: float | None = None
    failure: str = ""

    @property
    def time_ms(self) -> float | None:
        """The median, back to back where events would measure the driver."""
        if self.back_to_back_ms:
            return median(self.back_to_back_ms)
        return median(self.times_ms) if self.times_ms else None

    def to_json(self) -> dict[str, Any]:
        """A plain JSON value."""
        value, ours = self.ran.value or {}, self.time_ms
        others = {
            "library": median(self.library_ms) if self.library_ms else None,
            "copy": self.copy_ms,
        }
        return {
            "program": self.work.name,
            "sizes": dict(self.work.sizes),
            "wall_s": self.ran.wall_s,
            "tried": value.get("tried", 0),
            "outcomes": value.get("outcomes", {}),
            "best": next(iter(fastest_first(value)), None) if value else None,
            "time_ms": ours,
            "times_ms": self.times_ms,
            "back_to_back_ms": self.back_to_back_ms,
            "relative_error": self.relative_error,
            **{f"{name}_ms": ms for name, ms in others.items()},
            **{
                f"{name}_ratio": None if ms is None or ours is None else ms / ours
                for name, ms in others.items()
            },
            "failure": self.failure or self.ran.failure,
        }


def tuned(work: Work, seconds: float, device: str, folder: Path) -> Found:
    """Run the command on a program's file in a folder."""
    path = folder / f"{work.name}.txt"
    path.write_text(work.text(), encoding="utf-8")
    return Found(work, tune_file(path, seconds, device))


def compare(
    found: Found, session: Session, device: str, torch: Any | None, how: Rounds, folder: Path
) -> None:
    """Time the fastest kernels that the command found and a library in turns: torch, or NumPy on
    a processor. Raises NestmapError, or PlanFailure of the device."""
    if found.ran.value is None or not found.ran.value["front"]:
        found.failure = "nothing was found"
        return
    text = json.dumps(fastest_first(found.ran.value)[0])
    request = prepare(
        str(folder / f"{found.work.name}.txt"), None, Mode.STRICT, device,
        schedule=schedule_of_text(text),
    )  # fmt: skip
    assignment = judge_text(request, text, _JUDGED_S).assignment
    plan = generate_kernels(request.subject, assignment)
    workload = make_workload(as_written(request.subject), INPUT_SEED, {})
    judge = Judge(workload.expected, workload.tolerance)
    library = _library(found.work, workload, torch)
    with LoadedPlan(session, plan) as loaded:
        loaded.poison()
        loaded.fill_inputs(workload.inputs)
        loaded.run()
        verdict = judge.verdict(loaded.read_output())
        found.relative_error = verdict.relative_error
        if verdict.wrong is not None:
            found.failure = f"wrong: {verdict.wrong.message}"
            return
        back_to_back = BackToBack(session)
        for _ in range(how.rounds):
            for _ in range(how.warmup):
                loaded.run()
            times_ns = [_run_ns(loaded, wall=torch is None) for _ in range(how.repetitions)]
            found.times_ms += [ns / 1e6 for ns in times_ns]
            middle = round(median(times_ns))
            if torch is not None and middle < _WORTH_BELOW_NS:
                runs = [back_to_back.run_ns(loaded, middle) for _ in range(how.repetitions)]
                found.back_to_back_ms += [ns / 1e6 for ns in runs if ns is not None]
            if library is not None:
                found.library_ms += library(how)
    if found.work.moved_bytes:
        found.copy_ms = copy_ms(session, found.work.moved_bytes, how)


def _run_ns(loaded: LoadedPlan, *, wall: bool) -> int:
    """One run by its events, or by the clock as NumPy's calls are."""
    started = time.perf_counter_ns()
    times = loaded.run()
    return time.perf_counter_ns() - started if wall else times.span_ns


def _library(
    work: Work, workload: Workload, torch: Any | None
) -> Callable[[Rounds], list[float]] | None:
    """A turn of the library, which gives times in ms."""
    if work.call is None:
        return None
    call, arrays = work.call, list(workload.inputs.values())
    if torch is not None:
        tensors = [torch.from_numpy(array).cuda() for array in arrays]
        graph = GraphCall(torch, lambda: call(torch, tensors))
        return lambda how: graph.times_ms(how.repetitions, how.warmup)

    def turn(how: Rounds) -> list[float]:
        times: list[float] = []
        for _ in range(how.warmup + how.repetitions):
            started = time.perf_counter()
            call(np, arrays)
            times.append((time.perf_counter() - started) * 1e3)
        return times[how.warmup :]

    return turn


def copy_ms(session: Session, moved_bytes: int, how: Rounds) -> float:
    """How long a plain copy reads and writes so many bytes: the least median of its vectors."""
    import pyopencl as cl

    # Half are read, half are written.
    elements = moved_bytes // 8
    lengths = {width: elements // (width * _COPY_GROUP) for width in _COPY_VECTORS}
    flags = cl.mem_flags.READ_WRITE
    buffers = [cl.Buffer(session.context, flags, 4 * elements) for _ in range(2)]
    cl.enqueue_fill_buffer(session.queue, buffers[0], np.ones(1, np.float32), 0, 4 * elements)
    medians: list[float] = []
    for width, groups in lengths.items():
        kernel = cl.Program(session.context, _COPY.format(width=width)).build().copy
        times_ns: list[int] = []
        for _ in range(how.warmup + how.rounds * how.repetitions):
            event = kernel(session.queue, (groups * _COPY_GROUP,), (_COPY_GROUP,), *buffers)
            event.wait()
            times_ns.append(event.profile.end - event.profile.start)
        medians.append(median(times_ns[how.warmup :]) / 1e6)
    return min(medians)
