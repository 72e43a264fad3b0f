"""``nestmap bench throughput``: the plot of a comparison on a GPU or a CPU, from its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from nestmap.cli.output import note


def throughput(
    results: Annotated[
        Path,
        typer.Argument(exists=True, dir_okay=False, help="What bench gpu or bench cpu has left."),
    ],
    out: Annotated[Path, typer.Option(help="The plot (SVG).")] = Path("out/throughput.svg"),
) -> None:
    """Draw output a second and memory by layer, as GPGPU'20, Figure 5."""
    from bench.kernels.plots import throughput_plot
    from mapper.errors import InputError, Problem

    try:
        value = json.loads(results.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(Problem(str(results), "not JSON", str(error))) from error
    if not isinstance(value, dict):
        raise InputError(Problem(str(results), "not a comparison's results"))
    text = throughput_plot(value)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    note(f"plot in {out}")
