"""``nestmap tune``: measure candidates on a device and keep the time-memory front."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mapper.errors import DeviceError, InputError, NestmapError, Problem
from mapper.variants import LAST_RESORT
from nestmap.cli.exit_codes import ExitCode
from nestmap.cli.output import Progress, note, write_json, write_table, write_text
from nestmap.cli.remote import (
    TokenFileOption,
    UrlOption,
    asking,
    given_on_command_line,
    refuse_remote,
    service_at,
)
from nestmap.cli.request import SuitsOption, WhereOption

if TYPE_CHECKING:
    from db.store import Store
    from mapper.pipeline import Subject
    from nestmap.stated import Stated
    from nestmap.tuning.baselines import Contestant
    from nestmap.tuning.elsewhere import Elsewhere
    from nestmap.tuning.learned import LearnedModel
    from nestmap.tuning.run import MakeStrategy, TuningResult
    from nestmap.tuning.sketch_subjects import Tuned
    from worker.devices.interface import MeasuringDevice

STRATEGIES = ("guided", "analytic", "random")
#: Of the seconds, what the comparison with plain ways may take.
_BASELINES_SHARE = 0.1
_MOST_BASELINES_S = 10.0
#: For starting the command, and for ending what it has started.
_AROUND_S = 2.0
#: What a service's runs know nothing of.
_LOCAL_OPTIONS = (
    "db", "memory", "fastest", "finalists", "baselines", "constants", "solver_start", "records",
)  # fmt: skip


def tune(
    context: typer.Context,
    x: Annotated[str, typer.Argument(metavar="X", help="A layer (vgg16/24), or a file.")],
    variant: Annotated[
        list[str] | None,
        typer.Option(help="A layer's variant, or a program's sketch; may be repeated."),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="host, an index, words of its name (nvidia, h200), or null (invented times); of "
            "a service a device's id or name.",
            show_default="host; of a service its only one",
        ),
    ] = None,
    db: Annotated[Path, typer.Option(help="The store; created if absent.")] = Path(
        "nestmap.sqlite3"
    ),
    candidates: Annotated[
        int | None, typer.Option(min=1, help="Stop at this many, stored ones included.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.1, help="Stop after this time (60 unless told).")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Another seed is another study.")] = 0,
    strategy: Annotated[
        str, typer.Option(help=f"{', '.join(STRATEGIES)}: how candidates are chosen.")
    ] = STRATEGIES[0],
    memory: Annotated[
        int | None,
        typer.Option(min=0, metavar="BYTES", help="The fastest within so much, not the front."),
    ] = None,
    fastest: Annotated[bool, typer.Option(help="The fastest alone, not the front.")] = False,
    constants: Annotated[
        Path | None,
        typer.Option(help="The analytic model's, as `nestmap devices calibrate --out` writes."),
    ] = None,
    solver_start: Annotated[
        bool,
        typer.Option(
            "--solver-start",
            help="analytic: begin with what the solver finds to be predicted fastest, which takes "
            "about a minute for each variant.",
        ),
    ] = False,
    transfer: Annotated[
        bool | None,
        typer.Option(
            help="guided: learn first what the store (of a service: the device's runs) holds of "
            "other layers, and (not of a service) what other devices took for this one. Neither: "
            "from some of the layers, where the store has enough of the device and no sketch "
            "is tuned."
        ),
    ] = None,
    finalists: Annotated[
        int, typer.Option(min=0, max=16, help="So many of the fastest run once more, in turns.")
    ] = 4,
    out: Annotated[
        Path | None, typer.Option(help="Write the best kernel and its host plan here.")
    ] = None,
    records: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Start from these records, too.")
    ] = None,
    baselines: Annotated[
        bool, typer.Option(help="Measure plain kernels and im2col beside the best (layers).")
    ] = True,
    suits: SuitsOption = None,
    where: WhereOption = None,
    stand_in: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DEVICE",
            help="With --url: another device that may measure too; may be repeated.",
        ),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="With --url: Ctrl-C leaves the run going.")
    ] = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Tune X on a device: every candidate is verified, timed and stored at once.

    Ctrl-C stops with everything stored; the same command goes on from there. With --url a run
    is made on a device of the service, and Ctrl-C cancels it.
    """
    from mapper.constraint_rules.rule import Mode
    from nestmap.stated import refuse_meaningless, stated
    from nestmap.subjects import load_subject
    from worker.devices.names import is_null

    began = time.monotonic()
    _check_strategy(strategy)
    if solver_start and strategy != "analytic":
        raise typer.BadParameter("only analytic has such a start", param_hint="--solver-start")
    if transfer and strategy != "guided":
        raise typer.BadParameter("only guided learns", param_hint="--transfer")
    if candidates is None and seconds is None:
        seconds = 60.0
    # A layer as the program that it is: its variants and sketches are chosen below.
    first = load_subject(x, default=LAST_RESORT)
    first.require_program()
    wanted_of_all = stated(suits or (), where=where or ())
    refuse_meaningless(wanted_of_all, first, Mode.STRICT, "--mode")
    if (service := service_at(url, token_file)) is not None:
        from rich.console import Console

        from nestmap.cli.remote_tune import RemoteRun, device_of, limits_of_board, tune_there
        from nestmap.tuning.display import ProgressDisplay
        from nestmap.tuning.output import write_best
        from nestmap.tuning.run import Budget
        from nestmap.tuning.sketch_subjects import MOST_SUBJECTS, derived
        from nestmap.tuning.tuned_subjects import tuned_subjects

        budget = Budget(candidates, seconds)
        refuse_remote(**given_on_command_line(context, *_LOCAL_OPTIONS))
        with service, asking():
            board = device_of(service, device)
            limits = limits_of_board(board)
            subjects = derived(tuned_subjects(first, variant, board["facts"], limits))
            if not variant:
                subjects = subjects[:MOST_SUBJECTS]
            _refuse_names_of_one(subjects, wanted_of_all)
            wanted = RemoteRun(
                first=first,
                named=first.layer is not None or bool(variant or where),
                subjects=subjects,
                device=device,
                stand_ins=stand_in or (),
                budget=budget,
                seed=seed,
                strategy=strategy,
                transfer=bool(transfer),
                detach=detach,
                stated=wanted_of_all,
            )
            display = ProgressDisplay(Console(stderr=True), budget)
            result, run = tune_there(service, wanted, display)
        if result is None:
            raise typer.Exit(ExitCode.INTERRUPTED)
        best = result.winner
        files = write_best(best, out) if best is not None and out is not None else ()
        _write_result(result, first, seed, (), files, as_json, run)
        return
    if stand_in or detach:
        option = "--stand-in" if stand_in else "--detach"
        raise InputError(Problem(option, "is for a service", "", "with --url"))
    spec = device or "host"
    with ExitStack() as stack:
        # What the device and the processes beside it load, they load while this one does.
        opened = stack.enter_context(_open_device(spec))
        from rich.console import Console

        from db.store import Store
        from nestmap.tuning.baselines import compare_with_baselines
        from nestmap.tuning.display import ProgressDisplay
        from nestmap.tuning.output import write_best
        from nestmap.tuning.policy import INPUT_SEED
        from nestmap.tuning.reference import make_workload
        from nestmap.tuning.run import Budget
        from nestmap.tuning.run import tune as run_tuning
        from nestmap.tuning.sketch_subjects import derived, is_sketch
        from nestmap.tuning.store_records import own_starts
        from nestmap.tuning.tuned_subjects import tuned_subjects

        make = _strategy(strategy, memory, fastest, constants, solver_start=solver_start)
        budget = Budget(candidates, seconds)
        store = stack.enter_context(Store.open(db))
        layer = first.layer
        starts = () if layer is None else own_starts(store, opened.facts(), layer, records)
        subjects = tuned_subjects(first, variant, opened.facts(), opened.profile(), starts)
        _refuse_names_of_one(subjects, wanted_of_all)
        wanted = baselines and not is_null(spec) and layer is not None
        # Sketches are drawn from what is known of them; models learn where asked to.
        learns = transfer if transfer is not None else not any(map(is_sketch, subjects))
        if strategy != "guided":
            subjects = derived(subjects)
        elif learns:
            subjects = known = derived(subjects)
            elsewhere = _elsewhere(store, opened, known, seed, seconds) if transfer else {}
            learned = _learned(
                store, opened, known, seed, seconds,
                asked=bool(transfer), needed=not elsewhere,
            )  # fmt: skip
            make = _strategy(strategy, memory, fastest, constants, learned, elsewhere)
        if seconds is not None:
            # What was done so far and what comes after the search are of the same seconds.
            after_s = min(_MOST_BASELINES_S, _BASELINES_SHARE * seconds) if wanted else 0.0
            spent_s = time.monotonic() - began + min(_AROUND_S, 0.05 * seconds)
            budget = Budget(candidates, max(1.0, seconds - spent_s - after_s))
        with ProgressDisplay(Console(stderr=True), budget) as display:
            result = run_tuning(
                subjects,
                opened,
                store,
                seed=seed,
                budget=budget,
                listener=display,
                make=make,
                finalists=finalists,
                most_bytes=memory,
                records=starts,
                stated=wanted_of_all,
            )
        best = result.winner
        files = write_best(best, out) if best is not None and out is not None else ()
        contestants = ()
        if wanted and best is not None and layer is not None and result.reason != "interrupted":
            note("comparing with plain kernels and im2col + BLAS")
            workload = make_workload(first, INPUT_SEED, {})
            left_s = None if seconds is None else seconds - (time.monotonic() - began)
            try:
                contestants = compare_with_baselines(
                    layer, workload, opened, best.plan, within_s=left_s
                )
            except (KeyboardInterrupt, DeviceError) as error:
                # What was found is told all the same.
                note(f"the comparison was given up: {error or 'interrupted'}")
    _write_result(result, first, seed, contestants, files, as_json)


