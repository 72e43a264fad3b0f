"""Which source made a result."""

from __future__ import annotations

import subprocess
from pathlib import Path


def commit() -> str:
    """The source's commit, marked if changed since; ``unknown`` outside a checkout."""
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=Path(__file__).resolve().parent,
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return answer.stdout.strip()
