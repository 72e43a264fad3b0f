"""Traces of other tuners in a process of the peers' environment.

``python -m bench.searches.peers.child`` reads a request from stdin (``recording``: a path,
``project``, ``searches``, ``seeds``, ``evaluations``) and writes a line of JSON for each search
and seed: the rows in the order in which they were first evaluated, or what went wrong. With
``searches`` empty it writes the names of those that the project has.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from bench.searches.recording import read_recording

PROJECTS = {
    "kernel-tuner": ("kernel_tuner_searches", "KernelTunerSearches"),
    "pyatf": ("pyatf_searches", "PyAtfSearches"),
    "optuna": ("optuna_searches", "OptunaSearches"),
}
_MESSAGE_CHARACTERS = 200


def main() -> None:
    """Answer the request on stdin."""
    warnings.simplefilter("ignore")
    request: dict[str, Any] = json.load(sys.stdin)
    # What packages print must not mix with the answers.
    out, sys.stdout = sys.stdout, sys.stderr
    module, name = PROJECTS[request["project"]]
    project: Any = getattr(importlib.import_module(f"bench.searches.peers.{module}"), name)

    def answer(value: dict[str, Any]) -> None:
        out.write(json.dumps(value) + "\n")
        out.flush()

    if not request["searches"]:
        answer({"searches": project.available()})
        return
    searches = project(read_recording(Path(request["recording"])))
    try:
        for search in request["searches"]:
            for seed in request["seeds"]:
                started = time.process_time()
                line: dict[str, Any] = {"search": search, "seed": seed}
                try:
                    line["rows"] = searches.trace(search, seed, request["evaluations"])
                except Exception as error:  # whatever another project raises is its result
                    line["failed"] = f"{type(error).__name__}: {error}"[:_MESSAGE_CHARACTERS]
                line["seconds"] = time.process_time() - started
                answer(line)
    finally:
        searches.close()


if __name__ == "__main__":
    main()
