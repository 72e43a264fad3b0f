"""``portrait`` and ``prediction`` requests: all that a reader wants to know of one candidate.

A portrait says what the candidate does and why it is valid; a prediction what the cost model
expects of it, from constants that are fitted to other candidates of the same study.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from mapper.ast_model.bounded_json import kind_of
from mapper.ast_model.json_reader import JsonObject
from mapper.ast_model.text_form import to_text
from mapper.constraint_rules.preferences import PREFERENCES
from mapper.constraint_rules.rule import Mode
from mapper.cost.analytic import (
    Counts,
    DeviceConstants,
    bound_ms,
    counts_of,
    fitted,
    predicted_ms,
    rank_correlation,
)
from mapper.errors import InputError, LimitError, NestmapError, Problem
from mapper.kernel_gen.explanation import explain
from mapper.pipeline import (
    Assignment,
    assignment_to_json,
    choices_of,
    generate_kernels,
    origin_of,
)
from nestmap.answers import checked_facts, constraint_to_json
from nestmap.finding import with_values
from nestmap.mappings import judge
from nestmap.requests import Request
from nestmap.tasks.context import Context
from nestmap.tasks.kinds import given_mapping
from nestmap.tasks.limits import refuse_large_model
from nestmap.tasks.replies import Replies
from nestmap.tasks.request_fields import Envelope, Fields

#: Candidates that constants are fitted to: more say little more, and each has to be generated.
MOST_MEASURED = 64


def portrait(envelope: Envelope, context: Context, replies: Replies) -> None:
    """Each constraint as an item, with whether it ``holds``; in the end the loops, barriers and
    memory of each kernel, its source and its host plan, and the program."""
    fields = Fields(envelope, ("mapping",))
    mapping = fields.object("mapping")
    fields.finish()
    request = context.spaces.of(envelope.fields).request
    program = request.subject.require_program()
    refuse_large_model(request.space, context.limits)
    verdict = judge(
        request.space,
        given_mapping(request, mapping or {}).assignment,
        context.watch.left_s,
    )
    broken = {v.constraint for v in (*verdict.violations, *verdict.preferences)}
    for constraint in request.space.constraints:
        context.watch.tick()
        value = constraint_to_json(constraint)
        # The predicates of a whole layer are megabytes; ``constraints`` has them.
        value.pop("predicate")
        kind = "preference" if constraint.rule in PREFERENCES else "constraint"
        replies.item({**value, "kind": kind, "holds": constraint.id not in broken})
    end: dict[str, Any] = {
        "label": request.subject.label,
        "variant": request.subject.variant,
        "mode": request.mode.value,
        "device": request.device.name,
        "valid": verdict.valid,
        "program": to_text(program),
        "assignment": assignment_to_json(verdict.assignment),
        "kernels": [],
        "plan": None,
        "source_hash": None,
        "memory_bytes": None,
        "checked": [],
    }
    if verdict.valid:
        end |= _kernels(request, dict(verdict.assignment))
    replies.end(end)


def _kernels(request: Request, assignment: Assignment) -> dict[str, Any]:
    if request.mode is Mode.PAPER:
        assignment = with_values(request, assignment)
    # In the space's order, which parameters are printed in; what came was sorted by a store.
    order = [variable for variable, _ in request.space.variables if variable in assignment]
    assignment = {**{variable: assignment[variable] for variable in order}, **assignment}
    subject = request.subject
    facts = checked_facts(request, assignment)
    plan = generate_kernels(subject, assignment, facts)
    plan_json = plan.to_json()
    # Of what is stored nothing was said in words.
    plain = generate_kernels(subject, assignment).source
    kernels = explain(subject.require_program(), choices_of(assignment), origin_of(subject))
    return {
        "assignment": assignment_to_json(assignment),
        "kernels": [asdict(kernel) for kernel in kernels],
        "source": plan_json.pop("source"),
        "plan": plan_json,
        "source_hash": hashlib.sha256(plain.encode()).hexdigest(),
        "memory_bytes": plan.memory_bytes,
        "checked": list(facts),
    }


@dataclass(frozen=True, slots=True)
class _Measured:
    """Another candidate of the study: what was chosen, and its median time in ms."""

    chosen: Mapping[str, Any]
    time_ms: float


def prediction(envelope: Envelope, context: Context, replies: Replies) -> None:
    """What the cost model expects of a ``mapping``, fitted to the candidates in ``measured``
    (``{"mapping": …, "parameters": …, "local_sizes": …, "time_ms": …}``); the candidate itself
    should not be among them. An item for each that was used, in their order; with too few of
    them the constants are those of no device in particular, and ``fitted`` is 0."""
    fields = Fields(envelope, ("mapping", "measured"))
    mapping = fields.object("mapping")
    fields.finish()
    others = _measured(envelope.fields.get("measured", []))
    request = context.spaces.of(envelope.fields).request
    request.subject.require_program()
    refuse_large_model(request.space, context.limits)
    counts = _counts(request, mapping or {}, context)
    used: list[tuple[Counts, float]] = []
    for number, other in enumerate(others):
        context.watch.tick()
        try:
            used.append((_counts(request, other.chosen, context), other.time_ms))
        except LimitError:
            raise
        except NestmapError:
            # Of another release, whose candidates this one does not print.
            continue
        replies.progress({"done": number + 1, "of": len(others)})
    constants, error = _constants(used)
    for found, time_ms in used:
        replies.item({"predicted_ms": predicted_ms(found, constants), "time_ms": time_ms})
    told = [predicted_ms(found, constants) for found, _ in used]
    replies.end(
        {
            "predicted_ms": predicted_ms(counts, constants),
            "bound_ms": bound_ms(counts, constants),
            "fitted": 0 if error is None else len(used),
            "median_error": error,
            "rank_correlation": rank_correlation(told, [time_ms for _, time_ms in used]),
            "counts": asdict(counts),
            "constants": constants.to_json(),
        }
    )


def _constants(used: Sequence[tuple[Counts, float]]) -> tuple[DeviceConstants, float | None]:
    """Fitted constants with the median relative error, or the general ones with None."""
    try:
        return fitted([c for c, _ in used], [t for _, t in used], DeviceConstants().lanes)
    except InputError:
        return DeviceConstants(), None


def _counts(request: Request, chosen: Mapping[str, Any], context: Context) -> Counts:
    given = given_mapping(request, dict(chosen)).assignment
    assignment: Assignment = dict(judge(request.space, given, context.watch.left_s).assignment)
    if request.mode is Mode.PAPER:
        assignment = with_values(request, assignment)
    choices = choices_of(assignment)
    codes = {str(name): code for name, code in choices.codes.items()}
    plan = generate_kernels(request.subject, assignment)
    program = request.subject.require_program()
    return counts_of(program, choices.parameters, codes, plan, request.device)


def _measured(value: object) -> list[_Measured]:
    entries = cast("list[object]", value) if isinstance(value, list) else [value]
    if len(entries) > MOST_MEASURED:
        raise InputError(
            Problem("/measured", "too many candidates", str(len(entries)), str(MOST_MEASURED))
        )
    return [_other(f"/measured/{number}", entry) for number, entry in enumerate(entries)]


def _other(path: str, entry: object) -> _Measured:
    fields: JsonObject = cast("JsonObject", entry) if isinstance(entry, dict) else {}
    time_ms = fields.get("time_ms")
    if isinstance(time_ms, bool) or not isinstance(time_ms, int | float) or not time_ms > 0:
        raise InputError(Problem(f"{path}/time_ms", "not a time", kind_of(time_ms), "ms above 0"))
    chosen = {name: value for name, value in fields.items() if name != "time_ms"}
    return _Measured(chosen, float(time_ms))
