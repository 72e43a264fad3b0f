"""``kernel`` requests: OpenCL source, host plan and what a reader of the source should know."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from typing import Any

from mapper.constraint_rules.rule import Mode
from mapper.errors import Problem
from mapper.pipeline import Assignment, assignment_to_json, generate_kernels
from mapper.solver.preferences import best
from nestmap.answers import checked_facts, empty_space_error, violation_to_json
from nestmap.finding import drawn, with_values
from nestmap.mappings import judge
from nestmap.requests import Request
from nestmap.tasks.context import Context
from nestmap.tasks.kinds import given_mapping
from nestmap.tasks.limits import refuse_large_model
from nestmap.tasks.replies import Replies, problem
from nestmap.tasks.request_fields import Envelope, Fields


def kernel(envelope: Envelope, context: Context, replies: Replies) -> None:
    """The kernels of a ``mapping``, or of one that is drawn by a ``seed``, best by preference."""
    fields = Fields(envelope, ("mapping", "seed"))
    mapping = fields.object("mapping", required=False)
    seed = fields.integer("seed", 0, 0, 2**63 - 1) or 0
    restrictions = fields.restrictions()
    fields.finish()
    part = context.spaces.of(envelope.fields).part(restrictions, True, context.watch)
    request = part.request
    request.subject.require_program()
    refuse_large_model(part.space, context.limits)
    assumed: dict[str, Any] = {}
    if mapping is not None:
        given = given_mapping(request, mapping)
        verdict = judge(request.space, given.assignment, context.watch.left_s)
        if not verdict.valid:
            broken = tuple(
                Problem("/mapping", v.sentence, v.constraint, "", v.remedy)
                for v in verdict.violations
            )
            violations = [violation_to_json(violation) for violation in verdict.violations]
            replies.problem(problem("invalid-mapping", broken, violations=violations))
            return
        assignment = verdict.assignment
        assumed = assignment_to_json(verdict.assumed)
        assumed.pop("mapping")
    elif restrictions.prefers:
        assignment = _preferred(request, context)
    else:
        assignment = next(drawn(request, part.space, 1, seed, False, context.watch))
    if request.mode is Mode.PAPER:
        assignment = with_values(request, assignment)
    replies.end(kernel_json(request, assignment) | {"assumed": assumed})


def _preferred(request: Request, context: Context) -> Assignment:
    """The mapping that meets the preferences best, as far as the time sufficed."""
    found = best(
        request.space, request.restrictions,
        time_limit_s=context.watch.left_s, cancelled=context.watch.cancelled,
    )  # fmt: skip
    if found is None:
        raise empty_space_error(request, context.watch.left_s)
    return dict(found.assignment)


def kernel_json(request: Request, assignment: Assignment) -> dict[str, Any]:
    """Source, host plan without it, memory and header facts of an assignment."""
    facts = checked_facts(request, assignment)
    plan = generate_kernels(request.subject, assignment, facts)
    plan_json = plan.to_json()
    source = plan_json.pop("source")
    chosen = assignment_to_json(assignment)
    subject = request.subject
    return {
        "source": source,
        "plan": plan_json,
        "memory": {"bytes": plan.memory_bytes, "extra_bytes": plan.extra_bytes},
        "choices": chosen,
        "facts": {
            "subject": subject.label,
            "variant": subject.variant,
            "variant_reason": request.variant().get("variant_reason", ""),
            "program": subject.hash(),
            "device": request.device.name,
            "mode": request.mode.value,
            "source": hashlib.sha256(source.encode()).hexdigest(),
            "nestmap": version("nestmap"),
        },
    }
