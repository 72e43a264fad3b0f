"""``nestmap tune --url``: a run on a device of a service, watched until it ends."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from mapper.ast_model.bounded_json import loads_bounded
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.errors import DeviceError, NestmapError, Problem
from mapper.pipeline import Subject, derive_space
from mapper.profiles import load_profile, profile_from_json, profile_names
from mapper.schedules.sketches.derivation import AS_IS
from nestmap.cli.output import note
from nestmap.cli.remote_studies import record_of
from nestmap.client.documents import MeasuredEvent
from nestmap.client.errors import bad_answer
from nestmap.client.replies import checked
from nestmap.device_limits import DEFAULT_DEVICE
from nestmap.tuning.candidates import rebuild
from nestmap.tuning.events import State
from nestmap.tuning.progress import Tally
from nestmap.tuning.run import Budget, FrontEntry, TuningResult

if TYPE_CHECKING:
    from mapper.device_profile import DeviceProfile
    from nestmap.client import Client, RunEvent
    from nestmap.client.calls import RunQuestion
    from nestmap.client.documents import DeviceDocument, RunDocument
    from nestmap.stated import Stated
    from nestmap.tuning.display import ProgressDisplay

MOST_DEVICES = 10_000
#: So long a cancelled run is waited for: what is being measured is measured to its end.
CANCEL_S = 5.0
_POLL_S = 0.2
_ENDED = ("finished", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class RemoteRun:
    """What is tuned where, and how: ``first`` as it was read, in the variants ``subjects``, which
    the service chooses itself (of a program) unless they are ``named``."""

    first: Subject
    named: bool
    subjects: Sequence[Subject]
    device: str | None
    stand_ins: Sequence[str]
    budget: Budget
    seed: int
    strategy: str
    transfer: bool
    detach: bool
    stated: Stated


def tune_there(
    service: Client, wanted: RemoteRun, display: ProgressDisplay
) -> tuple[TuningResult | None, str]:
    """The result of a run and the run's id; no result where the user went and left it going.

    Ctrl-C cancels the run, unless it is detached, and gives what was measured so far.
    """
    board = device_of(service, wanted.device)
    stand_ins = [device_of(service, name)["id"] for name in wanted.stand_ins]
    first = wanted.first
    question: RunQuestion = {
        "budget": {"candidates": wanted.budget.candidates, "seconds": wanted.budget.seconds},
        "seed": wanted.seed,
        "strategy": wanted.strategy,
        "stand_ins": stand_ins,
    }
    if wanted.transfer:
        # Not otherwise: a service of an earlier release does not know the field.
        question["transfer"] = True
    document = first.to_json() if first.layer is None else first.layer.to_json()
    question.update(cast("RunQuestion", wanted.stated.to_json()))
    if wanted.named:
        question["variants"] = [subject.variant or AS_IS for subject in wanted.subjects]
    run = service.create_run(board["id"], {"document": document}, **question)
    watched = _Watched(service, wanted.subjects, display)
    with display:
        try:
            note(f"run {run['id']} on {board['name']}, {board['id']}")
            for event in service.run_events(run["id"]):
                watched.hear(event)
        except KeyboardInterrupt:
            if wanted.detach:
                note(f"run {run['id']} goes on: nestmap front --url shows what it finds")
                return None, run["id"]
            note(f"cancelling run {run['id']}: what is being measured ends first")
            _cancel(service, run["id"])
    return watched.result(service.run(run["id"]), board), run["id"]


def device_of(service: Client, name: str | None) -> DeviceDocument:
    """The device of an id or a name; without one the only active one.

    DeviceError lists those that there are.
    """
    listed = list(islice(service.devices(), MOST_DEVICES))
    if name is None:
        found = [device for device in listed if device["state"] == "active"]
    else:
        found = [device for device in listed if name in (device["id"], device["name"])]
    if len(found) == 1:
        return found[0]
    what = "there is no such device" if not found else "there are several of them"
    if name is None and not found:
        what = "the service has no active device"
    allowed = ", ".join(f"{device['id']} ({device['name']})" for device in listed[:20])
    raise DeviceError(Problem("--device", what, name or "", allowed or "there is none"))


def limits_of_board(board: DeviceDocument) -> DeviceProfile:
    """The profile of a service's device; the default one where it is not known here."""
    if board["profile"] in profile_names():
        return load_profile(board["profile"])
    stated = board["facts"].get("profile")
    if stated is None:
        return load_profile(DEFAULT_DEVICE)
    return profile_from_json(loads_bounded(stated) if isinstance(stated, str) else stated)