def _write_result(
    result: TuningResult,
    subject: Subject,
    seed: int,
    contestants: tuple[Contestant, ...],
    files: Sequence[Path],
    as_json: bool,
    run: str | None = None,
) -> None:
    """Write what a run has found; exit code NEGATIVE where that is nothing."""
    from nestmap.tuning.display import (
        BASELINE_COLUMNS,
        BASELINE_NUMBERS,
        FINAL_COLUMNS,
        FINAL_NUMBERS,
        FRONT_COLUMNS,
        FRONT_NUMBERS,
        baseline_rows,
        final_rows,
        front_rows,
        state_text,
    )
    from nestmap.tuning.output import result_json

    layer = subject.layer
    if as_json:
        value = result_json(
            result,
            label=subject.label,
            layer=layer,
            seed=seed,
            contestants=contestants,
            files=files,
        )
        write_json(value if run is None else {**value, "run": run})
    else:
        write_text(f"ended by {result.reason}: {state_text(result.state)}")
        if result.front:
            write_table(FRONT_COLUMNS, front_rows(result.front, layer), "front", FRONT_NUMBERS)
        if result.finals:
            write_table(FINAL_COLUMNS, final_rows(result.finals), "in turns", FINAL_NUMBERS)
        if contestants:
            write_table(
                BASELINE_COLUMNS, baseline_rows(contestants), "in turns with it", BASELINE_NUMBERS
            )
        for path in files:
            write_text(f"wrote {path}")
    if result.winner is None:
        raise typer.Exit(ExitCode.NEGATIVE)


