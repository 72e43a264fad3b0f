"""``nestmap bench search``: search strategies replayed on recorded spaces, beside other tuners'."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nestmap.cli.output import Progress, note, write_json, write_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.searches.campaign import Run
    from bench.searches.recording import Recording
    from bench.searches.tables import Summary
    from mapper.layer_spec import LayerSpec

_SAVE_EVERY_S = 10.0
app = typer.Typer(help="Search strategies replayed on recorded spaces, and recording them.")


def _contestants(names: list[str] | None, python: Path) -> dict[str, list[str]]:
    """The searches by project: all, or those named (``project`` or ``project:search``)."""
    from bench.searches.contestants import OWN, OWN_SEARCHES, PROJECTS, peer_searches

    wanted = names or [OWN, *PROJECTS]
    known = {OWN: list(OWN_SEARCHES)}
    found: dict[str, list[str]] = {}
    for name in wanted:
        project, _, search = name.partition(":")
        if project not in (OWN, *PROJECTS):
            allowed = ", ".join((OWN, *PROJECTS))
            raise typer.BadParameter(f"{project!r} is none of {allowed}", param_hint="--searches")
        if project not in known:
            known[project] = peer_searches(python, project)
            if not known[project]:
                note(f"{project} left out: not in {python}; `make peers` in a clone installs it")
        if search and known[project] and search not in known[project]:
            allowed = ", ".join(known[project])
            raise typer.BadParameter(f"{search!r} is none of {allowed}", param_hint="--searches")
        chosen = found.setdefault(project, [])
        chosen += [s for s in known[project] if s not in chosen and search in ("", s)]
    return {project: searches for project, searches in found.items() if searches}


@app.callback(invoke_without_command=True)
def search(
    context: typer.Context,
    recording: Annotated[
        list[Path] | None,
        typer.Option("--recordings", help="A recording; may be repeated. All of bench/ if none."),
    ] = None,
    searches: Annotated[
        list[str] | None,
        typer.Option(
            "--searches",
            help="nestmap, kernel-tuner, pyatf or optuna, or one of "
            "theirs (nestmap:evolution); may be repeated. All if none.",
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=0, max=1000, help="Runs of each; 0: show what the file has.")
    ] = 30,
    evaluations: Annotated[int, typer.Option(min=1, max=100_000, help="Unique ones.")] = 200,
    learn_from: Annotated[
        list[Path] | None,
        typer.Option(
            help="Recordings that searches with transfer learn from (of a layer: other layers of "
            "the device; of another space: the same on other devices); may be repeated. All of "
            "bench/ if none."
        ),
    ] = None,
    peers_python: Annotated[
        Path | None, typer.Option(help="The interpreter that has the other tuners.")
    ] = None,
    plots: Annotated[
        Path | None, typer.Option(help="Write the plots (SVG) into this folder.")
    ] = None,
    best_peers: Annotated[
        int | None, typer.Option(min=1, help="Show only so many searches of each other project.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The file of results; a run goes on there.")] = Path(
        "out/bench-search.json"
    ),
    fresh: Annotated[bool, typer.Option(help="Begin anew whatever is in the file.")] = False,
    jobs: Annotated[int, typer.Option(min=1, max=256, help="Processes that share the runs.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Replay searches on recorded spaces: what each has found after so many evaluations.

    No device is needed. Everyone is counted alike: an evaluation is a configuration within the
    constraints that was not evaluated before. Ctrl-C keeps the finished runs; the same command
    goes on.
    """  # fmt: skip
    if context.invoked_subcommand is not None:
        return
    from bench.searches.threads import ONE_THREAD

    # Before anything imports NumPy.
    for name, threads in ONE_THREAD.items():
        os.environ.setdefault(name, threads)
    from bench.searches.campaign import measure, read_runs, write_runs
    from bench.searches.contestants import OWN, TAUGHT
    from bench.searches.plots import write_plots
    from bench.searches.recording import read_recording
    from bench.searches.replay import Arena
    from bench.searches.tables import overview, summaries, table, verdict
    from bench.space_solving.cases import ROOT
    from bench.space_solving.measuring import PEERS_PYTHON
    from bench.space_solving.results import facts_of_run
    from mapper.errors import InputError, Problem

    python = peers_python or PEERS_PYTHON
    every = sorted((ROOT / "bench" / "recordings").rglob("*.json.gz"))
    recordings = [(path, read_recording(path)) for path in recording or every]
    chosen = _contestants(searches, python) if seeds else {}
    read = dict(recordings)
    teachers = [
        (path, read[path] if path in read else read_recording(path))
        for path in learn_from or every
        if set(TAUGHT) & set(chosen.get(OWN, ()))
    ]
    done = {} if fresh else read_runs(out)
    if not seeds and not done:
        raise InputError(Problem(str(out), "has no runs to show", remedy="--seeds 1"))
    facts = {**facts_of_run({}), "evaluations": evaluations}
    made, saved = 0, time.monotonic()
    with Progress("replaying") as progress:

        def after(run: Run) -> None:
            nonlocal made, saved
            made += 1
            progress.update(made)
            if run.failed:
                note(f"{run.recording} {run.project} {run.search} seed {run.seed}: {run.failed}")
            if time.monotonic() - saved > _SAVE_EVERY_S:
                write_runs(out, done.values(), facts)
                saved = time.monotonic()

        try:
            measure(
                recordings,
                chosen,
                range(seeds),
                evaluations,
                python,
                done,
                after,
                jobs,
                learn_from=teachers,
            )
        finally:
            # What is there already stays as it is, with the commit that it was made at.
            if made or not out.exists():
                write_runs(out, done.values(), facts)
    if as_json:
        write_json(json.loads(out.read_text(encoding="utf-8")))
        return
    runs = list(done.values())
    by_time: list[tuple[Recording, Sequence[Summary]]] = []
    by_volume: list[tuple[Recording, Sequence[Summary]]] = []
    for _, recorded in recordings:
        arena = Arena.of(recorded)
        found = summaries(arena, runs, evaluations)
        by_time.append((recorded, found))
        write_text(f"## {recorded.name}: best recorded time over best found\n")
        write_text(table(found, evaluations, best_peers=best_peers) + "\n")
        for line in verdict(found, evaluations):
            write_text(line)
        if recorded.memory_bytes.any():
            volumes = summaries(arena, runs, evaluations, front=True)
            by_volume.append((recorded, volumes))
            write_text(f"\n## {recorded.name}: share of the best hypervolume (time, memory)\n")
            write_text(table(volumes, evaluations, best_peers=best_peers) + "\n")
        if plots is not None and found:
            for path in write_plots(plots, arena, runs, found):
                note(f"wrote {path}")
    for what, of_all in (("time", by_time), ("hypervolume (time, memory)", by_volume)):
        if len(of_all) > 1:
            write_text(f"\n## All recordings: the best {what}\n")
            write_text(overview(of_all))


