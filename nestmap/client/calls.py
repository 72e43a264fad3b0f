"""Every request that the client makes, described once: no sockets, no waiting.

A :class:`Call` says what is sent and what shape the answer has. ``Client`` and ``AsyncClient``
make the same calls (:mod:`nestmap.client.flows` says what happens between them).
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote

from typing_extensions import TypedDict

from mapper.errors import InputError, Problem
from nestmap.client import documents
from nestmap.client.errors import bad_answer
from nestmap.client.replies import JSON

T = TypeVar("T")
MOST_ANSWER_BYTES = 64 * 2**20
NDJSON = "application/x-ndjson"
EVENTS = "text/event-stream"
_KEY = re.compile("[\x21-\x7e]{1,200}")
_FORMS = ("name", "id", "document", "text")
#: A layer by its name, a document of it (or of a program, nest tree, tuning space), or the API's
#: own form with one of the fields ``name``, ``id``, ``document``, ``text``.
SubjectLike = str | Mapping[str, Any]
ExportFormat = Literal["csv", "json", "ndjson", "t4"]
DeviceStep = Literal["quarantine", "release", "disable", "enable"]


class About(TypedDict, total=False):
    """What is asked about beside the subject; see the service's ``/docs``."""

    variant: str | None
    mode: Literal["strict", "paper"]
    device: str | Mapping[str, Any]
    time_limit_s: float | None
    suits: Sequence[str]
    sequential_fusion: bool
    replicate_private: bool
    free_grid: bool
    where: Sequence[str]


class Restricted(About, total=False):
    """With values pinned (``28=W0``) and forbidden."""

    pin: Sequence[str]
    forbid: Sequence[str]


class MappingsQuestion(Restricted, total=False):
    """Which mappings, in which order, how many at most."""

    prefer: Sequence[str]
    limit: int | None
    joint: bool
    up_to_symmetry: bool


class CountQuestion(Restricted, total=False):
    """What is counted."""

    joint: bool
    stratify: bool
    up_to_symmetry: bool


class SampleQuestion(CountQuestion, total=False):
    """What is drawn."""

    number: int
    seed: int


class BestQuestion(Restricted, total=False):
    """How many are found, and by which constants of the analytic model."""

    number: int
    seed: int
    constants: Mapping[str, float] | None


class CheckQuestion(Restricted, total=False):
    """Whether the valid mapping with the fewest changes is looked for (it is)."""

    nearest: bool


class KernelQuestion(Restricted, total=False):
    """Of which mapping: the one given, the preferred one, or one drawn by ``seed``."""

    mapping: Mapping[str, Any] | None
    prefer: Sequence[str]
    seed: int


class RunQuestion(TypedDict, total=False):
    """How a run is made; ``stand_ins`` are devices of the same profile that measure, too."""

    stand_ins: Sequence[str]
    variants: Sequence[str] | None
    mode: Literal["strict", "paper"]
    strategy: str
    transfer: bool
    seed: int
    protocol: Mapping[str, float] | None
    budget: Mapping[str, float | None]
    label: str | None
    priority: int
    low_water: int


class Filters(TypedDict, total=False):
    """Which measurements; times are RFC 3339 texts with a zone."""

    run: str | None
    study: int | None
    device: str | None
    layer: str | None
    program: str | None
    candidate: str | None
    label: str | None
    mode: str | None
    outcome: str | None
    since: str | None
    until: str | None


class FrontFilters(Filters, total=False):
    """With bounds."""

    max_memory_bytes: int | None
    max_time_ms: float | None


class RunFilters(TypedDict, total=False):
    """Which runs."""

    state: str | None
    device: str | None
    label: str | None


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request and the shape of its answer.

    ``repeatable``: it may be sent again after a lost connection, since it changes nothing or the
    service knows a repeat. ``streamed``: the body of a 200 is read as it comes. ``waits_s``: how
    long the answer may be silent beside the network's own delays.
    """

    method: str
    path: str
    shape: type[T]
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()
    repeatable: bool = True
    streamed: bool = False
    accept: str = JSON
    waits_s: float = 0.0

    def with_header(self, name: str, value: str) -> Call[T]:
        """The same call with one header more."""
        return replace(self, headers=(*self.headers, (name, value)))


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A list in pages; ``shape`` is that of an item."""

    first: Call[documents.Page]
    shape: type[T]

    def after(
        self, call: Call[documents.Page], page: documents.Page
    ) -> Call[documents.Page] | None:
        """The call for what follows a page; None behind the last. ServiceError for a page that
        says that itself follows."""
        following = page["next"]
        if following is None:
            return None
        query = (*self.first.query, ("cursor", following))
        if query == call.query:
            raise bad_answer("a page is followed by itself", following)
        return replace(self.first, query=query)


def describe(subject: SubjectLike, about: About) -> Call[documents.SubjectDescription]:
    """What a subject is."""
    return _ask("/v1/subjects/describe", documents.SubjectDescription, subject, about)


def constraints(subject: SubjectLike, about: About) -> Call[documents.ConstraintList]:
    """Every constraint."""
    return _ask("/v1/constraints", documents.ConstraintList, subject, about)


