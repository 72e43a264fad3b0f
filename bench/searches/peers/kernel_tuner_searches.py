"""Kernel Tuner's strategies in its simulation mode, on a cache file written from the recording.

Every strategy has its default options and ``max_fevals``, which counts unique configurations
within the constraints, as all counting here does.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kernel_tuner  # pyright: ignore[reportMissingImports]
import numpy as np
from kernel_tuner.interface import strategy_map  # pyright: ignore[reportMissingImports]

from bench.searches.recording import Recording

_KERNEL = "recorded"
_PROBLEM = (1, 1)


class KernelTunerSearches:
    """All strategies that can be imported, by name."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._names = [name for name, _ in recording.variables]
        self._folder = tempfile.TemporaryDirectory()
        self._cache = Path(self._folder.name) / "cache.json"
        self._cache.write_text(json.dumps(self._cache_value()), encoding="utf-8")

    def close(self) -> None:
        """Remove the cache file."""
        self._folder.cleanup()

    @staticmethod
    def available() -> list[str]:
        """The strategies whose packages are there; not what goes through everything in order."""
        found: list[str] = []
        for name, strategy in strategy_map.items():
            with contextlib.suppress(ImportError):
                if name not in ("brute_force", "nsga2", "nsga3") and callable(strategy.tune):
                    found.append(name)
        return found

    def _cache_value(self) -> dict[str, Any]:
        recording = self._recording
        cache: dict[str, Any] = {}
        for row, values in enumerate(recording.values.tolist()):
            failed = recording.failures.get(row)
            kind = "CompilationFailedConfig" if failed and "ompil" in failed else None
            time: float | str = (
                (kind or "RuntimeFailedConfig") if failed else float(recording.time_ms[row])
            )
            cache[",".join(map(str, values))] = {
                **dict(zip(self._names, values, strict=True)),
                "time": time,
                "compile_time": 0.0,
                "verification_time": 0.0,
                "benchmark_time": float(recording.cost_ms[row]),
            }
        return {
            "device_name": "recorded",
            "kernel_name": _KERNEL,
            "problem_size": list(_PROBLEM),
            "tune_params_keys": self._names,
            "tune_params": {name: list(values) for name, values in recording.variables},
            "objective": "time",
            "cache": cache,
        }

    def _restrictions(self) -> Any:
        if self._recording.complete:
            return list(self._recording.constraints)
        rows, names = self._recording.row_of, self._names
        return [lambda chosen: tuple(chosen[name] for name in names) in rows]

    def trace(self, strategy: str, seed: int, evaluations: int) -> list[int]:
        """Rows in the order in which they were first evaluated."""
        random.seed(seed)
        np.random.seed(seed)
        with contextlib.redirect_stdout(io.StringIO()):
            results, _ = kernel_tuner.tune_kernel(
                _KERNEL,
                "__global__ void recorded() {}",
                _PROBLEM,
                [],
                {name: list(values) for name, values in self._recording.variables},
                restrictions=self._restrictions(),
                lang="CUDA",
                strategy=strategy,
                strategy_options={"max_fevals": evaluations},
                cache=str(self._cache),
                simulation_mode=True,
                quiet=True,
                seed=seed,
            )
        return self._rows(results)[:evaluations]

    def _rows(self, results: Sequence[dict[str, Any]]) -> list[int]:
        row_of = self._recording.row_of
        keys = (tuple(int(result[name]) for name in self._names) for result in results)
        # What breaks a constraint is no evaluation: it is not in the recording.
        return list(dict.fromkeys(row_of[key] for key in keys if key in row_of))
