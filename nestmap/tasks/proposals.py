"""``propose`` requests: the next candidates of a tuning run, each as a measure job.

Artifacts (kernel sources, inputs, references) are written into the spool folder that the request
names; a later proposal refers to the inputs of the first by hash. Only the farm's own runner
sends such requests: no client of the API can.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, cast

from db.canonical import canonical_json, content_hash
from db.farm.plausible import MULTIPLY_ADDS
from mapper.ast_model.json_reader import JsonObject
from mapper.constraint_rules.predicate import ParameterVariable
from mapper.constraint_rules.rule import Mode
from mapper.errors import InputError, Problem
from mapper.measurement import Timed
from mapper.variants import LAST_RESORT
from nestmap.tasks.context import Context
from nestmap.tasks.earlier_runs import learned_from
from nestmap.tasks.replies import Replies
from nestmap.tasks.request_fields import Envelope, read_device, read_subject
from nestmap.tasks.run_requests import MOST_VARIANTS, ProposeRequest, read_propose
from nestmap.tasks.run_search import RunSearch, Variant
from nestmap.tasks.workload_files import Spool, measure_job, workload_json
from nestmap.tuning.candidates import Candidate
from nestmap.tuning.learned import LearnedModel
from nestmap.tuning.policy import device_identity
from nestmap.tuning.sketch_subjects import as_written, derived
from nestmap.tuning.tuned_subjects import tuned_subjects


def propose(envelope: Envelope, context: Context, replies: Replies) -> None:
    """Candidates as items, the studies that they are of and the next state in the end."""
    request = read_propose(envelope)
    names = request.run.variants or _sketches(request)
    variants = [_variant(request, name, context) for name in names]
    _require_same_programs(variants, request.known.state)
    sizes = _batch_sizes(request.known.state)
    profile = variants[0].part.request.device
    search = context.searches.take(request.key, sizes)
    if search is None:
        search = _new_search(request, variants, context, replies)
    search.use(context.watch)
    # What was proposed by others since.
    for place in range(len(search.batches), len(sizes)):
        search.batch(sizes[place], request.known.outcomes, request.known.lost)
        replies.progress({"done": place + 1, "of": len(sizes) + 1})
    refused_before = len(search.refused)
    search.batch(request.count, request.known.outcomes, request.known.lost)
    spool = Spool(request.spool, replies)
    state = _Workloads(request, spool)
    batch = search.batches[-1]
    timeout_s = request.run.timeouts.timeout_s(_best_ms(search, request))
    for candidate in batch:
        context.watch.tick()
        variant = variants[candidate.subject_index]
        workload = state.of(variant, candidate)
        layer = variant.subject.layer
        work = {} if layer is None else {MULTIPLY_ADDS: layer.macs}
        replies.item(
            {"candidate": _candidate(candidate, request, workload, spool, timeout_s, work)}
        )
    replies.end(
        {
            "device": {"name": profile.name, "facts": device_identity(request.facts)},
            "studies": [_study(variant, request) for variant in variants],
            "exhausted": search.exhausted,
            "state": {
                "batches": [*sizes, len(batch)],
                "workloads": state.known,
                "programs": [variant.program_hash for variant in variants],
                "variants": list(names),
                "best": list(request.known.best),
            },
            "report": {"refused": search.refused[refused_before:]},
        }
    )
    context.searches.keep(request.key, search)


def _new_search(
    request: ProposeRequest, variants: Sequence[Variant], context: Context, replies: Replies
) -> RunSearch:
    run, profile = request.run, variants[0].part.request.device
    learned: LearnedModel | None = None
    if run.transfer:
        programs = [variant.program_hash for variant in variants]
        earlier = request.known.earlier
        learned = learned_from(earlier, profile, programs, run.seed, context, replies)
    return RunSearch(
        variants,
        profile,
        request.facts,
        run.strategy,
        run.seed,
        context.watch,
        learned,
        request.known.best,
    )


def _sketches(request: ProposeRequest) -> tuple[str | None, ...]:
    """What is tuned of the subject on the device, as the command line tunes it."""
    device = read_device(request.profile, "/device/profile")
    subject = read_subject({"subject": request.run.subject}, default=LAST_RESORT)
    found = derived(tuned_subjects(subject, None, request.facts, device))
    return tuple(subject.variant or None for subject in found[:MOST_VARIANTS])


def _variant(request: ProposeRequest, name: str | None, context: Context) -> Variant:
    fields: JsonObject = {
        "subject": request.run.subject,
        "variant": name,
        "device": request.profile,
        "mode": request.run.mode.value,
        **request.run.stated,
    }
    read_device(request.profile, "/device/profile")
    if request.run.mode is Mode.STRICT and request.run.has_schedule(name):
        # A sketch was made for what suits the device.
        fields = {"suits": ["all"], **fields}
    known = context.spaces.of(fields)
    subject = known.request.subject
    subject.require_program()
    part = known.part(request.run.restrictions, True, context.watch)
    program_hash = content_hash(canonical_json(subject.to_json()))
    return Variant(subject, part, program_hash)


def _require_same_programs(variants: Sequence[Variant], state: JsonObject) -> None:
    """InputError where the run was begun with other programs: outcomes are kept by their places."""
    begun = state.get("programs")
    if begun is not None and begun != [variant.program_hash for variant in variants]:
        raise InputError(
            Problem(
                "/history/state/programs",
                "the run was begun with other programs, by another version of nestmap",
                str(begun)[:80],
                "begin a new run: what this one has measured is kept, and a run can learn from it",
            )
        )


def _batch_sizes(state: JsonObject) -> list[int]:
    value = state.get("batches", [])
    sizes = cast("list[object]", value) if isinstance(value, list) else [value]
    if any(not isinstance(size, int) or not 0 <= size <= 10_000 for size in sizes):
        raise InputError(Problem("/history/state/batches", "not sizes of batches", str(value)[:80]))
    return cast("list[int]", sizes)


def _best_ms(search: RunSearch, request: ProposeRequest) -> float | None:
    """The best time among batches that have ended: it does not depend on who was faster."""
    places = [(c.subject_index, c.id) for batch in search.batches[:-2] for c in batch]
    outcomes = (request.known.outcomes.get(place) for place in places)
    return min((o.time_ms for o in outcomes if isinstance(o, Timed)), default=None)


class _Workloads:
    """Descriptions of workloads by what they are of; those of earlier proposals stand."""

    def __init__(self, request: ProposeRequest, spool: Spool) -> None:
        given = request.known.state.get("workloads")
        self.known: dict[str, Any] = dict(cast("Any", given)) if isinstance(given, dict) else {}
        self._spool = spool

    def of(self, variant: Variant, candidate: Candidate) -> dict[str, Any]:
        # The same for all variants of a layer, and for all schedules of a program.
        subject = as_written(variant.subject)
        text = json.dumps(subject.to_json() if subject.layer is None else subject.layer.to_json())
        key = content_hash(text)
        if key not in self.known:
            parameters = {
                p.name: candidate.assignment[ParameterVariable(p.name)]
                for p in subject.require_program().parameters
            }
            self.known[key] = workload_json(subject, parameters, self._spool)
        return self.known[key]


def _study(variant: Variant, request: ProposeRequest) -> dict[str, Any]:
    program = variant.subject.to_json()
    return {
        "program_schema": program["schema"],
        "program": program,
        "variant": variant.subject.variant,
        "mode": request.run.mode.value,
        "seed": request.run.seed,
    }


def _candidate(
    candidate: Candidate,
    request: ProposeRequest,
    workload: dict[str, Any],
    spool: Spool,
    timeout_s: float,
    work: dict[str, int],
) -> dict[str, Any]:
    payload, artifacts = measure_job(
        candidate.id, candidate.plan, workload, request.run.protocol, timeout_s, spool
    )
    return {
        "study": candidate.subject_index,
        "record": asdict(candidate.record),
        "payload": {**payload, **work},
        "artifacts": artifacts,
    }
