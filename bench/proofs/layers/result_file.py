"""The file of a campaign's results: written after every cell, read to go on from there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.proofs.layers.campaign import CellResult, totals
from mapper.errors import InputError, Problem
from nestmap.source_commit import commit

SCHEMA = "nestmap/bench-layers/1"
_PACKAGES = ("nestmap", "numpy", "ortools", "pyopencl")


def read_results(path: Path) -> list[CellResult]:
    """The cells that are in the file; none if there is no file. InputError for another file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if value["schema"] != SCHEMA:
            raise ValueError(f"schema {value['schema']!r}")
        return [CellResult(**cell) for cell in value["cells"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            Problem(str(path), "holds no results of this command", str(error), SCHEMA, "--fresh")
        ) from error


def write_results(
    path: Path, results: list[CellResult], facts: Mapping[str, str], seed: int
) -> dict[str, Any]:
    """Replace the file at once, so that an interruption leaves the old one; its value."""
    value: dict[str, Any] = {
        "schema": SCHEMA,
        "seed": seed,
        "machine": dict(facts),
        "versions": versions(),
        "commit": commit(),
        "outcomes": totals(results),
        "failures": sum(len(result.failures) for result in results),
        "timeouts": sum(len(result.timeouts) for result in results),
        "cells": [result.to_json() for result in results],
    }
    fresh = path.with_name(path.name + ".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
        os.replace(fresh, path)
    except OSError as error:
        raise InputError(Problem(str(path), f"cannot be written: {error.strerror}")) from error
    return value


def versions() -> dict[str, str]:
    """Versions of all that takes part."""
    found = {name: version(name) for name in _PACKAGES}
    program = shutil.which("oclgrind")
    if program is not None:
        answer = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=False, timeout=30
        )
        lines = [line.strip() for line in answer.stdout.splitlines() if line.strip()]
        found["oclgrind"] = lines[0] if lines else "unknown"
    return found
