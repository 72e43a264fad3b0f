"""Processes that generate kernels; a module of its own, so that they load little else."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from mapper.constraint_rules.predicate import Variable
from mapper.host_plan import HostPlan
from mapper.pipeline import Subject, generate_kernels

#: The kernels, why there are none, or None where the process was ended.
Generated = HostPlan | Exception | None
_Job = tuple[int, Mapping[Variable, int], Callable[[Generated], None]]


class GeneratingProcesses:
    """So many processes, each with a pipe and a thread of its own.

    A pool of the standard library cannot be ended while it works: its processes write to one pipe,
    and one that is killed within a result leaves a reader for ever, for which the interpreter
    waits at its end. Here who is killed closes its own pipe.
    """

    def __init__(self, subjects: Sequence[Subject], processes: int) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._ready = threading.Event()
        self._lock = threading.Lock()
        self._alive = processes
        self._closing = False
        context = get_context("spawn")
        self._processes: list[BaseProcess] = []
        for _ in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, subjects), daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            threading.Thread(target=self._ask, args=(ours,), name="generating", daemon=True).start()

    @property
    def is_ready(self) -> bool:
        """Whether a process has started and one is left; starting takes a second or two."""
        return self._ready.is_set() and self._alive > 0

    def submit(
        self, index: int, assignment: Mapping[Variable, int], done: Callable[[Generated], None]
    ) -> None:
        """Generate an assignment's kernels; ``done`` is called in a thread, once."""
        with self._lock:
            if self._alive and not self._closing:
                self._jobs.put((index, assignment, done))
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

    def _ask(self, pipe: Connection) -> None:
        try:
            with pipe, contextlib.suppress(EOFError, OSError):
                pipe.recv()
                self._ready.set()
                while (job := self._jobs.get()) is not None and not self._closing:
                    index, assignment, done = job
                    found: Generated = None
                    try:
                        pipe.send((index, dict(assignment)))
                        found = pipe.recv()
                    finally:
                        if not self._closing:
                            done(found)
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
                job = self._jobs.get_nowait()
                if job is not None:
                    job[2](None)


def _serve(pipe: Connection, subjects: Sequence[Subject]) -> None:
    # Ctrl-C is for the process that measures, which ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe.send(True)  # everything is loaded
    with contextlib.suppress(EOFError, OSError):
        while True:
            index, assignment = pipe.recv()
            try:
                pipe.send(generate_kernels(subjects[index], assignment))
            except Exception as error:
                pipe.send(error)
