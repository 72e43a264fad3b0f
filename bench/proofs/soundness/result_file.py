"""The file of a campaign's result: replaced after every block, read to go on from there."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.proofs.layers.result_file import commit, versions
from bench.proofs.soundness.campaign import Result
from mapper.errors import InputError, Problem

SCHEMA = "nestmap/bench-soundness/1"


def read_result(path: Path, seed: int) -> Result:
    """The result in the file, or an empty one if there is no file.

    InputError for another file and for a campaign of another seed.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if value["schema"] != SCHEMA:
            raise ValueError(f"schema {value['schema']!r}")
        result = Result.from_json(value["result"])
    except FileNotFoundError:
        return Result(seed)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            Problem(str(path), "holds no result of this command", str(error), SCHEMA, "--fresh")
        ) from error
    if result.seed != seed:
        raise InputError(
            Problem(
                str(path),
                "is of a campaign with another seed",
                str(result.seed),
                str(seed),
                "--fresh, or another --out",
            )
        )
    return result


def write_result(
    path: Path, result: Result, judges: list[str], facts: Mapping[str, str]
) -> dict[str, Any]:
    """Replace the file at once, so that an interruption leaves the old one; its value."""
    if (source := commit()) not in result.commits:
        result.commits.append(source)
    value: dict[str, Any] = {
        "schema": SCHEMA,
        "judges": judges,
        "machine": dict(facts),
        "versions": versions(),
        "result": result.to_json(),
    }
    fresh = path.with_name(path.name + ".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
        os.replace(fresh, path)
    except OSError as error:
        raise InputError(Problem(str(path), f"cannot be written: {error.strerror}")) from error
    return value
