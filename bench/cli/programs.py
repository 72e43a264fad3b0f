"""``nestmap bench programs``: what `nestmap tune` finds for programs, beside libraries."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from nestmap.cli.output import note, write_json, write_table, write_text


def programs(
    program: Annotated[
        list[str] | None, typer.Option(help="One of the list; may be repeated. All if none.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="As given to `nestmap tune`.")] = 60.0,
    device: Annotated[str, typer.Option()] = "host",
    torch: Annotated[
        bool, typer.Option("--torch", help="Compare with torch on the GPU, else with NumPy.")
    ] = False,
    rounds: Annotated[int, typer.Option(min=1, max=100)] = 5,
    repetitions: Annotated[int, typer.Option(min=1, max=1000)] = 10,
    out: Annotated[Path, typer.Option(help="The file of results.")] = Path(
        "out/bench-programs.json"
    ),
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Tune programs of the examples as a user would, and compare with a library and a copy.

    Programs are matrix products, a contraction, and on arrays of 256 MB what is bound by
    bandwidth.
    """
    import numpy as np

    from bench.kernels.bench_file import write_value
    from bench.kernels.cudnn import load_torch, versions
    from bench.kernels.gpu import Rounds
    from bench.kernels.programs import WORKS, compare, named_work, tuned
    from mapper.errors import NestmapError
    from nestmap.source_commit import commit
    from worker.devices.facts import device_facts
    from worker.measuring.driver_errors import PlanFailure
    from worker.measuring.loaded_plan import open_session

    works = [named_work(name) for name in program] if program else list(WORKS)
    library = load_torch() if torch else None
    how = Rounds(rounds, repetitions)
    value: dict[str, Any] = {
        "schema": "nestmap/bench-programs/1",
        "commit": commit(),
        "seconds": seconds,
        "device": {},
        "versions": versions(library) if library is not None else {"numpy": np.__version__},
        "rounds": asdict(how),
        "programs": [],
    }
    session = open_session(device)
    value["device"] = device_facts(session.device)
    with tempfile.TemporaryDirectory(prefix="nestmap-bench-programs-") as folder:
        for work in works:
            found = tuned(work, seconds, device, Path(folder))
            try:
                compare(found, session, device, library, how, Path(folder))
            except (NestmapError, PlanFailure) as error:
                found.failure = str(error)
            row = found.to_json()
            note(f"{work.name}: {row['tried']} tried in {row['wall_s']:.1f} s {row['failure']}")
            value["programs"].append(row)
            write_value(out, value)
    if as_json:
        write_json(value)
        return
    write_table(
        ("program", "sketch", "ms", "library ms", "ratio", "copy ms", "of copy", "tried"),
        (
            (
                row["program"],
                (row["best"] or {}).get("variant", ""),
                *(
                    _text(row[name])
                    for name in ("time_ms", "library_ms", "library_ratio", "copy_ms", "copy_ratio")
                ),
                row["tried"],
            )
            for row in value["programs"]
        ),
    )
    write_text(str(out))


def _text(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
