"""``nestmap bench soundness``: whatever strict mode returns is right."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nestmap.cli.exit_codes import ExitCode
from nestmap.cli.output import Progress, note, write_json, write_text

if TYPE_CHECKING:
    from bench.proofs.soundness.campaign import Result
    from bench.proofs.soundness.judges import Judge, JudgeName
    from mapper.device_profile import DeviceProfile

_SHRUNK = 10
_DEVICE = "pocl"


def _judge_names(names: list[str] | None) -> list[JudgeName]:
    from bench.proofs.soundness.judges import JudgeName

    unknown = [name for name in names or () if name not in {judge.value for judge in JudgeName}]
    if unknown:
        allowed = ", ".join(judge.value for judge in JudgeName)
        raise typer.BadParameter(f"{unknown[0]!r} is none of {allowed}", param_hint="--judge")
    return [JudgeName(name) for name in dict.fromkeys(names or ())] or list(JudgeName)


def soundness(
    cases: Annotated[int, typer.Option(min=1, help="How many cases in all.")] = 200,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    judge: Annotated[
        list[str] | None, typer.Option(help="oclgrind or pocl; may be repeated. Both if none.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The file of results; a campaign goes on there.")] = (
        Path("out/bench-soundness.json")
    ),
    failures: Annotated[Path, typer.Option(help="The folder for cases that fail.")] = Path(
        "out/soundness-failures"
    ),
    shrink: Annotated[bool, typer.Option(help="Make failing cases small, with Hypothesis.")] = True,
    fresh: Annotated[bool, typer.Option(help="Begin anew whatever is in the file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Random programs under random strict mappings, run in Oclgrind and on PoCL.

    Exit code 1 if any is wrong. Ctrl-C keeps what was judged; the same command goes on.
    """
    from bench.proofs.soundness.campaign import Result, run_campaign
    from bench.proofs.soundness.judges import JudgeName, OclgrindJudge, PoclJudge
    from bench.proofs.soundness.result_file import read_result, write_result
    from bench.proofs.soundness.shrinking import require_hypothesis
    from mapper.profiles import load_profile

    names = _judge_names(judge)
    if shrink:
        require_hypothesis()
    result = Result(seed) if fresh else read_result(out, seed)
    device = load_profile(_DEVICE)
    with ExitStack() as stack:
        judges: dict[str, Judge] = {}
        facts: dict[str, str] = {}
        if JudgeName.OCLGRIND in names:
            judges[JudgeName.OCLGRIND.value] = OclgrindJudge()
        if JudgeName.POCL in names:
            pocl = stack.enter_context(PoclJudge())
            judges[JudgeName.POCL.value] = pocl
            facts = pocl.facts()
        value = write_result(out, result, list(judges), facts)
        known = len(result.failures)
        with Progress("cases") as progress:

            def after_block(current: Result) -> None:
                nonlocal value
                value = write_result(out, current, list(judges), facts)
                progress.update(current.cases)

            run_campaign(result, cases, device, judges, after_block=after_block)
        _keep_failures(result, known, device, judges, failures, shrink)
    if as_json:
        write_json(value)
    else:
        write_text(_text(result, out))
    if result.failures:
        raise typer.Exit(ExitCode.NEGATIVE)


def _keep_failures(
    result: Result,
    first: int,
    device: DeviceProfile,
    judges: dict[str, Judge],
    folder: Path,
    shrink: bool,
) -> None:
    """Write each new program that fails; one of each sort of fault is made small."""
    from bench.proofs.soundness.case_files import write_case
    from bench.proofs.soundness.judges import Fault
    from bench.proofs.soundness.shrinking import shrink as shrunk_case

    seen: set[str] = set()
    written: set[tuple[int, str]] = set()
    for failure in result.failures[first:]:
        faults = tuple(Fault.of(fault) for fault in failure.faults)
        value: dict[str, Any] = failure.value
        label = faults[0].label
        if (failure.draft, label) in written:
            # Another mapping of the same program: it is in the file of results.
            continue
        written.add((failure.draft, label))
        if shrink and label not in seen and len(seen) < _SHRUNK:
            seen.add(label)
            with Progress(f"making a failure small ({label})"):
                found = shrunk_case(failure, device, judges)
            if found is None:
                note(f"draft {failure.draft} did not fail again: written as it was")
            else:
                value, faults = found.value, found.faults
        place = write_case(folder, result.seed, failure.draft, value, faults)
        note(f"FAILED {label}: {place}")


def _text(result: Result, out: Path) -> str:
    lines = ["| feature | cases |", "|---|---|"]
    lines += [
        f"| {feature} | {', '.join(f'{value}: {count}' for value, count in values.items())} |"
        for feature, values in result.coverage.items()
    ]
    discarded = sum(result.discarded.values())
    outcomes = ", ".join(f"{count} {kind}" for kind, count in sorted(result.outcomes.items()))
    lines += [
        "",
        f"{result.cases} cases of {result.drafts - discarded} programs ({discarded} drawn ones "
        f"are refused or have no mapping): {outcomes}; {result.seconds:.0f} s; {out}",
    ]
    return "\n".join(lines)
