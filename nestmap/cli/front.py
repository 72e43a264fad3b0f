"""``nestmap front``: the time-memory front of a stored study."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mapper.constraint_rules.rule import Mode
from mapper.device_profile import device_name
from mapper.errors import InputError, Problem, StoreError
from nestmap.cli.exit_codes import ExitCode
from nestmap.cli.output import note, write_json, write_table, write_text
from nestmap.cli.plot import plot
from nestmap.cli.remote import TokenFileOption, UrlOption, asking, refuse_remote, service_at
from nestmap.cli.remote_studies import RemoteStudies, Studies
from nestmap.cli.request import JsonOption
from nestmap.device_limits import is_live_spec
from nestmap.subjects import STDIN, load_subject

if TYPE_CHECKING:
    from db.records import FrontPoint, Study
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
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show the points that no other measured candidate beats in both time and memory."""
    with ExitStack() as stack:
        if (service := service_at(url, token_file)) is None:
            source = stack.enter_context(_store(db or DEFAULT_DATABASE))
        else:
            refuse_remote(db=db)
            stack.enter_context(asking())
            source = RemoteStudies(stack.enter_context(service))
        studies = _studies(source, x, study, _filter_of(source, device, mode, seed))
        points = merged_front([(s, point) for s in studies for point in source.front(s)])
    if json_output:
        rows = [
            {
                "time_ms": p.time_ms,
                "memory_bytes": p.memory_bytes,
                "candidate": p.candidate_id,
                "study": s.id,
                "variant": s.variant,
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


def _store(db: str) -> Store:
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
    stored = {d.id: d.name for d in source.devices()}
    ids = set(stored)
    if device is not None:
        name, target = device_name(device).plain, device_name(device).target
        if is_live_spec(device):
            # Loads the OpenCL library.
            from worker.devices.opencl import find_device

            found = find_device(device)
            name, target = found.device_name, found.target
        targets = {d.id: d.facts.get("device.target", target) for d in source.devices()}
        ids = {
            key
            for key, text in stored.items()
            if name.lower() in text.lower() and targets[key] == (target or targets[key])
        }
        if not ids:
            raise InputError(
                Problem("--device", "the database has no study on this device", name,
                        ", ".join(sorted(set(stored.values()))) or "there is none")
            )  # fmt: skip

    def fits(study: Study) -> bool:
        return (
            study.device_id in ids
            and (mode is None or study.mode == mode.value)
            and (seed is None or study.seed == seed)
        )

    return fits


def _studies(
    source: Studies, x: str | None, number: int | None, fits: Callable[[Study], bool]
) -> list[Study]:
    """The studies asked for: one by its number, else those of what the newest is about.

    The variants of a layer are studies of their own and share a front; other devices and
    modes do not.
    """
    wanted = None if x is None else _hash_of(x)
    if number is not None:
        found = source.study(number)
        if x is not None and not _named(found, x, wanted):
            raise InputError(Problem("--study", "is about something else", found.label, x))
        return [found]
    studies = [study for study in source.studies() if fits(study)]
    fitting = [study for study in studies if x is None or _named(study, x, wanted)]
    if not fitting:
        labels = ", ".join(dict.fromkeys(study.label for study in studies)) or "there is none"
        raise InputError(Problem("X", "the database has no study of this", x or "", labels))
    newest = fitting[-1]

    def key(study: Study) -> tuple[str, int, str]:
        return study.label, study.device_id, study.mode

    others = [str(study.id) for study in fitting if key(study) != key(newest)]
    if others:
        note(f"left out, of another subject, device or mode: --study {', '.join(others)}")
    return [study for study in fitting if key(study) == key(newest)]


def _named(study: Study, x: str, program_hash: str | None) -> bool:
    # The studies of a farm's run have its id behind its label.
    label = study.label.partition("@run_")[0]
    return x in (study.label, label) or study.program_hash == program_hash


def _hash_of(x: str) -> str | None:
    """The hash of the program in a file of this name; None where X is only a label."""
    if x != STDIN and not _exists(x):
        return None
    subject = load_subject(x)
    return subject.hash() if subject.program is not None else None
