"""One solver child: a process that answers requests, one at a time (docs/solver-workers.md).

What it writes is read as it is wanted: a reader that stops reads nothing more from the pipe, so
that the child stands still. Every way in which a child can end has a name; whoever kills it
kills its process group, since what it started would otherwise live on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from api.solver_problems import (
    SolverLimits,
    SolverProblem,
    child_problem,
    limit_problem,
    problem_of_reply,
)

#: Also in nestmap/tasks/replies.py: a child never writes a longer line.
MAX_LINE_BYTES = 4 * 2**20
MAX_REQUEST_BYTES = 16 * 2**20
#: The exit status of a child that has no memory left (nestmap/tasks/limits.py).
EXIT_MEMORY = 71
_STDERR_KEPT = 4096
#: A child ends a request at its deadline by itself; past this it is killed.
_GRACE_S = 1.0
#: So long a child may take to stop by itself when nobody wants its answer any more.
_CANCEL_S = 0.5
_AFFINITIES_KEPT = 16
#: The only variables that children get: a store's password is none of their business.
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV")
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def child_command() -> list[str]:
    """How a child is started."""
    return [sys.executable, "-m", "nestmap.tasks", "--end-with-parent"]


def child_environment() -> dict[str, str]:
    """The environment of a child: no secrets, one thread for each library."""
    kept = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    return {**kept, **dict.fromkeys(_ONE_THREAD, "1"), "PYTHONUNBUFFERED": "1"}


class ChildGoneError(Exception):
    """The child had ended before it got the request, which is not at fault."""


class SolverChild:
    """A running child and the request that it works on."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._stderr = process.stderr
        self._said = bytearray()
        self._listening = asyncio.create_task(self._listen())
        self._affinities: OrderedDict[str, None] = OrderedDict()
        self._request = ""
        self._limits = SolverLimits()
        self._deadline = 0.0
        self.answered = 0

    @classmethod
    async def start(cls, command: list[str] | None = None) -> SolverChild:
        """A child that has loaded everything and waits; SolverProblem where it does not start."""
        process = await asyncio.create_subprocess_exec(
            *(command or child_command()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=child_environment(),
            start_new_session=True,
            limit=MAX_LINE_BYTES,
        )
        child = cls(process)
        try:
            ready = await child._line()
        except BaseException:
            await child.kill()
            raise
        if "ready" not in ready:
            await child.kill()
            raise child_problem("start", "a solver process did not start", str(ready)[:200])
        return child

    @property
    def pid(self) -> int:
        """The process's id, which is its group's, too."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process.returncode is None

    def knows(self, affinity: str) -> bool:
        """Whether it has lately worked on this subject."""
        return affinity in self._affinities

    @property
    def known(self) -> int:
        """How many subjects it has lately worked on."""
        return len(self._affinities)

    async def send(
        self, number: int, request: Mapping[str, Any], limits: SolverLimits, affinity: str
    ) -> None:
        """Begin a request. SolverProblem where it is refused unread, ChildGoneError where there
        is nobody to take it."""
        self._request = str(number)
        self._limits = limits
        line = json.dumps(
            {**request, "id": self._request, "limits": limits.to_json()}, allow_nan=False
        )
        data = line.encode() + b"\n"
        if len(data) > MAX_REQUEST_BYTES:
            raise SolverProblem(
                "too-complex", f"more than {MAX_REQUEST_BYTES} bytes are no request for a solver"
            )
        self._affinities[affinity] = None
        self._affinities.move_to_end(affinity)
        if len(self._affinities) > _AFFINITIES_KEPT:
            self._affinities.popitem(last=False)
        self._deadline = asyncio.get_running_loop().time() + limits.wall_s + _GRACE_S
        try:
            async with asyncio.timeout_at(self._deadline):
                self._stdin.write(data)
                await self._stdin.drain()
                reply = await self._line()
        except (ConnectionError, TimeoutError):
            await self.kill()
            raise ChildGoneError from None
        except SolverProblem:
            # It ended before it said that it had begun.
            raise ChildGoneError from None
        if isinstance(reply.get("problem"), dict):
            raise await self._refusal(reply["problem"])
        if "begun" not in reply or reply.get("id") != self._request:
            await self.kill()
            raise ChildGoneError

    async def ended(self) -> None:
        """Wait until the process is over."""
        await self._process.wait()

    async def receive(self) -> tuple[str, dict[str, Any]]:
        """The next ``item`` or ``progress``, or the ``end``; SolverProblem for anything else.

        After an end or a problem the child is free, unless it is not :attr:`alive`.
        """
        try:
            async with asyncio.timeout_at(self._deadline):
                reply = await self._line()
        except TimeoutError:
            await self.kill()
            raise limit_problem("time", self._limits) from None
        if reply.get("id") == self._request:
            for kind in ("item", "progress", "end"):
                value = reply.get(kind)
                if isinstance(value, dict):
                    self.answered += kind == "end"
                    return kind, value
            if isinstance(reply.get("problem"), dict):
                raise await self._refusal(reply["problem"])
        await self.kill()
        raise child_problem("crash", "a solver process answered something else than it was asked")

    async def cancel(self) -> None:
        """Stop the request under way within a second: ask, then kill.

        What the child still writes is read and dropped, since it may be waiting to write.
        """
        if not self.alive:
            await self.kill()
            return
        try:
            async with asyncio.timeout(_CANCEL_S):
                self._stdin.write(json.dumps({"cancel": self._request}).encode() + b"\n")
                await self._stdin.drain()
                while True:
                    reply = await self._line()
                    if reply.get("id") == self._request and ("end" in reply or "problem" in reply):
                        return
        except (TimeoutError, ConnectionError, SolverProblem):
            await self.kill()

    async def close(self) -> None:
        """End an idle child: it leaves when there is nothing more to read."""
        self._stdin.close()
        try:
            async with asyncio.timeout(_CANCEL_S):
                await self._process.wait()
        except TimeoutError:
            pass
        await self.kill()

    async def kill(self) -> None:
        """End the child with all that it started, whatever it does."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        await self._process.wait()
        await self._listening
        self._stdin.close()
        # Python closes the pipes of a process when the loop next runs.
        await asyncio.sleep(0)

    async def _line(self) -> dict[str, Any]:
        """The next reply; SolverProblem if the child has ended or writes something else."""
        try:
            line = await self._stdout.readuntil(b"\n")
            reply = json.loads(line)
        except asyncio.IncompleteReadError:
            raise await self._why_it_ended() from None
        except (asyncio.LimitOverrunError, ValueError):
            await self.kill()
            raise child_problem("crash", "a solver process wrote something unreadable") from None
        if not isinstance(reply, dict):
            await self.kill()
            raise child_problem("crash", "a solver process wrote something unreadable")
        return reply

    async def _refusal(self, problem: dict[str, Any]) -> SolverProblem:
        """The problem that a child reports; it leaves by itself after some."""
        if problem.get("ends"):
            # Its memory is fragmented or its solver unwell: another one goes on.
            await self.kill()
        return problem_of_reply(problem)

    async def _why_it_ended(self) -> SolverProblem:
        """The problem that the end of the process stands for."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await self._process.wait()
        # Nobody can say any more who of its group is left.
        await self.kill()
        status = self._process.returncode
        said = self._said.decode("utf-8", "replace")
        if status == -signal.SIGALRM:
            return limit_problem("time", self._limits)
        if status == -signal.SIGXCPU:
            return limit_problem("cpu", self._limits)
        # The C++ library ends the process where it gets no memory; the kernel does, too.
        if status in (EXIT_MEMORY, -signal.SIGKILL) or "bad_alloc" in said:
            return limit_problem("memory", self._limits)
        how = f"signal {-status}" if status is not None and status < 0 else f"status {status}"
        return child_problem("crash", "the solver process died", how)

    async def _listen(self) -> None:
        """Keep the end of what the child says on stderr: it goes to no client."""
        while chunk := await self._stderr.read(4096):
            self._said += chunk
            del self._said[:-_STDERR_KEPT]
