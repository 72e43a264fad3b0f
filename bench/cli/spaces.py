"""``nestmap bench spaces``: construction, counting and sampling beside other builders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nestmap.cli.exit_codes import ExitCode
from nestmap.cli.output import Progress, note, write_json, write_text

if TYPE_CHECKING:
    from bench.space_solving.measuring import Cell, Contestant

_CLOCKS = {"wall": "seconds", "cpu": "cpu_seconds"}


def _contestants(names: list[str] | None, python: Path) -> tuple[list[Contestant], dict[str, str]]:
    """Who takes part, and the versions of the peers that are installed."""
    from bench.space_solving.measuring import CONTESTANTS, installed_peers
    from bench.space_solving.tables import parse_contestants

    try:
        chosen = parse_contestants(names if names else [c.key for c in CONTESTANTS])
    except KeyError as error:
        allowed = ", ".join(contestant.key for contestant in CONTESTANTS)
        raise typer.BadParameter(
            f"{error.args[0]!r} is none of {allowed}", param_hint="--peers"
        ) from None
    installed = installed_peers(python) if any(c.package for c in chosen) else {}
    missing = sorted({c.package for c in chosen if c.package and c.package not in installed})
    if missing:
        note(
            f"{', '.join(missing)} left out: not installed in {python}; `make peers` in a clone "
            "installs them"
        )
    return [c for c in chosen if not c.package or c.package in installed], installed


def spaces(
    space: Annotated[
        list[str] | None,
        typer.Option("--spaces", help="A name or a .json file; may be repeated. All if none."),
    ] = None,
    peers: Annotated[
        list[str] | None,
        typer.Option("--peers", help="Whom to measure beside nestmap; may be repeated."),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, max=1000, help="Fresh processes for each.")] = 7,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for one measurement.")] = 60.0,
    memory: Annotated[int, typer.Option(min=256, help="MB of address space for one.")] = 8192,
    samples: Annotated[int, typer.Option(min=1, max=10**6, help="How many to draw.")] = 1000,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    clock: Annotated[
        str, typer.Option(help="wall, or cpu where others use the machine too.")
    ] = "wall",
    peers_python: Annotated[
        Path | None, typer.Option(help="The interpreter that has the other builders.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The file of results; a run goes on there.")] = Path(
        "out/bench-spaces.json"
    ),
    fresh: Annotated[bool, typer.Option(help="Begin anew whatever is in the file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Construct, count and sample tuning spaces: nestmap and other builders, side by side.

    Each measurement has a process of its own; imports are not timed. Exit code 1 if any two
    answers differ. Ctrl-C keeps the finished runs; the same command goes on.
    """
    from bench.space_solving.cases import load_cases
    from bench.space_solving.measuring import PEERS_PYTHON, Limits, measure_case
    from bench.space_solving.results import facts_of_run, read_cells, write_cells
    from bench.space_solving.tables import disagreements, markdown

    if clock not in _CLOCKS:
        raise typer.BadParameter(f"{clock!r} is none of {', '.join(_CLOCKS)}", param_hint="--clock")
    python = peers_python or PEERS_PYTHON
    cases = list(load_cases(space or []))
    chosen, installed = _contestants(peers, python)
    limits = Limits(repeats, timeout, memory, samples)
    cells = {} if fresh else read_cells(out)
    facts = facts_of_run(installed)
    value: dict[str, Any] = write_cells(out, cells.values(), facts, limits)
    wrong: list[str] = []
    for case in cases:
        with Progress(case.name) as progress:
            runs = 0

            def after(_: Cell, progress: Progress = progress) -> None:
                nonlocal runs, value
                runs += 1
                value = write_cells(out, cells.values(), facts, limits)
                progress.update(runs)

            measure_case(case, chosen, python, limits, cells, seed=seed, after=after)
        found = disagreements(case, cells)
        for line in found:
            note(f"NOT EQUAL {line}")
        wrong += found
    if as_json:
        write_json(value)
    else:
        write_text(markdown(cases, chosen, cells, _CLOCKS[clock]))
        write_text(_summary(len(cases), wrong, out))
    if wrong:
        raise typer.Exit(ExitCode.NEGATIVE)


def _summary(cases: int, wrong: list[str], out: Path) -> str:
    verdict = "all answers equal" if not wrong else f"{len(wrong)} answers are not equal"
    return f"{cases} spaces, {verdict}; medians in milliseconds; {out}"
