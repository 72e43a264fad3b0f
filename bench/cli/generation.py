"""``nestmap bench generation``: CPU time from a program and a mapping to OpenCL source."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mapper.errors import InputError, Problem
from nestmap.cli.exit_codes import ExitCode
from nestmap.cli.output import Progress, write_json, write_table

if TYPE_CHECKING:
    from bench.generation import Cell


def generation(
    layer: Annotated[
        list[str] | None,
        typer.Option("--layers", help="A layer; may be repeated. All nine of VGG-16 if none."),
    ] = None,
    variant: Annotated[
        list[str] | None,
        typer.Option("--variants", help="Or a sketch; may be repeated. All if none."),
    ] = None,
    mappings: Annotated[int, typer.Option(min=1, max=1000, help="A layer and variant.")] = 5,
    device: Annotated[str, typer.Option(help="The profile that mappings are for.")] = "h200",
    seed: Annotated[int, typer.Option(min=0)] = 0,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the results as JSON into a file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Generate kernels of random mappings, each once, and take the CPU time of it.

    Nothing is compiled or run. Exit code 1 if the median a kernel is above 50 ms.
    """
    from bench import generation as bench
    from mapper.layer_sets import layer_of_name
    from mapper.layer_spec import VGG16_UNIQUE
    from mapper.profiles import load_profile
    from nestmap.source_commit import commit

    layers = [layer_of_name(name) for name in dict.fromkeys(layer or VGG16_UNIQUE)]
    profile = load_profile(device)
    possible = {one: bench.all_of(one, profile) for one in layers}
    known = tuple(dict.fromkeys(name for names in possible.values() for name in names))
    for name in variant or ():
        if name not in known:
            what = "no variant or sketch of this name"
            raise InputError(Problem("--variants", what, repr(name), ", ".join(known)))
    wanted = tuple(dict.fromkeys(variant or known))
    pairs = [(one, name) for one in layers for name in wanted if name in possible[one]]
    cells: list[bench.Cell] = []
    with Progress(f"layers and variants of {len(pairs)}") as progress:
        for number, (one, name) in enumerate(pairs):
            progress.update(number)
            cell = bench.measured(one, name, profile, mappings, seed)
            if cell.plan_ms:
                cells.append(cell)
    if not cells:
        raise InputError(Problem("--layers", f"no mapping was found that fits {device}"))
    about = {
        "seed": seed,
        "device": device,
        "commit": commit(),
        "machine": {"system": platform.platform(), "processors": os.cpu_count()},
        "python": platform.python_version(),
    }
    value = bench.to_json(cells, about)
    if out is not None:
        _write(out, json.dumps(value, indent=1) + "\n")
    if as_json:
        write_json(value)
    else:
        _write_figures(cells)
    if value["summary"]["median_kernel_ms"] > bench.AIM_MS:
        raise typer.Exit(ExitCode.NEGATIVE)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(Problem("--out", f"cannot be written: {error.strerror}")) from error


def _write_figures(cells: list[Cell]) -> None:
    from bench.generation import by_variant, summary

    def row(name: str, some: Sequence[Cell]) -> tuple[object, ...]:
        figures = summary(some)
        return (
            name,
            figures["plans"],
            figures["kernels"],
            f"{figures['median_kernel_ms']:.1f}",
            f"{figures['median_plan_ms']:.1f}",
            f"{figures['largest_plan_ms']:.1f}",
        )

    columns = ("plans", "kernels", "median ms a kernel", "median ms a plan", "largest ms a plan")
    rows = [row(variant, some) for variant, some in by_variant(cells)]
    write_table(
        ("variant", *columns), [*rows, row("all", cells)], "CPU time of generation", right=columns
    )
