"""``nestmap bench cpu``: generated kernels through PoCL and the libraries for CPUs."""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.cli.gpu import (
    CandidatesOption,
    LayersOption,
    LayoutOption,
    RecordsOption,
    StoreOption,
    TuneOption,
    VariantsOption,
    in_layout,
    tune_first,
)
from nestmap.cli.exit_codes import ExitCode
from nestmap.cli.output import note, write_json, write_table, write_text

if TYPE_CHECKING:
    from bench.kernels.cpu import CpuRow
    from bench.kernels.libraries import Library
    from bench.kernels.peak import RegisterPeak
    from worker.measuring.loaded_plan import Session


def cpu(
    layers: LayersOption = None,
    device: Annotated[str, typer.Option(help="A CPU device: pocl, opencl:<platform>/.")] = "pocl",
    variant: VariantsOption = None,
    tune: TuneOption = None,
    candidates: CandidatesOption = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    layout: LayoutOption = "NCHW",
    border: Annotated[
        bool,
        typer.Option("--bordered", help="Every image has its padding already, for all alike."),
    ] = False,
    records: RecordsOption = Path("out/records"),
    db: StoreOption = None,
    peers: Annotated[
        list[str] | None,
        typer.Option(
            "--peers", help="torch, torch-channels-last, im2col, tvm, by-hand; may be repeated."
        ),
    ] = None,
    peers_python: Annotated[
        Path | None, typer.Option(help="The interpreter that has torch and TVM.")
    ] = None,
    tvm_trials: Annotated[
        int, typer.Option(min=1, help="Of meta_schedule a layer, where tvm is among --peers.")
    ] = 64,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="That count.")] = 7,
    most: Annotated[int, typer.Option(min=1, max=1000, help="Rounds tried at most.")] = 21,
    turn: Annotated[float, typer.Option(min=0.01, help="Seconds of a contestant's turn.")] = 0.3,
    out: Annotated[Path, typer.Option(help="The file of results.")] = Path("out/bench-cpu.json"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Time the best known kernels of layers on a CPU, and the libraries in turns with them.

    Kernels come from tuning records; --tune and --candidates look for better ones first. Only
    rounds count in which every contestant had its cores. Exit code 1 if any kernel of a record
    fails or is wrong.
    """
    from bench.kernels.bench_file import write_value
    from bench.kernels.by_hand import BY_HAND
    from bench.kernels.cpu import CpuRounds, compare_on_cpu
    from bench.kernels.cpu_file import cpu_columns, cpu_rows, cpu_summary, cpu_value
    from bench.kernels.libraries import PEERS_PYTHON, LibraryProcess
    from bench.kernels.tuning_stage import bordered, chosen_layers
    from nestmap.tuning.record_files import device_folder, read_records
    from worker.devices.facts import device_facts
    from worker.devices.opencl import profile_of
    from worker.measuring.loaded_plan import open_session

    chosen = [in_layout(layer, layout) for layer in chosen_layers(layers or ["vgg16"])]
    if border:
        chosen = [bordered(layer) for layer in chosen]
    python = peers_python or PEERS_PYTHON
    by_hand = BY_HAND in (peers or ())
    wanted = _wanted([name for name in peers if name != BY_HAND] if peers else None, python)
    if tune is not None or candidates is not None:
        store = db or out.with_suffix(".sqlite3")
        tune_first(chosen, device, variant or (), (tune, candidates), store, records, seed)
    session = open_session(device)
    facts, profile = device_facts(session.device), profile_of(session.device)
    known = read_records(records, device_folder(facts))
    threads = len(os.sched_getaffinity(0))
    how = CpuRounds(rounds, max(rounds, most), turn)
    rows: list[CpuRow] = []
    kept = (out.parent / "tvm").absolute()

    def settings(process: LibraryProcess) -> tuple[dict[str, object], float]:
        if process.library.key != "tvm":
            return {}, 300.0
        # About 10 s a trial on two cores, and building.
        return {"trials": tvm_trials, "kept": str(kept)}, 600.0 + 60.0 * tvm_trials

    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(LibraryProcess(lib, python, threads)) for lib in wanted]
        peak = _peak(session)
        if peak is not None:
            stack.enter_context(peak)
        versions = {p.library.key: p.versions for p in processes}
        value = cpu_value(rows, facts, versions, threads, asdict(how))
        for number, layer in enumerate(chosen):
            with tempfile.TemporaryDirectory(prefix="nestmap-bench-cpu-") as folder:
                place = Path(folder) / str(number)
                row = compare_on_cpu(
                    layer, known, session, profile, processes, place, how, settings, peak, by_hand
                )
            rows.append(row)
            for figure in row.figures:
                if figure.failure:
                    note(f"{layer.name}: {figure.contestant}: {figure.failure}")
            value = cpu_value(rows, facts, versions, threads, asdict(how))
            write_value(out, value)
    if as_json:
        write_json(value)
    else:
        columns = cpu_columns([library.key for library in wanted] + [BY_HAND] * by_hand)
        write_table(columns, cpu_rows(rows), right=columns[1:])
        write_text(f"{cpu_summary(rows)}; {out}")
    if any(row.figures[0].failure for row in rows):
        raise typer.Exit(ExitCode.NEGATIVE)


def _peak(session: Session) -> RegisterPeak | None:
    """The cores' own peak; without it the comparison goes on."""
    from bench.kernels.peak import register_peak
    from mapper.errors import DeviceError

    try:
        return register_peak(session)
    except DeviceError as error:
        note(f"no peak beside the kernels: {error}")
        return None


def _wanted(names: list[str] | None, python: Path) -> list[Library]:
    """Who takes part: asked for and installed."""
    from bench.kernels.by_hand import BY_HAND
    from bench.kernels.libraries import BY_KEY, installed

    usual = ("torch", "torch-channels-last", "im2col")
    chosen = list(dict.fromkeys(usual if names is None else names))
    unknown = [name for name in chosen if name not in BY_KEY]
    if unknown:
        raise typer.BadParameter(
            f"{unknown[0]!r} is none of {', '.join(BY_KEY)}, {BY_HAND}", param_hint="--peers"
        )
    libraries = [BY_KEY[name] for name in chosen]
    there = installed(python) if any(library.package for library in libraries) else {}
    missing = [lib for lib in libraries if lib.package and lib.package not in there]
    if missing:
        note(
            f"{', '.join(lib.key for lib in missing)} left out: not installed in {python}; "
            "`make peers` in a clone installs them"
        )
    return [library for library in libraries if library not in missing]
