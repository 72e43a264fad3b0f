"""``derive`` and ``sketches`` requests: programs rewritten by schedules, step by step."""

from __future__ import annotations

from mapper.ast_model.nodes import Program
from mapper.errors import InputError, Problem
from mapper.schedules.sketches.derivation import each_sketch
from nestmap.derivations import (
    HIGH_LEVEL,
    SKETCHES_SCHEMA,
    Bounded,
    Refusal,
    derivation_end,
    problems_at,
    read_schedule,
    sketch_to_json,
    stage_to_json,
    stages_until_refusal,
)
from nestmap.tasks.context import Context
from nestmap.tasks.replies import Replies
from nestmap.tasks.request_fields import Envelope, Fields, read_device, read_subject


def derive(envelope: Envelope, context: Context, replies: Replies) -> None:
    """Each step of a ``schedule`` on a program: what it asks of parameters, the program after it.

    A step that does not apply refuses the request; with ``partial`` the steps before it are
    answered, and the end says which it was and why.
    """
    fields = Fields(envelope, ("schedule", "partial"))
    partial = fields.flag("partial", False)
    fields.finish()
    start = program = _program(envelope)
    try:
        schedule = read_schedule(envelope.fields.get("schedule"))
    except InputError as error:
        raise InputError(problems_at("/schedule", error.problems)) from error
    texts = Bounded()
    refusal: Refusal | None = None
    for number, stage in enumerate(stages_until_refusal(program, schedule), 1):
        context.watch.tick()
        if isinstance(stage, Refusal):
            refusal = stage
            break
        program = stage.step.program
        replies.item(stage_to_json(number, stage, texts))
    if refusal is not None and not partial:
        p = refusal.problem
        why = f"{p.path}: {p.message}" if p.path else p.message
        place = f"/schedule/steps/{refusal.step - 1}"
        raise InputError(Problem(place, why, p.found, p.allowed, p.remedy))
    replies.end(derivation_end(schedule, start, program, refusal))


def sketches(envelope: Envelope, context: Context, replies: Replies) -> None:
    """The schedules worth having of a program on a device, each with its reason."""
    fields = Fields(envelope, ())
    fields.finish()
    program = _program(envelope)
    device = read_device(envelope.fields.get("device", "pocl"))
    count = 0
    for sketch in each_sketch(program, device):
        context.watch.tick()
        count += 1
        replies.item(sketch_to_json(sketch))
    replies.end({"schema": SKETCHES_SCHEMA, "count": count})


def _program(envelope: Envelope) -> Program:
    subject = read_subject(envelope.fields, HIGH_LEVEL)
    try:
        return subject.require_program()
    except InputError as error:
        raise InputError(problems_at("/subject", error.problems)) from error