def _refuse_names_of_one(subjects: Sequence[Tuned], stated: Stated) -> None:
    """InputError where there are several subjects, and one's names are spoken of."""
    if stated.where and len(subjects) > 1:
        names = ", ".join(subject.variant for subject in subjects if subject.variant)
        raise InputError(
            Problem("--where", "speaks of the names of one variant", names, "one --variant")
        )


def _check_strategy(name: str) -> None:
    """BadParameter for what is no strategy's name."""
    if name not in STRATEGIES:
        allowed = ", ".join(STRATEGIES)
        raise typer.BadParameter(f"{name!r} is none of {allowed}", param_hint="--strategy")


def _strategy(
    name: str,
    memory: int | None,
    fastest: bool,
    constants: Path | None,
    learned: LearnedModel | None = None,
    elsewhere: Mapping[str, Sequence[Elsewhere]] | None = None,
    *,
    solver_start: bool = False,
) -> MakeStrategy:
    """The strategy of a name, with its goal."""
    from functools import partial

    from mapper.search.goal import Fastest, FastestWithin, Front
    from nestmap.tuning.calibration import read_constants
    from nestmap.tuning.descriptions import CONSTANTS
    from nestmap.tuning.guided import GuidedStrategy
    from nestmap.tuning.predicted_start import best_predicted_start
    from nestmap.tuning.strategy import random_strategy

    if name == "random":
        return random_strategy()
    return partial(
        GuidedStrategy,
        goal=Fastest() if fastest else Front() if memory is None else FastestWithin(memory),
        analytic=name == "analytic",
        start=best_predicted_start if solver_start else None,
        constants=CONSTANTS if constants is None else read_constants(constants),
        learned=learned,
        elsewhere=elsewhere,
    )


