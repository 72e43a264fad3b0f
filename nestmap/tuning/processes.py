"""Processes that compute beside the one that tunes."""

from __future__ import annotations

import contextlib
import queue
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from multiprocessing import forkserver, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from typing import Generic, TypeVar

Given = TypeVar("Given")
Job = TypeVar("Job")
Made = TypeVar("Made")


#: What is loaded once for all processes; these are imported where there is nothing to fork from.
_LOADED = ["nestmap.tuning.solved_ahead", "nestmap.tuning.generating"]
#: Before it anybody on the machine may talk to a server that forks (CVE-2022-42919).
_SAFE_TO_FORK = (3, 11, 1)


def warm_up() -> None:
    """Begin to load what processes need, beside whatever the caller does next."""
    if sys.version_info >= _SAFE_TO_FORK:
        _context()
        forkserver.ensure_running()


def _context() -> ForkServerContext | SpawnContext:
    if sys.version_info < _SAFE_TO_FORK:
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload(_LOADED)
    return context


class Processes(Generic[Given, Job, Made]):
    """So many processes that do ``work``, each with a pipe and a thread of its own.

    What is ``given`` goes to each process once, at its start. A pool of the standard library cannot
    be ended while it works: its processes write to one pipe, and one that is killed within a result
    leaves a reader for ever, for which the interpreter waits at its end. Here who is killed closes
    its own pipe.
    """

    def __init__(self, work: Callable[[Given, Job], Made], given: Given, processes: int) -> None:
        self._jobs: queue.SimpleQueue[tuple[Job, Callable[[Made | Exception | None], None]] | None]
        self._jobs = queue.SimpleQueue()
        self._ready = threading.Event()
        self._lock = threading.Lock()
        self._alive = processes
        self._closing = False
        context = _context()
        self._processes: list[BaseProcess] = []
        for _ in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, work), daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            asking = partial(self._ask, ours, given)
            threading.Thread(target=asking, name="beside", daemon=True).start()

    @property
    def is_ready(self) -> bool:
        """Whether a process has started and one is left."""
        return self._ready.is_set() and self._alive > 0

    def submit(self, job: Job, done: Callable[[Made | Exception | None], None]) -> None:
        """Do a job; ``done`` is called in a thread, once, with what was made, with why it was not,
        or with None where the process was ended."""
        with self._lock:
            if self._alive and not self._closing:
                self._jobs.put((job, done))
                return
        done(None)

    def close(self) -> None:
        """Kill every process, whatever it does. Nobody is called for what is not done."""
        with self._lock:
            self._closing = True
        for process in self._processes:
            process.kill()
            self._jobs.put(None)

    # In a process's thread

    def _ask(self, pipe: Connection, given: Given) -> None:
        try:
            with pipe, contextlib.suppress(EOFError, OSError):
                # Not as an argument: who starts a process waits until it has read these.
                pipe.send(given)
                pipe.recv()
                self._ready.set()
                while (asked := self._jobs.get()) is not None and not self._closing:
                    job, done = asked
                    made: Made | Exception | None = None
                    try:
                        pipe.send(job)
                        made = pipe.recv()
                    finally:
                        if not self._closing:
                            done(made)
        finally:
            self._end()

    def _end(self) -> None:
        """A process is gone; the last one's thread answers for what is left."""
        with self._lock:
            self._alive -= 1
            if self._alive or self._closing:
                return
        with contextlib.suppress(queue.Empty):
            while True:
                asked = self._jobs.get_nowait()
                if asked is not None:
                    asked[1](None)


def _serve(pipe: Connection, work: Callable[[Given, Job], Made]) -> None:
    # Ctrl-C is for the process that measures, which ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(EOFError, OSError):
        given = pipe.recv()
        pipe.send(True)  # everything is loaded
        while True:
            job = pipe.recv()
            try:
                pipe.send(work(given, job))
            except Exception as error:
                pipe.send(error)
