"""The fastest known mapping of a layer or a program, for ``nestmap kernel --best``.

Of layers there are records (:mod:`nestmap.cli.recorded`). What is known of a program is in the
user's store: its own mappings, and those under its sketches' schedules, which the store holds too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.errors import InputError, NestmapError, Problem
from mapper.measurement import Timed
from mapper.pipeline import Assignment, Subject, assignment_from_json, derive_space
from mapper.solver.space import check
from mapper.variants import LAST_RESORT
from nestmap.cli.front import DEFAULT_DATABASE
from nestmap.cli.output import note
from nestmap.cli.recorded import (
    Places,
    best_recorded,
    opened_store,
    record_device,
    tuning_command,
)
from nestmap.cli.request import Request
from nestmap.device_limits import limits_of_device
from nestmap.subjects import load_subject
from nestmap.tuning.store_records import folder_of

if TYPE_CHECKING:
    from db.records import FrontPoint, StoredDevice, Study
    from db.store import Store

_Found = tuple["Study", "FrontPoint", "StoredDevice"]


def best_known(
    x: str, variant: str | None, device: str, places: Places
) -> tuple[Request, Assignment, dict[str, Any]]:
    """The fastest known mapping of a layer or a program on a device, and what is known of it as
    JSON; ``variant`` leaves others out. InputError where there is none that is valid today."""
    subject = load_subject(x, default=LAST_RESORT)
    if subject.layer is not None:
        request, assignment, known = best_recorded(x, subject.layer, variant, device, places)
        return request, assignment, known.to_json()
    subject.require_program()
    return _of_program(x, subject, variant, device, places)


def _of_program(
    x: str, subject: Subject, variant: str | None, device: str, places: Places
) -> tuple[Request, Assignment, dict[str, Any]]:
    # Loads the database library.
    from nestmap.tuning.stored_schedules import stored_subject

    limits, name = limits_of_device(device), record_device(device)
    db = places.db or DEFAULT_DATABASE
    with opened_store(places.db) as store:
        found = [] if store is None else list(_measured(store, subject, variant))
        here = [one for one in found if folder_of(one[2]) == name]
        near = [o for o in here if o[2].facts.get("device.target", "") in ("", limits.target)]
        for study, point, stored in sorted(near, key=lambda one: one[1].time_ms):
            assert store is not None
            try:
                rebuilt = stored_subject(store, study)
                space = derive_space(rebuilt, Mode.STRICT, limits, RuleOptions())
                assignment = assignment_from_json(space, store.candidate(point.candidate_id).chosen)
            except NestmapError:
                # Of another release.
                continue
            if check(space, assignment):
                continue
            place = f"{db}: study {study.id}, candidate {point.candidate_id}"
            called = f"variant {study.variant}, " if study.variant else ""
            note(f"{called}measured on {stored.name}: {point.time_ms:.4g} ms")
            note(f"from {place}")
            request = Request(rebuilt, limits, Mode.STRICT, space)
            known = {
                "from": place,
                "variant": study.variant,
                "time_ms": point.time_ms,
                "device": stored.facts.get("device.name", stored.name),
                "target": stored.facts.get("device.target", ""),
                "date": _date_of(store, study, point),
            }
            return request, assignment, known
    others = dict.fromkeys(stored.name for _, _, stored in found if stored.name != name)
    of = f" in the variant {variant}" if variant else ""
    raise InputError(
        Problem(
            "--best",
            f"no valid mapping of {subject.label}{of} is known for {name}",
            f"{', '.join(others)} has one, which is no answer here" if others else "",
            "what nestmap tune has measured",
            tuning_command(x, device),
        )
    )


def _measured(store: Store, subject: Subject, variant: str | None) -> Iterator[_Found]:
    """The fronts of all studies of a program in the strict mode."""
    own = subject.hash()
    wanted = store.under_schedules(own) | {own}
    devices = {device.id: device for device in store.devices()}
    for study in store.studies():
        if (
            study.program_hash in wanted
            and study.mode == Mode.STRICT.value
            and variant in (None, study.variant)
        ):
            for point in store.front(study):
                yield study, point, devices[study.device_id]


def _date_of(store: Store, study: Study, point: FrontPoint) -> str:
    for measured in store.measurements(study):
        if measured.candidate_id == point.candidate_id and isinstance(measured.outcome, Timed):
            return measured.started_at.date().isoformat()
    return ""