@app.command()
def record(
    layers: Annotated[
        list[str], typer.Argument(metavar="LAYER...", help="Layers (vgg16/7), or their files.")
    ],
    variant: Annotated[
        list[str] | None,
        typer.Option(help="The layers' variant; may be repeated. partial if none."),
    ] = None,
    device: Annotated[str, typer.Option(help="host, or opencl:<platform>/<device>.")] = "host",
    points: Annotated[
        int, typer.Option(min=2, max=100_000, help="Candidates of each layer and variant.")
    ] = 500,
    seconds: Annotated[
        float, typer.Option(min=1, help="Stop each layer and variant after this time.")
    ] = 600.0,
    quick: Annotated[
        bool, typer.Option(help="Cut the layers: an eighth of channels and filters, small images.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    jobs: Annotated[
        int,
        typer.Option(
            min=1,
            max=256,
            help="So many processes build; one candidate is timed at a time.",
        ),
    ] = 1,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds that a candidate may run.")
    ] = 5.0,
    out: Annotated[
        Path | None, typer.Option(help="The recording's file, of a single layer and variant.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="The recordings' folder; bench/recordings if none.")
    ] = None,
) -> None:
    """Measure random candidates of layers and keep them as recordings, for replays.

    Ctrl-C keeps what was measured so far.
    """
    from bench.searches.recording import write_recording
    from bench.space_solving.cases import ROOT
    from nestmap.subjects import load_subject
    from nestmap.tuning.calibration import scaled_layer

    wanted: list[tuple[LayerSpec, str]] = []
    for name in layers:
        for chosen in variant or ["partial"]:
            layer = load_subject(name, chosen).layer
            if layer is None:
                raise typer.BadParameter("not a layer", param_hint="LAYER")
            wanted.append((scaled_layer(layer) if quick else layer, chosen))
    if out is not None and len(wanted) > 1:
        raise typer.BadParameter("is for one layer and variant: take --folder", param_hint="--out")
    for found in _recorded(wanted, device, points, seconds, seed, jobs, timeout):
        stem = found.name.replace("/", "-").replace("@", "-")
        path = out or (folder or ROOT / "bench" / "recordings") / f"{stem}.json.gz"
        write_recording(path, found)
        timed = found.rows - len(found.failures)
        write_text(
            f"{path}: {found.rows} candidates, {timed} timed, the best {found.best_ms:.3f} ms"
        )


def _recorded(
    wanted: list[tuple[LayerSpec, str]],
    device: str,
    points: int,
    seconds: float,
    seed: int,
    jobs: int,
    timeout_s: float,
) -> Iterator[Recording]:
    """A recording of each layer and variant; ``jobs`` processes build, one is timed at a time."""
    from bench.searches.layer_recording import record_layer
    from worker.measuring import MeasuringChild
    from worker.pool import Pool

    opened = MeasuringChild(device) if jobs == 1 else Pool(device, jobs)
    with opened, Progress("measuring") as progress:
        for layer, chosen in wanted:
            yield record_layer(
                layer,
                chosen,
                opened,
                points=points,
                seconds=seconds,
                seed=seed,
                running_s=timeout_s,
                after=progress.update,
            )


@app.command()
def guesses(
    recording: Annotated[
        list[Path] | None,
        typer.Option("--recordings", help="A recorded layer; may be repeated. bench/'s if none."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """How well models rank the candidates of a recorded layer that they were not fitted to.

    Rank correlations with the recorded times: of the guess that a search starts from, of the
    analytic model, and of trees that learned from the other recorded layers. Needs no device.
    """
    from bench.searches.guesses import RecordedLayer, rankings, rankings_json, table
    from bench.searches.recording import read_recording
    from bench.searches.replay import is_layer
    from bench.space_solving.cases import ROOT

    paths = recording or sorted((ROOT / "bench" / "recordings").rglob("*.json.gz"))
    recordings = [read_recording(path) for path in paths]
    if recording is None:
        recordings = [found for found in recordings if is_layer(found)]
    layers = [RecordedLayer.of(found) for found in recordings]
    with Progress("learning"):
        found = rankings(layers, seed)
    if as_json:
        write_json(rankings_json(found))
    else:
        write_text(table(found, layers))


@app.command()
def describe(
    recordings: Annotated[
        list[Path], typer.Argument(metavar="RECORDING...", help="Recorded layers.")
    ],
    jobs: Annotated[int, typer.Option(min=1, max=256, help="Processes.")] = 1,
) -> None:
    """Describe the candidates of recorded layers anew, by today's generator and models.

    Times and all else that was measured stay as they are. Recordings whose program cannot be made
    any more are left alone.
    """
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    from bench.searches.layer_recording import described_anew, is_archived
    from bench.searches.recording import read_recording, write_recording

    read = {path: read_recording(path) for path in recordings}
    for path in [path for path, recording in read.items() if is_archived(recording)]:
        note(f"{path}: its program cannot be made any more")
        del read[path]
    with (
        Progress("describing") as progress,
        ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool,
    ):
        rows = 0
        for path, described in zip(read, pool.map(described_anew, read.values()), strict=True):
            write_recording(path, described)
            rows += described.rows
            progress.update(rows)
            write_text(f"{path}: {described.rows} candidates")


@app.command()
def invented(
    out: Annotated[Path, typer.Option(help="The folder of the recordings; made if absent.")] = Path(
        "out/invented"
    ),
    seed: Annotated[int, typer.Option(min=0, help="Other devices, and other parts of spaces.")] = 0,
) -> None:
    """Write recordings of devices that do not exist, on published spaces.

    Settings of a search are chosen on these and on one GPU's recording, so that what it is
    judged on stays unseen: `nestmap bench search --recordings out/invented/….json.gz` replays
    them.
    """
    from bench.searches.invented import invented_recordings
    from bench.searches.recording import write_recording
    from bench.space_solving.cases import ROOT

    for recording in invented_recordings(ROOT / "bench" / "spaces", seed):
        path = out / f"{recording.name.replace('/', '-')}.json.gz"
        write_recording(path, recording)
        near = float((recording.time_ms <= recording.best_ms / 0.95).mean())
        write_text(f"{path}: {recording.rows} configurations, {near:.3%} within 5% of the best")
