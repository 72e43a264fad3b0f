"""``make demo``: tune one VGG-16 layer at full size on this machine's OpenCL device.

Prints the verified time-memory front, the best kernel's file, and its speed beside a plain
sequential kernel and beside im2col + BLAS, all measured in the same run. Started again, it
goes on from where it stopped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from db.store import Store
from mapper.errors import NestmapError
from mapper.layer_sets import named_layer
from mapper.pipeline import subject_of_layer
from mapper.variants import LAST_RESORT
from nestmap.cli.exit_codes import ExitCode, exit_code_of
from nestmap.cli.output import write_problems, write_table, write_text
from nestmap.cli.plot import plot
from nestmap.tuning.baselines import Contestant, compare_with_baselines
from nestmap.tuning.display import (
    BASELINE_COLUMNS,
    BASELINE_NUMBERS,
    FINAL_COLUMNS,
    FINAL_NUMBERS,
    FRONT_COLUMNS,
    FRONT_NUMBERS,
    ProgressDisplay,
    baseline_rows,
    final_rows,
    front_rows,
    state_text,
)
from nestmap.tuning.finalists import FINALISTS
from nestmap.tuning.opening import open_measuring
from nestmap.tuning.output import write_best
from nestmap.tuning.policy import INPUT_SEED
from nestmap.tuning.reference import make_workload
from nestmap.tuning.run import Budget, tune
from nestmap.tuning.tuned_subjects import tuned_subjects

#: 512 channels of 14 x 14 to 512 filters of 3 x 3: nearly a gigaflop, three candidates a second.
LAYER = "vgg16/24"
#: More than the time allows on two cores; with more cores the demo ends sooner.
CANDIDATES = 400


def run_demo(seconds: float, seed: int, folder: Path, device: str) -> ExitCode:
    """Tune, compare, print; NEGATIVE if nothing was measured right."""
    layer = named_layer(LAYER)
    budget = Budget(CANDIDATES, seconds)
    folder.mkdir(parents=True, exist_ok=True)
    with open_measuring(device) as child, Store.open(folder / "demo.sqlite3") as store:
        machine = _machine(child.facts())
        write_text(machine)
        first = subject_of_layer(layer, LAST_RESORT)
        subjects = tuned_subjects(first, None, child.facts(), child.profile())
        variants = ", ".join(subject.variant for subject in subjects)
        write_text(
            f"{LAYER}: {layer.channels} x {layer.height} x {layer.width} to {layer.filters} "
            f"filters, {layer.operations / 1e9:.2f} GFLOP; {variants}; "
            f"{seconds:.0f} s of tuning"
        )
        with ProgressDisplay(Console(stderr=True), budget) as display:
            result = tune(
                subjects,
                child,
                store,
                seed=seed,
                budget=budget,
                listener=display,
                finalists=FINALISTS,
            )
        write_text(f"on {child.profile().name}: {result.state.tried} candidates tried")
        write_text(state_text(result.state))
        if not result.front and result.reason == "interrupted":
            return ExitCode.INTERRUPTED
        if not result.front:
            write_text("nothing was measured right; please report it")
            return ExitCode.NEGATIVE
        best = result.winner or result.front[0]
        write_table(
            FRONT_COLUMNS,
            front_rows(result.front, layer),
            "the verified time-memory front",
            FRONT_NUMBERS,
        )
        points = [(entry.time_ms, entry.memory_bytes / 2**20) for entry in result.front]
        write_text(plot(points, "ms", "MiB"))
        if result.finals:
            write_table(FINAL_COLUMNS, final_rows(result.finals), "in turns", FINAL_NUMBERS)
        source, plan = write_best(best, folder)
        write_text(f"the best kernel: {source} (host plan: {plan})")
        if result.reason == "interrupted":
            return ExitCode.OK
        contestants = compare_with_baselines(
            layer, make_workload(first, INPUT_SEED, {}), child, best.plan, timeout_s=30.0
        )
    write_table(
        BASELINE_COLUMNS,
        baseline_rows(contestants),
        "the best kernel and plain ways, in turns",
        BASELINE_NUMBERS,
    )
    write_text(f"more: nestmap tune {LAYER} --seconds 600 --db {folder / 'demo.sqlite3'}")
    write_text(f"On this machine ({machine}):")
    for contestant in contestants[1:]:
        write_text(_compared(contestants[0], contestant))
    return ExitCode.OK


def _machine(facts: Mapping[str, str]) -> str:
    """Processor, driver and target in a line."""
    words = [
        facts.get("cpu.model", facts.get("device.name", "unknown processor")),
        f"{facts.get('cpu.cores_allowed', '?')} cores",
        f"{facts.get('platform.name', '?')}, driver {facts.get('driver.version', '?')}",
    ]
    if target := facts.get("device.target"):
        words.append(f"kernels compiled for {target}")
    return "; ".join(words)


def _compared(best: Contestant, other: Contestant) -> str:
    """How the best kernel stands beside a plain way, in a sentence."""
    ratio = other.time_over_tuned
    if ratio is None or best.time_ms is None or other.time_ms is None:
        return f"{other.name} could not be compared: {other.note}"
    times = f"{best.time_ms:.2f} ms to its {other.time_ms:.2f}"
    if ratio >= 1:
        return f"the best kernel is {ratio:.2f} times as fast as {other.name}, {times}"
    return f"the best kernel is {1 / ratio:.2f} times SLOWER than {other.name}, {times}"


def options() -> argparse.ArgumentParser:
    """What the command line may say."""
    parser = argparse.ArgumentParser(prog="python -m nestmap.demo", description=__doc__)
    parser.add_argument("--seconds", type=float, default=75.0, help="of tuning")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="host", help="host, or opencl:<platform>/<device>")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where files go")
    return parser


def main() -> int:
    """The command line of ``python -m nestmap.demo``."""
    arguments = options().parse_args()
    try:
        return run_demo(arguments.seconds, arguments.seed, arguments.out, arguments.device)
    except NestmapError as error:
        write_problems("demo", error.problems, as_json=False)
        return exit_code_of(error)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