class _Watched:
    """A run as its events tell it."""

    def __init__(
        self, service: Client, subjects: Sequence[Subject], display: ProgressDisplay
    ) -> None:
        self._service = service
        self._subjects = subjects
        self._display = display
        self._names = tuple(subject.variant or subject.label for subject in subjects)
        self._tally = Tally(self._names)
        self._places: dict[int, int] = {}
        self._begin = time.monotonic()

    def hear(self, event: RunEvent) -> None:
        """Count and show an event."""
        if event.kind == "gap":
            note("some events of the run are gone: what is shown meanwhile leaves them out")
        if event.kind != "measured":
            return
        found = checked(MeasuredEvent, event.data)
        self._tally.count(
            self._place(found["study"]),
            found["candidate"],
            found["outcome"],
            found["time_ms"],
            found["memory_bytes"],
        )
        self._display.show(self._tally.state(time.monotonic() - self._begin))

    def result(self, run: RunDocument, board: DeviceDocument) -> TuningResult:
        """What the run leaves behind, from the service's front and not from what was heard."""
        points = self._service.front(run=run["id"])["points"]
        front = tuple(self._entry(point, board) for point in points)
        reason = run["reason"] or run["state"]
        outcomes = run["progress"]["outcomes"]
        best = front[0] if front else None
        state = State(
            tried=sum(outcomes.values()),
            outcomes=outcomes,
            best_ms=None if best is None else best.time_ms,
            best_variant="" if best is None else best.subject.variant or best.subject.label,
            front=len(front),
            elapsed_s=run["progress"]["active_s"],
            volume=self._tally.volume,
        )
        facts = {name: text for name, text in board["facts"].items() if isinstance(text, str)}
        return TuningResult(reason, state, front, facts)

    def _place(self, study: int) -> int:
        if study not in self._places:
            self._places[study] = self._place_of(self._service.study(study)["variant"])
        return self._places[study]

    def _place_of(self, variant: str) -> int:
        places = [n for n, subject in enumerate(self._subjects) if subject.variant == variant]
        if len(places) == 1:
            return places[0]
        if len(self._subjects) == 1:
            return 0
        raise bad_answer("a study of another variant than was asked for", variant)

    def _entry(self, point: Any, board: DeviceDocument) -> FrontEntry:
        subject = self._subjects[self._place_of(point["variant"])]
        space = derive_space(subject, Mode.STRICT, limits_of_board(board), RuleOptions())
        found = self._service.candidate(point["candidate"])
        try:
            record = record_of(found)
            plan = rebuild(subject, space, record)
        except (NestmapError, TypeError, ValueError) as error:
            raise bad_answer(
                "a candidate cannot be printed here: is the service of another version?", str(error)
            ) from None
        if plan.memory_bytes != point["memory_bytes"]:
            raise bad_answer(
                "a candidate has other buffers here: is the service of another version?",
                f"{point['memory_bytes']} bytes", f"{plan.memory_bytes} bytes",
            )  # fmt: skip
        return FrontEntry(
            point["time_ms"],
            point["memory_bytes"],
            plan.extra_bytes,
            point["candidate"],
            subject,
            record,
            plan,
        )


def _cancel(service: Client, run: str) -> None:
    found = service.cancel_run(run)
    end = time.monotonic() + CANCEL_S
    while found["state"] not in _ENDED:
        if time.monotonic() > end:
            note(f"run {run} is still being cancelled: this is what was measured so far")
            return
        time.sleep(_POLL_S)
        found = service.run(run)
