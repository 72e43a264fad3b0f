"""``nestmap devices calibrate``: constants of the cost model from a short run on a device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from mapper.errors import InputError, Problem
from nestmap.cli.output import Progress, note, write_json, write_table, write_text


def calibrate(
    device: Annotated[
        str, typer.Option(help="host, an index, words of its name, or null.")
    ] = "host",
    db: Annotated[Path, typer.Option(help="The store; created if absent.")] = Path(
        "nestmap.sqlite3"
    ),
    candidates: Annotated[
        int,
        typer.Option(min=6, max=10_000, help="Of each layer and variant, stored ones included."),
    ] = 24,
    seconds: Annotated[float, typer.Option(min=1, help="Stop measuring after this time.")] = 120.0,
    seed: Annotated[int, typer.Option(min=0, help="Another seed is another study.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Write the constants into this file (JSON).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Fit the constants of the analytic cost model to random candidates of two cut layers.

    Candidates are measured and stored as by `nestmap tune`. A third of them is not fitted to:
    on these the model is judged, by the order of the candidates above all.
    """
    from db.store import Store
    from nestmap.tuning.calibration import calibrate as fit
    from nestmap.tuning.calibration import calibration_layers
    from nestmap.tuning.events import CandidateMeasured, Event
    from worker.devices.names import is_null
    from worker.devices.null import NullDevice
    from worker.measuring import MeasuringChild

    measured = 0

    with (
        NullDevice() if is_null(device) else MeasuringChild(device) as opened,
        Store.open(db) as store,
        Progress("measuring") as progress,
    ):

        def listener(event: Event) -> None:
            nonlocal measured
            if isinstance(event, CandidateMeasured):
                measured += 1
                progress.update(measured)

        found = fit(
            opened,
            store,
            layers=calibration_layers(),
            candidates=candidates,
            seconds=seconds,
            seed=seed,
            listener=listener,
        )
    value = found.to_json()
    if out is not None:
        try:
            out.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise InputError(Problem(str(out), f"cannot be written: {error.strerror}")) from error
        note(f"wrote {out}")
    if as_json:
        write_json(value)
        return
    write_table(
        ("cost", "ns for one"),
        ((name, f"{number:.4g}") for name, number in found.constants.to_json().items()),
        f"constants of {found.device}",
    )
    write_table(
        ("subject", "fitted", "held out", "rank correlation"),
        ((r.subject, r.fitted, r.held_out, f"{r.correlation:.2f}") for r in found.rankings),
        "how the held-out candidates are ordered",
    )
    write_text(
        f"held out: median relative error {found.median_error:.0%}, "
        f"rank correlation {found.correlation:.2f} (median of the subjects)"
    )
