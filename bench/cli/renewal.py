"""``nestmap bench renewal``: records found anew under sketches, beside the earlier ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bench.cli.gpu import LayersOption
from nestmap.cli.output import note, write_json, write_table, write_text

_COLUMNS = ("layer", "earlier, ms", "found, ms", "earlier / found", "back to back", "under")
_NUMBERS = _COLUMNS[1:5]


def renewal(
    journal: Annotated[Path, typer.Option(help="A line a layer; what is there is not done again.")],
    layers: LayersOption = None,
    device: Annotated[
        str, typer.Option(help="opencl:<platform>/<device>; with --prepare a profile.")
    ] = "opencl:nvidia",
    seconds: Annotated[float, typer.Option(min=1, help="Of tuning, a layer.")] = 30.0,
    starts: Annotated[
        Path | None,
        typer.Option(help="Where each search begins: a file that --prepare has written."),
    ] = None,
    prepare: Annotated[
        bool, typer.Option("--prepare", help="Write --starts from the earlier records; no device.")
    ] = False,
    records: Annotated[Path, typer.Option(help="Where what is found goes.")] = Path("out/records"),
    db: Annotated[Path, typer.Option(help="Where every candidate is kept.")] = Path(
        "out/renewal.sqlite3"
    ),
    seed: Annotated[int, typer.Option(min=0)] = 0,
    rounds: Annotated[int, typer.Option(min=1, max=100)] = 5,
    repetitions: Annotated[int, typer.Option(min=1, max=1000, help="Timed runs a round.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Tune layers under their sketches, and time what is found in turns with the kernel of the
    fastest earlier record.

    A campaign of hours: it may be stopped anywhere, and goes on after the last line of its
    journal.
    """
    from bench.kernels.earlier import layers_of, read_archive
    from bench.kernels.gpu import Rounds
    from bench.kernels.renewal import Renewal, read_starts, renew, summary, write_starts
    from bench.kernels.tuning_stage import Tuning
    from nestmap.tuning.opening import open_measuring
    from nestmap.tuning.record_files import device_folder
    from nestmap.tuning.run import Budget
    from worker.measuring.loaded_plan import open_session

    names, archive = layers or ["vgg16"], read_archive()
    if prepare:
        if starts is None:
            raise typer.BadParameter("the file that is to be written", param_hint="--starts")
        write_starts(starts, layers_of(archive, device, names), archive, device, note)
        return
    known = read_starts(starts) if starts is not None else ()
    tuning = Tuning((), Budget(None, seconds), db, seed, sketches=True, starts=known)
    plan = Renewal(tuning, records, journal, archive, Rounds(rounds, repetitions))
    with open_measuring(device) as opened:
        chosen = layers_of(archive, device_folder(opened.facts()), names)
        lines = renew(chosen, opened, open_session(device), plan, note)
    if as_json:
        write_json(summary(lines))
        return
    write_table(_COLUMNS, [_row(line) for line in lines], right=_NUMBERS)
    found = summary(lines)
    mean = found["geometric_mean_ratio"]
    behind = ", ".join(f"{name} {value:.2f}" for name, value in found["behind"].items())
    text = f"{found['compared']} of {found['layers']} layers compared"
    if mean is not None:
        text += f": {mean:.3f} in the geometric mean"
    write_text(f"{text}; more than 8 % behind: {behind or 'none'}; {journal}")


def _row(line: dict[str, Any]) -> list[str]:
    earlier, found = line.get("earlier", {}), line.get("found", {})

    def number(value: float | None, digits: int = 4) -> str:
        return "" if value is None else f"{value:.{digits}g}"

    return [
        line["layer"]["name"],
        number(earlier.get("time_ms")) or earlier.get("failure", ""),
        number(found.get("time_ms")) or found.get("failure", ""),
        number(line["ratio"], 3),
        number(line["run_ratio"], 3),
        found.get("details", {}).get("variant", ""),
    ]
