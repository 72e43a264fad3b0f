"""``nestmap bench schedules``: chains of primitives keep the meaning of programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from nestmap.cli.exit_codes import ExitCode
from nestmap.cli.output import Progress, write_json, write_text


def schedules(
    chains: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many.")] = 20_000,
    seed: Annotated[int, typer.Option(min=0, help="Of the first chain.")] = 0,
    out: Annotated[Path, typer.Option(help="The file of results.")] = (
        Path("out/bench-schedules.json")
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Random chains of primitives on random computations, against the interpreter.

    Exit code 1 if one changes a meaning, does not elaborate or does not apply as it should.
    """
    from bench.proofs.schedules.campaign import Campaign, run

    with Progress("chains") as progress:

        def told(found: Campaign) -> None:
            progress.update(found.chains)

        found = run(chains, seed, told)
    value = found.to_json()
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    if as_json:
        write_json(value)
    else:
        write_text(f"{found.chains} chains of {sum(found.applied.values())} primitives, "
                   f"{len(found.failures)} failed, {found.seconds:.0f} s; {out}")  # fmt: skip
    if found.failures:
        raise typer.Exit(ExitCode.NEGATIVE)
