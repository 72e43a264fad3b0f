"""``nestmap bench``: campaigns whose figures stand in docs/benchmarks.md."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.cli.completeness import completeness
from bench.cli.cpu import cpu
from bench.cli.farm import farm
from bench.cli.generation import generation
from bench.cli.gpu import gpu
from bench.cli.joint import joint
from bench.cli.programs import programs
from bench.cli.renewal import renewal
from bench.cli.schedules import schedules
from bench.cli.search import app as search_app
from bench.cli.soundness import soundness
from bench.cli.spaces import spaces
from bench.cli.throughput import throughput
from bench.cli.user import user
from nestmap.cli.exit_codes import ExitCode
from nestmap.cli.output import Progress, note, write_json, write_text

if TYPE_CHECKING:
    from bench.proofs.layers.campaign import CellResult

app = typer.Typer(no_args_is_help=True, help="Campaigns whose figures stand in the docs.")


app.command()(soundness)
app.command()(joint)
app.command()(spaces)
app.command()(completeness)
app.command()(schedules)
app.add_typer(search_app, name="search")
app.command()(generation)
app.command()(gpu)
app.command()(cpu)
app.command()(renewal)
app.command()(throughput)
app.command()(farm)
app.command()(user)
app.command()(programs)


@app.callback()
def bench() -> None:
    """Campaigns whose figures stand in the docs."""


@app.command()
def layers(
    layer: Annotated[
        list[str] | None,
        typer.Option("--layers", help="A layer; may be repeated. All nine of VGG-16 if none."),
    ] = None,
    variant: Annotated[
        list[str] | None, typer.Option(help="May be repeated; partial and direct if none.")
    ] = None,
    candidates: Annotated[int, typer.Option(min=0, help="A layer and variant.")] = 100,
    full: Annotated[int, typer.Option(min=0, help="How many of them at full size.")] = 10,
    simulated: Annotated[
        int, typer.Option("--oclgrind", min=0, help="Further ones in Oclgrind, cut down.")
    ] = 20,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    device: Annotated[str, typer.Option(help="host, or opencl:<platform>/<device>.")] = "host",
    timeout: Annotated[float, typer.Option(min=1, help="Seconds for one at full size.")] = 120.0,
    out: Annotated[Path, typer.Option(help="The file of results; cells in it are kept.")] = Path(
        "out/bench-layers.json"
    ),
    fresh: Annotated[bool, typer.Option(help="Begin anew whatever is in the file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Random strict candidates of the layers must all compile, run and be right.

    Exit code 1 if any fails. Ctrl-C keeps the finished parts; the same command goes on.
    """
    from bench.proofs.layers.campaign import (
        CAMPAIGN_VARIANTS,
        Limits,
        cells_of,
        markdown_table,
        run_cell,
    )
    from bench.proofs.layers.result_file import commit, read_results, write_results
    from mapper.layer_sets import named_layer
    from mapper.layer_spec import VGG16_UNIQUE
    from worker.measuring import MeasuringChild

    chosen = tuple(named_layer(name) for name in layer or VGG16_UNIQUE)
    variants = tuple(variant or CAMPAIGN_VARIANTS)
    cells = list(
        cells_of(chosen, variants, candidates=candidates, full=full, simulated=simulated, seed=seed)
    )
    done = {} if fresh else {result.key: result for result in read_results(out)}
    others = [result for key, result in done.items() if key not in {c.key for c in cells}]
    results: list[CellResult] = []
    value: dict[str, Any] = {}
    limits = Limits(full_s=timeout)
    with MeasuringChild(device) as child:
        facts = child.facts()
        for cell in cells:
            result = done.get(cell.key)
            if result is None:
                started = time.monotonic()
                with Progress(f"{cell.layer.name} {cell.variant} {cell.part.value}") as progress:
                    result = run_cell(cell, child, limits, progress=progress.update)
                result.seconds = time.monotonic() - started
                result.commit = commit()
                note(_line(result))
                for failure in result.failures:
                    note(f"FAILED {failure}")
            results.append(result)
            value = write_results(out, [*others, *results], facts, seed)
    if as_json:
        write_json(value)
    else:
        write_text(markdown_table(results))
        for result in results:
            for failure in result.failures:
                write_text(f"FAILED {failure}")
        slow = sum(len(result.timeouts) for result in results)
        failed = sum(len(result.failures) for result in results)
        tried = sum(result.tried for result in results)
        write_text(f"{tried} candidates, {failed} failures, {slow} timeouts; {out}")
    if any(result.failures for result in results):
        raise typer.Exit(ExitCode.NEGATIVE)


def _line(result: CellResult) -> str:
    outcomes = ", ".join(f"{count} {kind}" for kind, count in result.outcomes.items())
    best = "" if result.best_ms is None else f", best {result.best_ms:.3g} ms"
    missing = "" if result.tried >= result.wanted else f" of {result.wanted} wanted"
    return (
        f"{result.layer} {result.variant} {result.part}: {outcomes or 'none'}{missing}{best}, "
        f"{result.seconds:.0f} s"
    )
