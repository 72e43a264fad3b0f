"""``nestmap bench joint``: what the joint model lets through can be built and synchronised."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nestmap.cli.exit_codes import ExitCode
from nestmap.cli.output import Progress, note, write_json, write_text

if TYPE_CHECKING:
    from bench.proofs.joint.campaign import Cell, CellResult

_MAX_JOBS = 256


def joint(
    samples: Annotated[int, typer.Option(min=1, help="A program and device.")] = 10_000,
    device: Annotated[
        list[str] | None,
        typer.Option("--devices", help="A profile; may be repeated. mali-g72, h200, pocl if none."),
    ] = None,
    variant: Annotated[
        list[str] | None,
        typer.Option("--variants", help="May be repeated; partial and direct if none."),
    ] = None,
    layer: Annotated[
        list[str] | None,
        typer.Option("--layers", help="A layer; may be repeated. All nine of VGG-16 if none."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    jobs: Annotated[
        int, typer.Option(min=0, max=_MAX_JOBS, help="Processes; 0: as many as processors.")
    ] = 0,
    out: Annotated[Path, typer.Option(help="The file of results; cells in it are kept.")] = Path(
        "out/bench-joint.json"
    ),
    fresh: Annotated[bool, typer.Option(help="Begin anew whatever is in the file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Random strict assignments must all generate, fit the device and place their barriers.

    The samples of a program and device are spread over the layers. No device is needed. Exit
    code 1 if any fails, with the assignment in the file. Ctrl-C keeps the finished cells; the
    same command goes on.
    """
    from bench.proofs.joint.campaign import CAMPAIGN_DEVICES, CAMPAIGN_VARIANTS, cells_of
    from bench.proofs.joint.result_file import markdown_table, read_results, write_results
    from bench.proofs.joint.workers import run_cells
    from mapper.layer_sets import named_layer
    from mapper.layer_spec import VGG16_UNIQUE
    from mapper.profiles import load_profile
    from mapper.variants import variant_program
    from nestmap.source_commit import commit

    layers = tuple(named_layer(name) for name in dict.fromkeys(layer or VGG16_UNIQUE))
    variants = tuple(dict.fromkeys(variant or CAMPAIGN_VARIANTS))
    devices = tuple(dict.fromkeys(device or CAMPAIGN_DEVICES))
    for name in devices:
        load_profile(name)
    for name in variants:
        variant_program(layers[0], name)
    cells = list(cells_of(layers, variants, devices, samples=samples, seed=seed))
    wanted = {cell.key for cell in cells}
    done = {} if fresh else {result.key: result for result in read_results(out)}
    others = [result for key, result in done.items() if key not in wanted]
    results = {cell.key: done[cell.key] for cell in cells if cell.key in done}
    jobs = jobs or os.cpu_count() or 1
    source = commit()
    value = write_results(out, [*others, *results.values()], seed, jobs)
    with Progress(f"samples of {samples * len(variants) * len(devices)}") as progress:
        so_far = {key: result.drawn for key, result in results.items()}

        def update(cell: Cell, count: int) -> None:
            so_far[cell.key] = count
            progress.update(sum(so_far.values()))

        # What takes longest first, so that no processor waits for one late cell.
        left = [cell for cell in reversed(cells) if cell.key not in results]
        with closing(run_cells(left, jobs, update)) as ended:
            for result in ended:
                result.commit = source
                results[result.key] = result
                so_far[result.key] = result.drawn
                value = write_results(out, [*others, *results.values()], seed, jobs)
                _tell(result)
    ordered = [results[cell.key] for cell in cells]
    if as_json:
        write_json(value)
    else:
        write_text(markdown_table(ordered))
        write_text(_summary(ordered, out))
    if any(result.failed for result in ordered):
        raise typer.Exit(ExitCode.NEGATIVE)


def _tell(result: CellResult) -> None:
    if result.drawn < result.wanted and not result.failed:
        note(f"{result.key}: the space has no more than {result.drawn} assignments")
    for failure in result.failures:
        note(f"FAILED {result.key}: {_line(failure)}")


def _line(failure: dict[str, Any]) -> str:
    return f"{failure['kind']}: {failure['message']}; {failure['candidate']}"


def _summary(results: list[CellResult], out: Path) -> str:
    drawn = sum(result.drawn for result in results)
    distinct = sum(result.distinct for result in results)
    failed = sum(result.failed for result in results)
    return f"{drawn} samples, {distinct} distinct, {failed} failures; {out}"
