"""``nestmap bench schedules``: chains of primitives keep the meaning of programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nestmap.cli.exit_codes import ExitCode
from nestmap.cli.output import Progress, write_json, write_text

if TYPE_CHECKING:
    from bench.proofs.schedules.campaign import Campaign


def schedules(
    chains: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many.")] = 20_000,
    seed: Annotated[int, typer.Option(min=0, help="Of the first chain.")] = 0,
    out: Annotated[Path, typer.Option(help="The file of results, written as they come.")] = (
        Path("out/bench-schedules.json")
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Random chains of primitives on random computations, against the interpreter.

    Exit code 1 if one changes a meaning, does not elaborate or does not apply as it should.
    """
    from bench.proofs.schedules.campaign import run

    out.parent.mkdir(parents=True, exist_ok=True)

    with Progress("chains") as progress:

        def told(found: Campaign) -> None:
            progress.update(found.chains)
            _write(out, found)

        found = run(chains, seed, told)
    _write(out, found)
    if as_json:
        write_json(found.to_json())
    else:
        write_text(f"{found.chains} chains of {sum(found.applied.values())} primitives, "
                   f"{len(found.failures)} failed, {found.seconds:.0f} s; {out}")  # fmt: skip
    if found.failures:
        raise typer.Exit(ExitCode.NEGATIVE)


def _write(out: Path, found: Campaign) -> None:
    out.write_text(json.dumps(found.to_json(), indent=1) + "\n", encoding="utf-8")