def _elsewhere(
    store: Store,
    device: MeasuringDevice,
    subjects: Sequence[Subject],
    seed: int,
    seconds: float | None,
) -> Mapping[str, Sequence[Elsewhere]]:
    """What the store's other devices took for these programs' candidates, from no more of them
    than a quarter of ``seconds`` suffices to describe."""
    from nestmap.tuning.elsewhere import MOST_IN_ALL, known_elsewhere
    from nestmap.tuning.learned import DESCRIBING_S

    most = MOST_IN_ALL if seconds is None else min(MOST_IN_ALL, int(seconds / 4 / DESCRIBING_S))
    with Progress("learning from other devices"):
        found = known_elsewhere(store, device, subjects, seed, most=most)
    by_name = {subject.hash(): subject.variant or subject.label for subject in subjects}
    for program_hash, devices in found.items():
        for other in devices:
            note(
                f"learned from {other.candidates} candidates of {by_name[program_hash]} "
                f"on {other.device}"
            )
    return found


def _learned(
    store: Store,
    device: MeasuringDevice,
    subjects: Sequence[Subject],
    seed: int,
    seconds: float | None,
    *,
    asked: bool,
    needed: bool,
) -> LearnedModel | None:
    """What the store holds of other layers; where nobody asked for it, from fewer candidates (that
    take a quarter of ``seconds`` to describe). None where it is too little, but InputError where it
    was asked for and is ``needed``, nothing else being known."""
    from nestmap.tuning import learned

    most, least = learned.UNASKED_EXAMPLES, learned.UNASKED_LEAST
    if seconds is not None:
        most = min(most, int(seconds / 4 / learned.DESCRIBING_S))
    if not asked and most < least:
        return None
    if asked:
        most, least = learned.MOST_EXAMPLES, learned.LEAST_OF_A_GROUP
    with Progress("learning from other layers"):
        try:
            found = learned.learned_for(store, device, subjects, seed, most=most, least=least)
        except NestmapError as error:
            if asked and (needed or not isinstance(error, InputError)):
                raise
            if asked:
                note("too little is known of other layers on this device to learn from")
            return None
    note(f"learned from {', '.join(found.groups)}")
    return found


def _open_device(spec: str) -> MeasuringDevice:
    from nestmap.tuning.opening import open_measuring

    return open_measuring(spec)