def waterfall(subject: SubjectLike, about: About, joint: bool) -> Call[documents.Waterfall]:
    """How many are left after each rule."""
    return _ask("/v1/constraints/waterfall", documents.Waterfall, subject, about, joint=joint)


def count(subject: SubjectLike, question: CountQuestion) -> Call[documents.Count]:
    """How many there are."""
    return _ask("/v1/mappings/count", documents.Count, subject, question)


def sample(subject: SubjectLike, question: SampleQuestion) -> Call[documents.Sample]:
    """Some of them."""
    return _ask("/v1/mappings/sample", documents.Sample, subject, question)


def best(subject: SubjectLike, question: BestQuestion) -> Call[documents.BestPredicted]:
    """Those that are predicted to be fastest."""
    return _ask("/v1/mappings/best", documents.BestPredicted, subject, question)


def check(
    subject: SubjectLike, mapping: Mapping[str, Any], question: CheckQuestion
) -> Call[documents.Verdict]:
    """Whether a mapping is valid."""
    path, shape = "/v1/mappings/check", documents.Verdict
    return _ask(path, shape, subject, question, mapping=dict(mapping))


def explain(subject: SubjectLike, about: Restricted) -> Call[documents.Conflict]:
    """Why nothing is left."""
    return _ask("/v1/mappings/explain", documents.Conflict, subject, about)


def mappings(subject: SubjectLike, question: MappingsQuestion) -> Call[documents.StreamEnd]:
    """All of them, or the first ``limit``, as lines."""
    asked = _ask("/v1/mappings/stream", documents.StreamEnd, subject, question)
    return replace(asked, streamed=True, accept=NDJSON)


def kernel(subject: SubjectLike, question: KernelQuestion) -> Call[documents.KernelDocument]:
    """The kernels of a mapping."""
    return _ask("/v1/kernels", documents.KernelDocument, subject, question)


def kernel_of_hash(kernel_hash: str) -> Call[documents.KernelDocument]:
    """Kernels that were asked for before."""
    return _get(f"/v1/kernels/{part(kernel_hash)}", documents.KernelDocument)


def add_layer(layer: Mapping[str, Any]) -> Call[documents.LayerDocument]:
    """Store a layer by its content."""
    return _post("/v1/layers", documents.LayerDocument, layer)


def add_program(program: str | Mapping[str, Any]) -> Call[documents.ProgramDocument]:
    """Store a program by its content: its text, or a document."""
    value = {"text" if isinstance(program, str) else "document": program}
    return _post("/v1/programs", documents.ProgramDocument, value, waits_s=60.0)


def create_run(
    device: str, subject: SubjectLike, question: RunQuestion, idempotency_key: str | None
) -> Call[documents.RunDocument]:
    """A run; with a key, so that it is created once however often this is sent."""
    value = {"device": device, "subject": subject_json(subject), **_present(question)}
    key = secrets.token_urlsafe(24) if idempotency_key is None else idempotency_key
    if not _KEY.fullmatch(key):
        raise InputError(Problem("idempotency_key", "not a key", repr(key)[:80], _KEY.pattern))
    call = _post("/v1/runs", documents.RunDocument, value, waits_s=60.0)
    return call.with_header("Idempotency-Key", key)


def runs(filters: RunFilters) -> Listing[documents.RunDocument]:
    """Runs, newest first."""
    return _list("/v1/runs", documents.RunDocument, filters)


def run(run: str) -> Call[documents.RunDocument]:
    """One run."""
    return _get(f"/v1/runs/{part(run)}", documents.RunDocument)


def step_run(run: str, step: Literal["pause", "resume", "cancel"]) -> Call[documents.RunDocument]:
    """A step of a run; the service allows repeats."""
    return Call("POST", f"/v1/runs/{part(run)}/{step}", documents.RunDocument)


def run_series(run: str) -> Call[documents.Series]:
    """How a run got better."""
    return _get(f"/v1/runs/{part(run)}/series", documents.Series)


def run_baselines(run: str) -> Call[documents.BaselinesDocument]:
    """What the best kernel of a run is held against."""
    return _get(f"/v1/runs/{part(run)}/baselines", documents.BaselinesDocument)


def run_events(run: str, after: int) -> Call[dict[str, Any]]:
    """What happens to a run, from behind an event on."""
    call = _get(f"/v1/runs/{part(run)}/events", dict[str, Any])
    call = replace(call, streamed=True, accept=EVENTS, waits_s=90.0)
    return call.with_header("Last-Event-ID", str(after)) if after else call


def measurements(filters: Filters, newest_first: bool) -> Listing[documents.MeasurementDocument]:
    """Measurements in the order in which they were stored, or backwards."""
    query = {**filters, "order": "newest" if newest_first else "oldest"}
    return _list("/v1/measurements", documents.MeasurementDocument, query)


def export(format_: ExportFormat, filters: Filters) -> Call[bytes]:
    """Measurements as a file."""
    call = _get("/v1/measurements/export", bytes, {**filters, "format": format_})
    return replace(call, streamed=True, accept="*/*", waits_s=120.0)


