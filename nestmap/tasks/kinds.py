"""The kinds of requests that are about a space, each a function that writes its replies."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from math import prod
from typing import Any

from mapper.ast_model.nest import NestMap
from mapper.constraint_rules.predicate import CodeVariable, ParameterVariable, value_text
from mapper.cost.analytic import DeviceConstants
from mapper.errors import InputError, LimitError, Problem
from mapper.pipeline import Assignment, answer_to_json
from mapper.solver.enumeration import enumerate_assignments
from mapper.solver.explanation import explain_conflict
from mapper.solver.limits import SolveLimits, Watch
from mapper.solver.nearest import nearest
from mapper.solver.restrictions import Restrictions
from mapper.solver.space import Space
from mapper.tuning_space.configuration import configuration_from_json
from mapper.variants import VARIANTS
from nestmap.answers import (
    EmptySpaceError,
    assumed_to_json,
    conflict_to_json,
    constraint_counts,
    constraint_to_json,
    empty_space_error,
    nearest_to_json,
    variable_kind,
    violation_to_json,
)
from nestmap.finding import (
    by_preference,
    counted,
    counted_by_strata,
    drawn,
    drawn_by_strata,
    out_of_time,
)
from nestmap.mappings import Given, judge, read_mapping, without_preferences
from nestmap.predicting import best_of_request
from nestmap.requests import Request, refuse_unpredictable
from nestmap.restrictions import option_name
from nestmap.tasks.context import Context
from nestmap.tasks.known_spaces import KnownPart
from nestmap.tasks.limits import refuse_large_model
from nestmap.tasks.replies import Replies
from nestmap.tasks.request_fields import Envelope, Fields, RestrictionTexts

MOST_ITEMS = 10_000_000
#: A page that somebody reads, or the ranks of a stream.
MOST_SKIPPED = 2**62
MOST_BEST = 1_000
_PROGRESS_S = 0.5
#: What is left of the time when the solver is stopped, so that what it found is still answered.
_ANSWERING_S = 5.0
_ANSWERING_SHARE = 0.2


def describe(envelope: Envelope, context: Context, replies: Replies) -> None:
    """What the subject is: its hash and document, kernels with their nests, variables."""
    Fields(envelope, ())
    request = context.spaces.of(envelope.fields).request
    subject = request.subject
    for variable, domain in request.space.variables:
        labelled = isinstance(variable, ParameterVariable) and bool(variable.labels)
        replies.item(
            {
                "name": option_name(variable),
                "kind": variable_kind(variable),
                "values": [value_text(variable, v) if labelled else v for v in domain],
            }
        )
    value: dict[str, Any] = {
        "label": subject.label,
        "variant": subject.variant,
        "hash": subject.hash(),
        "schema": subject.to_json()["schema"],
        "document": subject.to_json(),
        "layer": None if subject.layer is None else subject.layer.to_json(),
        "variant_reason": request.variant().get("variant_reason"),
        "answer": subject.answer,
        "has_kernels": subject.program is not None,
        "kernels": [
            {"name": nest.name, "maps": [_map_to_json(item) for item in nest.roots]}
            for nest in subject.nests
        ],
        **constraint_counts(request),
    }
    if subject.layer is not None:
        layer = subject.layer
        refusals = {name: variant.applies(layer) for name, variant in VARIANTS.items()}
        value["variants"] = {
            name: None if refusal is None else str(refusal) for name, refusal in refusals.items()
        }
    replies.end(value)


def _map_to_json(item: NestMap) -> dict[str, Any]:
    return {
        "id": item.id,
        "trip": str(item.trip),
        "reads": sorted(memory.value for memory in item.reads),
        "writes": item.writes.value,
        "nested": [_map_to_json(inner) for inner in item.nested],
    }


def constraints(envelope: Envelope, context: Context, replies: Replies) -> None:
    """Every constraint instance, with its rule, subjects, reason and source."""
    Fields(envelope, ())
    request = context.spaces.of(envelope.fields).request
    for constraint in request.space.constraints:
        context.watch.tick()
        replies.item(constraint_to_json(constraint))
    replies.end({**constraint_counts(request), **request.variant()})


def waterfall(envelope: Envelope, context: Context, replies: Replies) -> None:
    """How many are left after each rule: exact, or null where that was not found in time."""
    fields = Fields(envelope, ("joint",))
    joint = fields.flag("joint", False)
    fields.finish()
    request = context.spaces.of(envelope.fields).request
    space = request.space
    rules = list(dict.fromkeys(constraint.rule for constraint in space.constraints))
    codes = any(isinstance(variable, CodeVariable) for variable, _ in space.variables)
    before: int | None = prod(
        len(domain)
        for variable, domain in space.variables
        if joint or not codes or isinstance(variable, CodeVariable)
    )
    replies.progress({"done": 0, "of": len(rules)})
    for place, rule in enumerate(rules):
        applied = frozenset(rules[: place + 1])
        left = tuple(c for c in space.constraints if c.rule in applied)
        after = _counted_in(Space(space.variables, left), joint, context, len(rules) - place)
        number = sum(constraint.rule == rule for constraint in left)
        replies.item({"rule": rule, "constraints": number, "before": before, "after": after})
        replies.progress({"done": place + 1, "of": len(rules)})
        before = after
    complete = before is not None
    replies.end({"of": _counted_what(joint), "complete": complete, **request.variant()})


def _counted_in(space: Space, joint: bool, context: Context, steps: int) -> int | None:
    """A count within its share of the time that is left; None where that did not suffice."""
    left_s = context.watch.left_s
    share = None if left_s is None else left_s / steps
    limits = SolveLimits(share, context.watch.limits.memory_bytes)
    context.watch.tick()
    try:
        number, complete = counted(space, joint, Watch(limits, context.watch.cancelled))
    except LimitError:
        return None
    return number if complete else None


def mappings(envelope: Envelope, context: Context, replies: Replies) -> None:
    """Valid mappings with values, from the place ``after`` on; all of them without ``limit``.

    ``joint``: every assignment of schedules, parameters and sizes, not one for each mapping.
    """
    fields = Fields(envelope, ("after", "limit", "joint", "up_to_symmetry"))
    skip = fields.integer("after", 0, 0, MOST_SKIPPED) or 0
    limit = fields.integer("limit", None, 1, MOST_ITEMS)
    joint = fields.flag("joint", False)
    symmetric = not fields.flag("up_to_symmetry", False)
    restrictions = fields.restrictions()
    fields.finish()
    part = _part(envelope, context, restrictions, symmetric)
    found, of = _found(part, context, skip, joint)
    number = 0
    for assignment in islice(found, limit):
        context.watch.tick()
        number += 1
        replies.item({"number": skip + number, **answer_to_json(part.request.subject, assignment)})
    more = limit is not None and number == limit and next(found, None) is not None
    if number == 0 and skip == 0:
        raise empty_space_error(part.request, context.watch.left_s)
    following = skip + number if more else None
    replies.end({"count": number, "next": following, "of": of, **part.request.variant()})


def _found(
    part: KnownPart, context: Context, skip: int, joint: bool
) -> tuple[Iterator[Assignment], str]:
    watch = context.watch
    if part.request.restrictions.preferred:
        refuse_large_model(part.space, context.limits)
        return islice(by_preference(part.request, watch), skip, None), "assignments"
    if not joint:
        try:
            part.solved()
            return part.listed(skip), "mappings"
        except LimitError:
            if watch.left_s == 0:
                raise
            # Too large to be taken apart: CP-SAT may still find some.
    refuse_large_model(part.space, context.limits)
    return islice(_assignments(part, watch), skip, None), "assignments"


def _assignments(part: KnownPart, watch: Watch) -> Iterator[Assignment]:
    with enumerate_assignments(
        part.space, time_limit_s=watch.left_s, cancelled=watch.cancelled
    ) as found:
        yield from found
        if not found.complete:
            watch.tick()
            raise out_of_time("all were found", f"{found.count}", watch)


def count(envelope: Envelope, context: Context, replies: Replies) -> None:
    """How many mappings, or assignments (``joint``); a lower bound if not ``complete``."""
    fields = Fields(envelope, ("joint", "stratify", "up_to_symmetry"))
    joint, stratify = fields.flag("joint", False), fields.flag("stratify", False)
    symmetric = not fields.flag("up_to_symmetry", False)
    restrictions = fields.restrictions()
    fields.finish()
    part = _part(envelope, context, restrictions, symmetric, stratify, "a count")
    with _progressing(part.watch, replies):
        number, complete = _count_of(part, joint)
    value: dict[str, Any] = {
        "count" if complete else "at_least": number,
        "of": _counted_what(joint),
        "complete": complete,
        "mode": part.request.mode.value,
        **constraint_counts(part.request),
        **part.request.variant(),
    }
    if stratify and complete:
        value["by_dimensions"] = dict(counted_by_strata(part.space, joint, context.watch))
    replies.end(value)


def _count_of(part: KnownPart, joint: bool) -> tuple[int, bool]:
    try:
        return part.counted(joint), True
    except LimitError:
        if part.watch.left_s != 0:
            raise
        at_least = 0 if joint or part.solutions is None else part.solutions.counted
        return at_least, False


class _progressing:
    """Reports what a count has done, a few times a second."""

    def __init__(self, watch: Watch, replies: Replies) -> None:
        self._watch = watch
        self._replies = replies
        self._last = 0.0

    def __enter__(self) -> None:
        self._watch.progress = self._report

    def __exit__(self, *exception: object) -> None:
        self._watch.progress = None

    def _report(self, done: float) -> None:
        now = time.monotonic()
        if now - self._last >= _PROGRESS_S:
            self._last = now
            self._replies.progress({"done": round(done, 4)})


def sample(envelope: Envelope, context: Context, replies: Replies) -> None:
    """``count`` different mappings, or assignments (``joint``), uniform, by their ``seed``."""
    fields = Fields(envelope, ("count", "seed", "joint", "stratify", "up_to_symmetry"))
    number = fields.integer("count", 1, 1, MOST_ITEMS) or 1
    seed = fields.integer("seed", 0, 0, 2**63 - 1) or 0
    joint, stratify = fields.flag("joint", False), fields.flag("stratify", False)
    symmetric = not fields.flag("up_to_symmetry", False)
    restrictions = fields.restrictions()
    fields.finish()
    part = _part(envelope, context, restrictions, symmetric, stratify, "a sample")
    refuse_large_model(part.space, context.limits)
    draw = drawn_by_strata if stratify else drawn
    given = 0
    reasons: list[str] = []
    found = draw(
        part.request, part.space, number, seed, joint, context.watch,
        lambda error: reasons.append(str(error.problems[0])),
    )  # fmt: skip
    for assignment in found:
        replies.item(answer_to_json(part.request.subject, assignment))
        given += 1
    end: dict[str, Any] = {"count": given, "of": _counted_what(joint), "seed": seed}
    end |= part.request.variant()
    replies.end(end | ({"not_uniform": reasons[0]} if reasons else {}))


def best(envelope: Envelope, context: Context, replies: Replies) -> None:
    """The ``count`` assignments that are predicted to be fastest, and what none is predicted below.

    Where time is over before that is proved they are the best so far. ``constants`` are the
    analytic model's, of no device in particular where they are absent.
    """
    fields = Fields(envelope, ("count", "seed", "constants"))
    number = fields.integer("count", 10, 1, MOST_BEST) or 10
    seed = fields.integer("seed", 0, 0, 2**63 - 1) or 0
    given = fields.object("constants", required=False)
    restrictions = fields.restrictions()
    fields.finish()
    constants = DeviceConstants() if given is None else _read_constants(given)
    part = _part(envelope, context, restrictions, True, unordered="what is predicted to be fast")
    request = part.request
    refuse_unpredictable(request, "/subject", "/mode")
    refuse_large_model(part.space, context.limits)
    _leave_time_to_answer(context.watch)
    with _progressing(context.watch, replies):
        found = best_of_request(request, number, constants, seed, context.watch)
    for entry in found.found:
        chosen = answer_to_json(request.subject, entry.assignment)
        replies.item({**chosen, "predicted_ms": entry.time_ms})
    replies.end(
        {
            "count": len(found.found),
            "bound_ms": found.bound_ms if found.found else None,
            "gap": found.gap,
            "proved": found.proved,
            "predicted": found.predicted,
            "seed": seed,
            **request.variant(),
        }
    )


def _read_constants(given: dict[str, Any]) -> DeviceConstants:
    try:
        return DeviceConstants.from_json(given)
    except InputError as error:
        raise InputError(
            Problem("/constants", p.message, p.found, p.allowed, p.remedy) for p in error.problems
        ) from error


def _leave_time_to_answer(watch: Watch) -> None:
    """A child is ended half a second past its time, whatever it has found."""
    time_s = watch.limits.time_s
    if time_s is not None:
        kept_s = min(_ANSWERING_S, _ANSWERING_SHARE * time_s)
        watch.limits = replace(watch.limits, time_s=time_s - kept_s)


def check(envelope: Envelope, context: Context, replies: Replies) -> None:
    """Whether a mapping is valid, else what it breaks and, if ``nearest``, what to change."""
    fields = Fields(envelope, ("mapping", "nearest"))
    mapping = fields.object("mapping")
    wanted = fields.flag("nearest", True)
    restrictions = fields.restrictions()
    fields.finish()
    part = _part(envelope, context, restrictions, True)
    request, left_s = part.request, context.watch.left_s
    given = given_mapping(request, mapping or {})
    refuse_large_model(request.space, context.limits)
    verdict = judge(request.space, given.assignment, left_s)
    value: dict[str, Any] = {
        "valid": verdict.valid,
        "mode": request.mode.value,
        "violations": [violation_to_json(violation) for violation in verdict.violations],
        "preferences": [violation_to_json(violation) for violation in verdict.preferences],
        "assumed": assumed_to_json(request.subject, verdict.assumed),
        "ignored": list(given.ignored),
        "assignment": answer_to_json(request.subject, verdict.assignment),
        **request.variant(),
    }
    if verdict.guessed:
        pinned = Request(
            request.subject, request.device, request.mode, request.space,
            Restrictions(given.assignment),
        )  # fmt: skip
        value["completion_conflict"] = _conflict(pinned, context)
    if wanted and not verdict.valid:
        value["nearest"] = None
        try:
            found = nearest(
                without_preferences(request.space), given.assignment, request.restrictions,
                time_limit_s=context.watch.left_s, cancelled=context.watch.cancelled,
            )  # fmt: skip
        except LimitError as error:
            value["nearest_limit"] = str(error.problems[0])
        else:
            if found is None:
                value["conflict"] = _conflict(request, context)
            else:
                value["nearest"] = nearest_to_json(request.subject, found)
    replies.end(value)


def _conflict(request: Request, context: Context) -> dict[str, Any] | None:
    error = empty_space_error(request, context.watch.left_s)
    return error.conflict if isinstance(error, EmptySpaceError) else None


def explain(envelope: Envelope, context: Context, replies: Replies) -> None:
    """Whether nothing is left, and if so a minimal set of what cannot hold together."""
    fields = Fields(envelope, ())
    restrictions = fields.restrictions()
    fields.finish()
    request = _part(envelope, context, restrictions, True).request
    refuse_large_model(request.space, context.limits)
    conflict = explain_conflict(
        request.space, request.restrictions,
        time_limit_s=context.watch.left_s, cancelled=context.watch.cancelled,
    )  # fmt: skip
    replies.end(
        {
            "empty": conflict is not None,
            "conflict": None if conflict is None else conflict_to_json(conflict),
            **request.variant(),
        }
    )


def given_mapping(request: Request, mapping: dict[str, Any]) -> Given:
    """A mapping of a request; InputError points below ``/mapping``."""
    text = json.dumps(mapping)
    try:
        if request.subject.tuning_space is not None:
            return Given(configuration_from_json(request.subject.tuning_space, text))
        return read_mapping(request.space, text, request.mode)
    except InputError as error:
        raise InputError(
            Problem(_under_mapping(p.path), p.message, p.found, p.allowed, p.remedy)
            for p in error.problems
        ) from error


def _under_mapping(path: str) -> str:
    return f"/mapping{path}" if path.startswith("/") or not path else f"/mapping/{path}"


def _part(
    envelope: Envelope,
    context: Context,
    restrictions: RestrictionTexts,
    symmetric: bool,
    stratify: bool = False,
    unordered: str = "",
) -> KnownPart:
    """The part of a space that a request leaves; InputError for what does not go together."""
    known = context.spaces.of(envelope.fields)
    if (stratify or not symmetric) and not known.request.subject.nests:
        field = "/stratify" if stratify else "/up_to_symmetry"
        raise InputError(Problem(field, "a tuning space has no dimensions", "true", "false"))
    if unordered and restrictions.prefers:
        raise InputError(
            Problem("/prefer", f"preferences order what is listed: they do not change {unordered}",
                    restrictions.prefers[0], "no preferences")
        )  # fmt: skip
    return known.part(restrictions, symmetric, context.watch)


def _counted_what(joint: bool) -> str:
    return "assignments" if joint else "mappings"
