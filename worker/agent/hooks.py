"""The owner's command for a reboot, not more often than a board can bear."""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from pathlib import Path

from worker.agent.state_folder import write_durably
from worker.agent.waiting import Waiter

#: A device that is still broken after that many reboots in a day will not be healed by another.
MOST_REBOOTS_A_DAY = 3
_DAY_S = 86_400.0
_HOOK_TIMEOUT_S = 120.0


class RebootHook:
    """Runs the command at most three times a day, counted through the reboots it causes."""

    def __init__(self, command: str, folder: Path, waiter: Waiter) -> None:
        self._command = command
        self._path = folder / "reboots.json"
        self._waiter = waiter

    def run(self) -> str:
        """Run it; what happened, as a sentence. Empty where the owner gave no command."""
        if not self._command:
            return ""
        now = time.time()
        # A clock that went back makes old reboots look new: they then count, which is safe.
        recent = [at for at in self._times() if at > now - _DAY_S]
        if len(recent) >= MOST_REBOOTS_A_DAY:
            return f"no reboot: there were {len(recent)} within a day"
        write_durably(self._path, json.dumps([*recent, now]).encode())
        return run_hook(self._command, self._waiter)

    def _times(self) -> list[float]:
        try:
            return [float(at) for at in json.loads(self._path.read_bytes()[:4096])]
        except (OSError, ValueError, TypeError):
            return []


def run_hook(command: str, waiter: Waiter) -> str:
    """Run a command of the owner's, without a shell, for two minutes at most."""
    shown = f"hook {command!r}"
    try:
        process = subprocess.Popen(
            shlex.split(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return f"{shown} did not start: {error}"
    end = time.monotonic() + _HOOK_TIMEOUT_S
    while process.poll() is None:
        if time.monotonic() > end:
            process.kill()
            process.wait()
            return f"{shown} was ended after {_HOOK_TIMEOUT_S:.0f} s"
        waiter.wait(0.1)
    return f"{shown} ended with {process.returncode}"
