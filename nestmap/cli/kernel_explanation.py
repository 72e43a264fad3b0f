"""``nestmap kernel --explain``: what became of a program under a mapping."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from mapper.ast_model.text_form import to_text
from mapper.kernel_gen.explanation import ExplainedBuffer, ExplainedKernel, explain
from mapper.pipeline import (
    Assignment,
    assignment_to_json,
    choices_of,
    origin_of,
)
from nestmap.cli.drawing import MAX_INDENT
from nestmap.cli.output import mapping_fields, write_json, write_table, write_text
from nestmap.requests import Request

SCHEMA = "nestmap/kernel-explanation/1"


def write_explanation(request: Request, assignment: Assignment, as_json: bool) -> None:
    """The program, then each kernel: loops, index expressions, barriers, memory."""
    subject = request.subject
    program = subject.require_program()
    choices = choices_of(assignment)
    kernels = explain(program, choices, origin_of(subject))
    if as_json:
        write_json(explanation_to_json(request, assignment, kernels))
        return
    write_text(to_text(program))
    if choices.parameters:
        write_text(f"parameters: {mapping_fields(choices.parameters)}")
    for kernel in kernels:
        _write_kernel(kernel)


def explanation_to_json(
    request: Request, assignment: Assignment, kernels: Iterable[ExplainedKernel]
) -> dict[str, Any]:
    """``nestmap/kernel-explanation/1``: the program's text, the choices, kernels in order."""
    return {
        "schema": SCHEMA,
        "subject": request.subject.label,
        "variant": request.subject.variant,
        "program": to_text(request.subject.require_program()),
        "choices": assignment_to_json(assignment),
        "kernels": [asdict(kernel) for kernel in kernels],
    }


def _write_kernel(kernel: ExplainedKernel) -> None:
    write_table(
        ("map or reduce", "schedule", "trip count", "iterations", "reads", "writes"),
        (
            (
                f"{'  ' * min(loop.depth, MAX_INDENT)}{loop.name}",
                loop.schedule,
                loop.trip,
                loop.iterations,
                ", ".join(loop.reads),
                loop.writes,
            )
            for loop in kernel.loops
        ),
        f"kernel {kernel.name}: {_sizes(kernel.global_size)} work-items in groups of "
        f"{_sizes(kernel.local_size)}",
        right=("iterations",),
    )
    write_table(
        ("access", "position as the layout changes say", "simplified"),
        (
            (
                f"{'write' if access.is_write else 'read'} {access.identifier}",
                access.before if access.before != access.after else "the same",
                access.after,
            )
            for access in kernel.accesses
        ),
        f"index expressions of {kernel.name}",
    )
    for line in _memory_lines(kernel):
        write_text(line)
    write_text("")


def _memory_lines(kernel: ExplainedKernel) -> Iterator[str]:
    yield f"barriers: {len(kernel.barriers) or 'none'}"
    for barrier in kernel.barriers:
        yield f"  {' and '.join(barrier.memories)} memory"
        yield from (f"    {reason}" for reason in barrier.reasons)
    yield f"local memory: {kernel.local_bytes} bytes a work-group{_listed(kernel.local)}"
    yield (
        f"private memory: {kernel.private_bytes} bytes a work-item at once, at most; "
        f"{kernel.register_bytes} in variables"
    )
    for title, kept in (("variables", True), ("arrays", False)):
        some = [buffer for buffer in kernel.private if buffer.in_registers is kept]
        if some:
            yield f"  {title}{_listed(some)}"


def _listed(buffers: Iterable[ExplainedBuffer]) -> str:
    texts = [f"{buffer.identifier} {buffer.bytes}" for buffer in buffers]
    return f": {', '.join(texts)}" if texts else ""


def _sizes(sizes: tuple[int, int, int]) -> str:
    return " x ".join(map(str, sizes))
