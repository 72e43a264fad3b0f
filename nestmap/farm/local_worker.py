"""The worker that ``nestmap serve`` starts on its own host: an agent like any other."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

_AGENT = [sys.executable, "-m", "worker.agent"]
#: So long a job under way may go on when the service stops.
_STOP_S = 10.0
_KILL_S = 15.0
_AGAIN_S = 2.0
_MOST_AGAIN_S = 60.0
#: The agent's exit codes that a new start does not change: options, device, token refused.
_FINAL = frozenset({2, 3, 77})


class LocalWorker:
    """Keeps an agent running; an async context manager, of the main thread's loop. It gets its
    token by the environment, where no list of processes shows it, and ends when this process is
    killed."""

    def __init__(
        self, url: str, board_id: str, token: str, device: str, folder: Path, said: Any
    ) -> None:
        self._arguments = [
            f"--url={url}", f"--id={board_id}", f"--device={device}", f"--state={folder}",
            f"--stop-grace={_STOP_S:g}", f"--end-with-parent={os.getpid()}",
        ]  # fmt: skip
        self._environment = {**_without_secrets(), "NESTMAP_TOKEN": token}
        self._folder = folder
        self._said = said
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> LocalWorker:
        self._task = asyncio.create_task(self._keep_running())
        return self

    async def __aexit__(self, *exception: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _keep_running(self) -> None:
        again_s = _AGAIN_S
        while True:
            process = await asyncio.create_subprocess_exec(
                *_AGENT, *self._arguments,
                env=self._environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
            try:
                await self._relay(process)
                status = await process.wait()
            finally:
                await _stop(process)
            if status in _FINAL:
                self._said("worker", f"the local worker has ended for good: status {status}")
                return
            self._said("worker", f"the local worker ended with status {status}; it starts again")
            await asyncio.sleep(again_s)
            again_s = min(2 * again_s, _MOST_AGAIN_S)

    async def _relay(self, process: asyncio.subprocess.Process) -> None:
        """Say what the agent says."""
        assert process.stdout is not None
        while line := await _line(process.stdout):
            self._said("worker", line.decode("utf-8", "replace").rstrip())


async def _line(stream: asyncio.StreamReader) -> bytes:
    """The next line; of one that is too long its beginning."""
    try:
        return await stream.readline()
    except ValueError:
        return b"(a line that is too long)\n"


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Ask the agent to end, then end it with all that it started."""
    if process.returncode is None:
        process.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_KILL_S):
                await process.wait()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def _without_secrets() -> dict[str, str]:
    """The environment without what only the service may know."""
    return {name: value for name, value in os.environ.items() if not name.startswith("NESTMAP_")}
