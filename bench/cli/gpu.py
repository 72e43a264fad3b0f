"""``nestmap bench gpu``: generated kernels and cuDNN on the same GPU, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nestmap.cli.exit_codes import ExitCode
from nestmap.cli.output import note, write_json, write_table, write_text

if TYPE_CHECKING:
    from bench.kernels.gpu import Row
    from mapper.layer_spec import LayerSpec

LayersOption = Annotated[
    list[str] | None,
    typer.Option(
        "--layers", help="A set (vgg16, boda, resnet50, …) or a layer (boda/3); may be repeated."
    ),
]
VariantsOption = Annotated[
    list[str] | None, typer.Option("--variant", help="What --tune searches in; may be repeated.")
]
TuneOption = Annotated[
    float | None,
    typer.Option("--tune", min=1, help="First tune each layer for so many seconds."),
]
CandidatesOption = Annotated[
    int | None,
    typer.Option(min=1, help="First tune until so many candidates of a layer are tried."),
]
RecordsOption = Annotated[
    Path, typer.Option("--records", help="Records beside the shipped ones; found ones go there.")
]
StoreOption = Annotated[
    Path | None, typer.Option("--db", help="Where --tune keeps every candidate and goes on from.")
]
LayoutOption = Annotated[
    str | None, typer.Option(help="NCHW, NHWC, NCHW16c: what input and output are in.")
]


def gpu(
    layers: LayersOption = None,
    device: Annotated[str, typer.Option(help="opencl:<platform>/<device>.")] = "opencl:nvidia",
    variant: VariantsOption = None,
    tune: TuneOption = None,
    candidates: CandidatesOption = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    layout: LayoutOption = "NCHW",
    records: RecordsOption = Path("out/records"),
    db: StoreOption = None,
    cudnn: Annotated[bool, typer.Option(help="Time cuDNN through torch beside it.")] = True,
    kernel_names: Annotated[
        bool, typer.Option("--kernel-names", help="Which kernels cuDNN runs, by torch's profiler.")
    ] = False,
    rounds: Annotated[int, typer.Option(min=1, max=100)] = 3,
    repetitions: Annotated[int, typer.Option(min=1, max=1000, help="Timed runs a round.")] = 10,
    out: Annotated[Path, typer.Option(help="The file of results.")] = Path("out/bench-gpu.json"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Time the best known kernels of layers, and cuDNN in turns with them.

    Kernels come from tuning records of this device; --tune and --candidates look for better
    ones first, as `nestmap tune` does. Strict fp32, every output held against float64. Exit
    code 1 if any kernel of a record fails or is wrong.
    """
    from bench.kernels.bench_file import (
        GPU_COLUMNS,
        GPU_NUMBERS,
        gpu_rows,
        gpu_summary,
        gpu_value,
        write_value,
    )
    from bench.kernels.cudnn import load_torch, versions
    from bench.kernels.gpu import Rounds, compare_layer
    from bench.kernels.tuning_stage import chosen_layers
    from nestmap.tuning.record_files import device_folder, read_records
    from worker.devices.facts import device_facts
    from worker.devices.opencl import profile_of
    from worker.measuring.loaded_plan import open_session

    # What is missing is said before a search of minutes.
    torch = load_torch() if cudnn else None
    chosen = [in_layout(layer, layout) for layer in chosen_layers(layers or ["vgg16"])]
    if tune is not None or candidates is not None:
        store = db or out.with_suffix(".sqlite3")
        tune_first(chosen, device, variant or (), (tune, candidates), store, records, seed)
    session = open_session(device)
    facts, profile = device_facts(session.device), profile_of(session.device)
    known = read_records(records, device_folder(facts))
    how = Rounds(rounds, repetitions)
    found = versions(torch) if torch is not None else {}
    rows: list[Row] = []
    value = gpu_value(rows, facts, found, asdict(how))
    for layer in chosen:
        row = compare_layer(
            layer, known, session, profile, torch, how, kernel_names=kernel_names, note=note
        )
        rows.append(row)
        # After each: a machine may be taken away.
        value = gpu_value(rows, facts, found, asdict(how))
        write_value(out, value)
    if as_json:
        write_json(value)
    else:
        write_table(GPU_COLUMNS, gpu_rows(rows), right=GPU_NUMBERS)
        write_text(f"{gpu_summary(rows)}; {out}")
    if any(f.failure for row in rows for f in (row.best, row.lean) if f is not None):
        raise typer.Exit(ExitCode.NEGATIVE)


def in_layout(layer: LayerSpec, layout: str | None) -> LayerSpec:
    """The layer with its arrays in this layout."""
    return layer if layout is None else replace(layer, layout=layout)


def tune_first(
    layers: list[LayerSpec],
    device: str,
    variants: Sequence[str],
    limits: tuple[float | None, int | None],
    store: Path,
    records: Path,
    seed: int,
) -> None:
    """Tune each layer and leave records; ``limits`` are seconds and candidates."""
    from bench.kernels.tuning_stage import Tuning, tune_layers
    from nestmap.tuning.opening import open_measuring
    from nestmap.tuning.run import Budget

    seconds, candidates = limits
    tuning = Tuning(tuple(variants), Budget(candidates, seconds), store, seed)
    with open_measuring(device) as opened:
        tune_layers(layers, opened, tuning, records, note)
