"""``nestmap worker``: serve a measuring device to a server (docs/workers.md)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import typer

import worker as worker_package


def worker(context: typer.Context) -> None:
    """Serve a measuring device to a nestmap server: lease jobs, measure, report."""
    sys.stdout.flush()
    root = str(Path(worker_package.__file__).resolve().parents[1])
    search = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    # In place of this process, which has loaded much that an agent of 20 MB does without;
    # signals and the service manager then reach the agent itself.
    os.execve(
        sys.executable,
        [sys.executable, "-m", "worker.agent", *context.args],
        {**os.environ, "PYTHONPATH": os.pathsep.join(search)},
    )
