"""``nestmap front``: the time-memory front of a stored study."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.layer_programs import programs_of
from mapper.constraint_rules.rule import Mode
from mapper.device_profile import device_name
from mapper.errors import InputError, Problem, StoreError
from mapper.layer_sets import is_layer_name, layer_of_name
from mapper.layer_spec import LayerSpec
from mapper.variants import LAST_RESORT
from nestmap.cli.exit_codes import ExitCode
from nestmap.cli.output import note, write_json, write_table, write_text
from nestmap.cli.plot import plot
from nestmap.cli.remote import TokenFileOption, UrlOption, asking, refuse_remote, service_at
from nestmap.cli.remote_studies import RemoteStudies, Studies
from nestmap.cli.request import JsonOption
from nestmap.subjects import STDIN, load_subject
from worker.devices.names import NULL, is_null, is_relative
from worker.devices.names import fits as name_fits

if TYPE_CHECKING:
    from db.records import FrontPoint, StoredDevice, Study
    from db.store import Store

DEFAULT_DATABASE = "nestmap.sqlite3"


def front(
    x: Annotated[
        str | None,
        typer.Argument(
            metavar="[X]",
            help="A study's label, such as a layer's name, or a file with what was tuned.",
            show_default=False,
        ),
    ] = None,
    db: Annotated[
        str | None,
        typer.Option(
            "--db",
            metavar="PATH",
            help="An SQLite file or a database URL.",
            show_default=DEFAULT_DATABASE,
        ),
    ] = None,
    study: Annotated[
        int | None,
        typer.Option(
            metavar="ID", help="A study by its number.", show_default="the newest and its siblings"
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Only studies on this device: part of its name, or host."
        ),
    ] = None,
    mode: Annotated[Mode | None, typer.Option(help="Only studies in this mode.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Only studies with this seed.")] = None,
    records_out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write what these studies know of a layer there, as tuning records.",
        ),
    ] = None,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show the points that no other measured candidate beats in both time and memory."""
    # Loads the database library.
    from db.store import Store

    with ExitStack() as stack:
        if (service := service_at(url, token_file)) is None:
            source = stack.enter_context(open_store(db or DEFAULT_DATABASE))
        else:
            refuse_remote(db=db, records_out=records_out)
            stack.enter_context(asking())
            source = RemoteStudies(stack.enter_context(service))
        wanted = None if x is None else _wanted(x, source if isinstance(source, Store) else None)
        studies = _studies(source, wanted, study, _filter_of(source, device, mode, seed))
        points = merged_front([(s, point) for s in studies for point in source.front(s)])
        if records_out is not None and isinstance(source, Store):
            _export(source, studies, x, records_out)
        # With it a point is a mapping for every command.
        shown = points if json_output else []
        chosen = {p.candidate_id: source.candidate(p.candidate_id).chosen for _, p in shown}
    if json_output:
        rows = [
            {
                "time_ms": p.time_ms,
                "memory_bytes": p.memory_bytes,
                "candidate": p.candidate_id,
                "study": s.id,
                "variant": s.variant,
                **chosen[p.candidate_id],
            }
            for s, p in points
        ]
        write_json({"studies": [_study_to_json(s) for s in studies], "points": rows})
    else:
        write_table(
            ("time ms", "memory bytes", "variant", "study", "candidate"),
            (
                (f"{p.time_ms:.6g}", p.memory_bytes, s.variant, s.id, p.candidate_id)
                for s, p in points
            ),
            f"{studies[0].label}, {studies[0].mode} mode",
            right=("time ms", "memory bytes", "study"),
        )
        write_text(plot([(p.time_ms, p.memory_bytes) for _, p in points], "ms", "bytes"))
    if not points:
        note("no candidate of the study was timed")
        raise typer.Exit(ExitCode.NEGATIVE)


def _export(store: Store, studies: Sequence[Study], x: str | None, folder: Path) -> None:
    """Add the fronts of these studies of a layer to the records of a folder."""
    # Loads what records are made by.
    from nestmap.tuning.record_files import write_records
    from nestmap.tuning.store_records import folder_of, stored_records

    named = studies[0].label.partition("@run_")[0] if x is None else x
    layer = _wanted(named, None).layer
    if layer is None:
        raise InputError(
            Problem("--records-out", "records are of layers", named, "X: a layer's name or file")
        )
    shown = {study.id for study in studies}
    found = [s for s in stored_records(store, layer) if s.study in shown]
    for device in dict.fromkeys(folder_of(stored.device) for stored in found):
        fresh = [stored.record for stored in found if folder_of(stored.device) == device]
        for path in write_records(folder, device, fresh):
            note(f"{len(fresh)} records of {layer.name} are in {path}")


def open_store(db: str) -> Store:
    """A store that is there; StoreError where it is not."""
    # Loads the database library.
    from db.engine import address_of
    from db.store import Store

    address = address_of(db)
    name = address.database or ""
    if address.get_backend_name() == "sqlite" and not _exists(name):
        # Opening would create it: a front of nothing is no reason to write a file.
        raise StoreError(
            Problem(name, "there is no such database", remedy="nestmap tune writes one")
        )
    return Store.open(db)


