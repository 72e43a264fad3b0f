"""The file of results: written after every run, read to go on from there."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.proofs.layers.result_file import commit
from bench.space_solving.measuring import Cell, Limits
from mapper.errors import InputError, Problem

SCHEMA = "nestmap/bench-spaces/1"


def read_cells(path: Path) -> dict[tuple[str, str, str], Cell]:
    """The cells of a file; none if there is no file. InputError for another file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if value["schema"] != SCHEMA:
            raise ValueError(f"schema {value['schema']!r}")
        cells = [Cell(**cell) for cell in value["cells"]]
        return {cell.key: cell for cell in cells}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            Problem(str(path), "holds no results of this command", str(error), SCHEMA, "--fresh")
        ) from error


def write_cells(
    path: Path, cells: Iterable[Cell], facts: Mapping[str, Any], limits: Limits
) -> dict[str, Any]:
    """Replace the file at once, so that an interruption leaves the old one; its value."""
    value: dict[str, Any] = {
        "schema": SCHEMA,
        **facts,
        "limits": asdict(limits),
        "cells": [asdict(cell) for cell in cells],
    }
    fresh = path.with_name(path.name + ".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
        os.replace(fresh, path)
    except OSError as error:
        raise InputError(Problem(str(path), f"cannot be written: {error.strerror}")) from error
    return value


def facts_of_run(peers: Mapping[str, str]) -> dict[str, Any]:
    """The machine, what runs on it, and the command."""
    return {
        "command": shlex.join(["nestmap", *sys.argv[1:]]),
        "commit": commit(),
        "machine": {"processor": _processor(), "cores": len(os.sched_getaffinity(0)),
                    "system": platform.platform(), "load": os.getloadavg()[0]},
        "versions": {"python": platform.python_version(),
                     **{name: version(name) for name in ("nestmap", "numpy")}},
        "peers": dict(peers),
    }  # fmt: skip


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
