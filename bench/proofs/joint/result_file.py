"""The file of the joint campaign: replaced after every cell, read to go on from there."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.proofs.joint.campaign import CellResult
from mapper.errors import InputError, Problem

SCHEMA = "nestmap/bench-joint/1"
_PACKAGES = ("nestmap", "numpy", "ortools", "lark")


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


def write_results(path: Path, results: list[CellResult], seed: int, jobs: int) -> dict[str, Any]:
    """Replace the file at once, so that an interruption leaves the old one; its value."""
    value: dict[str, Any] = {
        "schema": SCHEMA,
        "seed": seed,
        "machine": {"processors": os.cpu_count(), "system": platform.platform(), "jobs": jobs},
        "versions": _versions(),
        "samples": sum(result.drawn for result in results),
        "distinct": sum(result.distinct for result in results),
        "failures": sum(result.failed for result in results),
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


def markdown_table(results: Iterable[CellResult]) -> str:
    """A line for each program and device, over all layers, as docs/benchmarks.md has it."""
    lines = [
        "| program | device | samples | distinct | passed | with barriers | with local memory "
        "| most local bytes | most private bytes | largest work-group "
        "| processor time a sample: draw, generate, verify |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[str, str], list[CellResult]] = {}
    for result in results:
        groups.setdefault((result.variant, result.device), []).append(result)
    for (variant, device), cells in groups.items():
        drawn = sum(cell.drawn for cell in cells)
        largest = [
            max((cell.largest.get(name, 0) for cell in cells), default=0)
            for name in ("local_bytes", "private_bytes", "work_items")
        ]
        each = [
            1000 * sum(getattr(cell, name) for cell in cells) / max(drawn, 1)
            for name in ("drawing_s", "generating_s", "verifying_s")
        ]
        numbers = [
            drawn,
            sum(cell.distinct for cell in cells),
            sum(cell.passed for cell in cells),
            sum(cell.with_barriers for cell in cells),
            sum(cell.with_local for cell in cells),
            *largest,
        ]
        columns = [variant, device, *(f"{number:,}" for number in numbers)]
        columns.append(", ".join(f"{ms:.1f}" for ms in each) + " ms")
        lines.append("| " + " | ".join(columns) + " |")
    return "\n".join(lines)


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "from its source"
    return found