def merged_front(points: Iterable[tuple[Study, FrontPoint]]) -> list[tuple[Study, FrontPoint]]:
    """The points that no other beats, fastest first; equal ones are all kept."""
    kept: list[tuple[Study, FrontPoint]] = []
    for study, point in sorted(points, key=lambda p: (p[1].time_ms, p[1].memory_bytes)):
        last = kept[-1][1] if kept else None
        if (
            last is None
            or point.memory_bytes < last.memory_bytes
            or (point.time_ms, point.memory_bytes) == (last.time_ms, last.memory_bytes)
        ):
            kept.append((study, point))
    return kept


def _study_to_json(study: Study) -> dict[str, Any]:
    names = ("id", "label", "variant", "mode", "seed", "device_id")
    return {name: getattr(study, name) for name in names}


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):
        return False


def _filter_of(
    source: Studies, device: str | None, mode: Mode | None, seed: int | None
) -> Callable[[Study], bool]:
    """Whether a study was made on the device, in the mode and with the seed asked for."""
    devices = source.devices()
    ids = {d.id for d in devices}
    if device is not None:
        on_it = stored_on(device)
        ids = {d.id for d in devices if on_it(d)}
        if not ids:
            raise InputError(
                Problem("--device", "the database has no study on this device", device,
                        ", ".join(sorted({d.name for d in devices})) or "there is none")
            )  # fmt: skip

    def fits(study: Study) -> bool:
        return (
            study.device_id in ids
            and (mode is None or study.mode == mode.value)
            and (seed is None or study.seed == seed)
        )

    return fits


def stored_on(device: str) -> Callable[[StoredDevice], bool]:
    """Whether a device of a store is the one of this name; DeviceError where it should be here, and
    is not."""
    asked = device_name(device)
    name, target = asked.plain, asked.target
    if is_relative(name):
        # Loads the OpenCL library.
        from worker.devices.opencl import find_device

        found = find_device(device)
        name, target = found.device_name, found.target

    def fits(stored: StoredDevice) -> bool:
        facts = stored.facts
        platform, version = facts.get("platform.name", ""), facts.get("platform.version", "")
        if is_null(name):
            known = facts.get("device.kind") == NULL or stored.name == NULL
        else:
            known = name_fits(name, platform, version, stored.name)
        return known and facts.get("device.target", target) == (
            target or facts.get("device.target", target)
        )

    return fits


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What X says: a label, and the programs that it is, all of a layer's where it is one, and a
    program's under its schedules."""

    label: str
    programs: frozenset[str]
    layer: LayerSpec | None

    def names(self, study: Study) -> bool:
        """Whether a study is of it."""
        # The studies of a farm's run have its id behind its label.
        label = study.label.partition("@run_")[0]
        return self.label in (study.label, label) or study.program_hash in self.programs


def _wanted(x: str, store: Store | None) -> _Wanted:
    if x != STDIN and not _exists(x):
        layer = layer_of_name(x) if is_layer_name(x) else None
        return _Wanted(x, frozenset() if layer is None else _of_layer(layer, store), layer)
    subject = load_subject(x, default=LAST_RESORT)
    if subject.layer is not None:
        return _Wanted(x, _of_layer(subject.layer, store), subject.layer)
    if subject.program is None:
        return _Wanted(x, frozenset(), None)
    own = subject.hash()
    return _Wanted(x, _under_schedules(own, store) | {own}, None)


def _of_layer(layer: LayerSpec, store: Store | None) -> frozenset[str]:
    """The programs of a layer's variants, and what a store holds of its own under schedules."""
    programs = programs_of(layer)
    return _under_schedules(programs[LAST_RESORT], store) | frozenset(programs.values())


def _under_schedules(program_hash: str, store: Store | None) -> frozenset[str]:
    return frozenset() if store is None else store.under_schedules(program_hash)


def _studies(
    source: Studies, wanted: _Wanted | None, number: int | None, fits: Callable[[Study], bool]
) -> list[Study]:
    """The studies asked for: one by its number, else those of what the newest is about.

    The variants of a layer are studies of their own and share a front, whatever the layer was
    called; other devices and modes do not.
    """
    x = "" if wanted is None else wanted.label
    if number is not None:
        found = source.study(number)
        if wanted is not None and not wanted.names(found):
            raise InputError(Problem("--study", "is about something else", found.label, x))
        return [found]
    studies = [study for study in source.studies() if fits(study)]
    fitting = [study for study in studies if wanted is None or wanted.names(study)]
    if not fitting:
        labels = ", ".join(dict.fromkeys(study.label for study in studies)) or "there is none"
        raise InputError(Problem("X", "the database has no study of this", x, labels))
    newest = fitting[-1]
    # A label says which subject it is only where X is none that can be read.
    any_label = wanted is not None and bool(wanted.programs)

    def key(study: Study) -> tuple[str, int, str]:
        return "" if any_label else study.label, study.device_id, study.mode

    others = [str(study.id) for study in fitting if key(study) != key(newest)]
    if others:
        note(f"left out, of another subject, device or mode: --study {', '.join(others)}")
    return [study for study in fitting if key(study) == key(newest)]
