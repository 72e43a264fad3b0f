"""``nestmap bench user``: what `nestmap tune` finds with default options, beside cuDNN."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from nestmap.cli.output import note, write_json, write_table, write_text


def user(
    count: Annotated[int, typer.Option(min=1, help="Layers that are drawn.")] = 24,
    seed: Annotated[int, typer.Option(min=0, help="Of the draw.")] = 0,
    layer: Annotated[
        list[str] | None, typer.Option(help="A layer of the list instead; may be repeated.")
    ] = None,
    first: Annotated[int, typer.Option(min=0, help="Of those drawn, the first to do.")] = 0,
    last: Annotated[int | None, typer.Option(help="The one before which to stop.")] = None,
    seconds: Annotated[float, typer.Option(min=1, help="As given to `nestmap tune`.")] = 60.0,
    device: Annotated[str, typer.Option()] = "opencl:nvidia",
    rounds: Annotated[int, typer.Option(min=1, max=100)] = 3,
    repetitions: Annotated[int, typer.Option(min=1, max=1000)] = 10,
    cudnn: Annotated[bool, typer.Option(help="Time cuDNN through torch beside it.")] = True,
    out: Annotated[Path, typer.Option(help="The file of results.")] = Path("out/bench-user.json"),
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Tune layers of networks without records as a user would, and compare with cuDNN."""
    from bench.kernels.as_a_user import compared, tuned_by_command
    from bench.kernels.bench_file import write_value
    from bench.kernels.cudnn import load_torch, versions
    from bench.kernels.gpu import Rounds, geometric_mean
    from bench.kernels.held_out import drawn, named
    from worker.devices.facts import device_facts
    from worker.devices.opencl import profile_of
    from worker.measuring.loaded_plan import open_session

    torch = load_torch() if cudnn else None
    layers = (named(layer) if layer else drawn(count, seed))[first:last]
    how = Rounds(rounds, repetitions)
    value: dict[str, Any] = {
        "schema": "nestmap/bench-user/1",
        "seed": seed,
        "seconds": seconds,
        "device": {},
        "versions": versions(torch) if torch is not None else {},
        "rounds": asdict(how),
        "layers": [],
    }
    with tempfile.TemporaryDirectory(prefix="nestmap-bench-user-") as folder:
        results = []
        for one in layers:
            found = tuned_by_command(one, seconds, device, Path(folder))
            note(f"{one.name}: {found.tried} tried in {found.wall_s:.1f} s {found.failure}")
            results.append(found)
        session = open_session(device)
        value["device"] = device_facts(session.device)
        profile = profile_of(session.device)
        for found in results:
            value["layers"].append(compared(found, session, profile, torch, how, note))
            write_value(out, value)
    for name in ("ratio_to_better_layout", "run_ratio_to_better_layout"):
        value[f"mean_{name}"] = geometric_mean(
            [one[name] for one in value["layers"] if one[name] is not None]
        )
    write_value(out, value)
    if as_json:
        write_json(value)
        return
    write_table(
        ("layer", "variant", "ms", "run ms", "cuDNN ms", "other layout", "ratio", "run", "tried"),
        (
            (
                one["layer"]["name"],
                (one["best"] or {}).get("details", {}).get("variant", ""),
                _text((one["best"] or {}).get("time_ms")),
                _text((one["best"] or {}).get("run_ms")),
                _text((one["cudnn"] or {}).get("time_ms")),
                _text(one["cudnn_other_layout_ms"]),
                _text(one["ratio_to_better_layout"]),
                _text(one["run_ratio_to_better_layout"]),
                one["tried"],
            )
            for one in value["layers"]
        ),
    )
    means = [value[f"mean_{name}_to_better_layout"] for name in ("ratio", "run_ratio")]
    write_text(
        f"geometric means: {_text(means[0])} by events, {_text(means[1])} back to back; {out}"
    )


def _text(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
