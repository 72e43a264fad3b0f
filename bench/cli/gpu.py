"""``nestmap bench gpu``: generated kernels and cuDNN on the same GPU, layer by layer."""

from __future__ import annotations

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
    typer.Option("--tune", min=1, help="First search so many seconds a layer and variant."),
]
CandidatesOption = Annotated[
    int | None,
    typer.Option(min=1, help="First search until so many candidates of a layer are tried."),
]
WorkersOption = Annotated[
    int | None, typer.Option(min=1, max=256, help="Processes that build; by the cores if none.")
]
RecordsOption = Annotated[
    Path, typer.Option("--records", help="Records beside the shipped ones; found ones go there.")
]
JournalOption = Annotated[
    Path | None, typer.Option(help="Every candidate of a search; a run goes on from there.")
]
TunePinOption = Annotated[
    list[str] | None, typer.Option("--pin", metavar="NAME=VALUE", help="Of the search.")
]
TuneForbidOption = Annotated[
    list[str] | None, typer.Option("--forbid", metavar="NAME=VALUE", help="Of the search.")
]
LayoutOption = Annotated[
    str | None, typer.Option(help="NCHW, NHWC, NCHW16c: what input and output are in.")
]

DEFAULT_VARIANTS = ("tiled", "tiled-slices", "tiled-split", "tiled-vectors-slices")


def gpu(
    layers: LayersOption = None,
    device: Annotated[str, typer.Option(help="opencl:<platform>/<device>.")] = "opencl:nvidia",
    variant: VariantsOption = None,
    tune: TuneOption = None,
    candidates: CandidatesOption = None,
    workers: WorkersOption = None,
    pin: TunePinOption = None,
    forbid: TuneForbidOption = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    layout: LayoutOption = "NCHW",
    records: RecordsOption = Path("out/records"),
    journal: JournalOption = None,
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
    ones first. Strict fp32, every output held against float64. Exit code 1 if any kernel of a
    record fails or is wrong.
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
        run_search(
            chosen,
            device,
            tuple(variant or DEFAULT_VARIANTS),
            (tune, candidates),
            workers,
            journal or out.with_suffix(".journal.ndjson"),
            records,
            seed,
            (tuple(pin or ()), tuple(forbid or ())),
        )
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


def run_search(
    layers: list[LayerSpec],
    device: str,
    variants: tuple[str, ...],
    limits: tuple[float | None, int | None],
    workers: int | None,
    journal: Path,
    records: Path,
    seed: int,
    wish: tuple[tuple[str, ...], tuple[str, ...]],
) -> None:
    """Search for each layer and leave records; ``limits`` are seconds and candidates."""
    from bench.kernels.tuning_stage import Tuning, default_workers, tune_layers
    from nestmap.tuning.layer_search import Budget, Wish
    from worker.devices.opencl import find_device

    count = workers or default_workers(find_device(device).kind)
    tuning = Tuning(variants, Budget(*limits), count, journal, seed, Wish(*wish))
    tune_layers(layers, device, tuning, records, note)