def front(filters: FrontFilters) -> Call[documents.Front]:
    """The time-memory front."""
    return _get("/v1/fronts", documents.Front, filters)


def candidate(candidate: str) -> Call[documents.CandidateDocument]:
    """What was chosen."""
    return _get(f"/v1/candidates/{part(candidate)}", documents.CandidateDocument)


def studies() -> Listing[documents.StudyDocument]:
    """Studies, oldest first."""
    return _list("/v1/studies", documents.StudyDocument, {})


def study(study: int) -> Call[documents.StudyDocument]:
    """One study."""
    return _get(f"/v1/studies/{study:d}", documents.StudyDocument)


def devices(state: str | None) -> Listing[documents.DeviceDocument]:
    """Devices, newest first."""
    return _list("/v1/devices", documents.DeviceDocument, {"state": state})


def device(device: str) -> Call[documents.DeviceDocument]:
    """One device."""
    return _get(f"/v1/devices/{part(device)}", documents.DeviceDocument)


def set_device(device: str, step: DeviceStep, reason: str | None) -> Call[documents.DeviceDocument]:
    """Take a device out of work, or back in."""
    path = f"/v1/devices/{part(device)}/{step}"
    if reason is None:
        return Call("POST", path, documents.DeviceDocument)
    return _post(path, documents.DeviceDocument, {"reason": reason})


def strikes(device: str) -> Listing[documents.StrikeDocument]:
    """What of a device does not count, oldest first."""
    return _list(f"/v1/devices/{part(device)}/strikes", documents.StrikeDocument, {})


def strike(
    device: str, reason: str, since: str | None, until: str | None
) -> Call[documents.StrikeDocument]:
    """Strike measurements. Sent once: the second would find none and say so."""
    value = _present({"reason": reason, "since": since, "until": until})
    call = _post(f"/v1/devices/{part(device)}/strikes", documents.StrikeDocument, value)
    return replace(call, repeatable=False)


def lift_strike(device: str, strike: int) -> Call[documents.StrikeDocument]:
    """Have struck measurements count again."""
    path = f"/v1/devices/{part(device)}/strikes/{strike:d}/lift"
    return Call("POST", path, documents.StrikeDocument)


def create_enrolment(profile: str | None, valid_s: float | None) -> Call[documents.CodeAnswer]:
    """A one-time code. Sent once: a lost answer has lost its code, which then expires."""
    value = _present({"profile": profile, "valid_s": valid_s})
    return replace(_post("/v1/enrolments", documents.CodeAnswer, value), repeatable=False)


def profiles() -> Call[list[documents.ProfileDocument]]:
    """Limits of devices."""
    return _get("/v1/profiles", list[documents.ProfileDocument])


def version() -> Call[documents.Version]:
    """What runs there."""
    return _get("/version", documents.Version)


def operation(operation: str) -> Call[documents.Operation]:
    """How far long work is."""
    return _get(f"/v1/operations/{part(operation)}", documents.Operation)


def cancel_operation(operation: str) -> Call[documents.Operation]:
    """Stop long work."""
    path = f"/v1/operations/{part(operation)}/cancel"
    return Call("POST", path, documents.Operation, repeatable=False)


def subject_json(subject: SubjectLike) -> dict[str, Any]:
    """A subject as the API has it."""
    if isinstance(subject, str):
        return {"name": subject}
    if len(subject) == 1 and next(iter(subject)) in _FORMS:
        return dict(subject)
    return {"document": dict(subject)}


def part(text: str) -> str:
    """A name as one part of a path; InputError for an empty one or one of dots."""
    if not text or not text.strip("."):
        raise InputError(Problem("", "no name of anything", repr(text)))
    return quote(text, safe="")


def _ask(
    path: str, shape: type[T], subject: SubjectLike, fields: Mapping[str, Any], **more: Any
) -> Call[T]:
    """A question about a subject; fields that are None are left to the service."""
    value = {"subject": subject_json(subject), **_present(fields), **more}
    return _post(path, shape, value, waits_s=_solving_s(fields))


def _list(path: str, shape: type[T], query: Mapping[str, Any]) -> Listing[T]:
    return Listing(_get(path, documents.Page, query), shape)


def _get(path: str, shape: type[T], query: Mapping[str, Any] | None = None) -> Call[T]:
    given = _present(query or {})
    return Call("GET", path, shape, tuple((name, str(value)) for name, value in given.items()))


def _post(path: str, shape: type[T], value: Mapping[str, Any], waits_s: float = 0.0) -> Call[T]:
    try:
        body = json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(Problem("", "cannot be written as JSON", str(error)[:200])) from None
    return Call("POST", path, shape, (), body, (("Content-Type", JSON),), waits_s=waits_s)


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _solving_s(fields: Mapping[str, Any]) -> float:
    """How long a solver may be silent: the time limit, else what a service commonly allows."""
    limit = fields.get("time_limit_s")
    return min(float(limit), 86_400.0) if isinstance(limit, int | float) else 300.0
