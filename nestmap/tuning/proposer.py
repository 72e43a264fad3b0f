"""Asks a tuner in a thread, so that who measures never waits for a draw longer than it wants to.

Drawing, solving and generating take from milliseconds to a minute. The loop that measures has to
keep its deadline and to answer Ctrl-C meanwhile.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from mapper.errors import InputError, NestmapError
from mapper.host_plan import HostPlan
from mapper.solver.limits import Cancelled
from nestmap.tuning.candidates import Candidate
from nestmap.tuning.cores import usable_cores
from nestmap.tuning.generating import GeneratingProcesses, written
from nestmap.tuning.sources import Refused
from nestmap.tuning.tuner import Tuner


class Proposer:
    """Candidates of a tuner with their kernels; a context manager.

    ``processes`` generate kernels beside the asking thread; with none it does that itself. What the
    thread does it does within ``beside``.
    """

    def __init__(
        self,
        tuner: Tuner,
        refused: Refused,
        processes: int = 0,
        beside: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._tuner = tuner
        self._beside = beside
        self._refused = refused
        self._wanted: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._made: queue.SimpleQueue[tuple[Candidate | BaseException | None, int]] = (
            queue.SimpleQueue()
        )
        self._closing = threading.Event()
        self._open = 0
        self._processes = GeneratingProcesses(processes) if processes else None
        self._subjects: dict[int, bytes] = {}
        self._thread = threading.Thread(target=self._serve, name="proposer", daemon=True)
        self._thread.start()

    def __enter__(self) -> Proposer:
        return self

    def __exit__(self, *exception: object) -> None:
        self._closing.set()
        self._wanted.put(0)
        if self._processes is not None:
            # They have nothing that anybody waits for.
            self._processes.close()
        self._thread.join(0.5)

    @property
    def is_closing(self) -> bool:
        """Whether what is being computed is of no use any more."""
        return self._closing.is_set()

    @property
    def coming(self) -> int:
        """Candidates that were asked for and that nobody has taken yet."""
        return self._open

    @property
    def exhausted(self) -> bool:
        """Whether nothing comes any more."""
        return self._tuner.exhausted and not self._open

    def ask(self, count: int) -> None:
        """Ask for so many more."""
        self._open += count
        self._wanted.put(count)

    def next(self, timeout_s: float) -> Candidate | None:
        """The next candidate; None if none comes within the time. What asking the tuner raised is
        raised here."""
        try:
            made, answers = self._made.get(timeout=max(timeout_s, 1e-3))
        except queue.Empty:
            return None
        self._open -= answers
        if isinstance(made, BaseException):
            raise made
        return made

    # In the thread

    def _serve(self) -> None:
        while not self._closing.is_set():
            for left in range(self._wanted.get(), 0, -1):
                # One after the other: who measures need not wait for all of them.
                with self._beside():
                    comes = self._propose(left)
                if not comes:
                    break

    def _propose(self, left: int) -> bool:
        """Ask for one of so many, and have its kernels made; whether there was one."""
        try:
            found = self._tuner.ask()
        except Cancelled:
            return False
        except BaseException as error:
            self._made.put((error, left))
            return False
        if self._closing.is_set():
            return False
        if not found:
            self._made.put((None, left))
            return False
        self._make(found[0])
        return True

    def _make(self, candidate: Candidate) -> None:
        # Until a process is ready, and where none is left, the thread generates.
        if self._processes is None or candidate.is_generated or not self._processes.is_ready:
            self._deliver(candidate, None)
            return
        index = candidate.subject_index
        if index not in self._subjects:
            self._subjects[index] = written(candidate.subject)
        job = (self._subjects[index], candidate.assignment)
        self._processes.submit(job, lambda found: self._deliver(candidate, found))

    def _deliver(self, candidate: Candidate, found: HostPlan | Exception | None) -> None:
        made: Candidate | BaseException | None = candidate
        try:
            if isinstance(found, Exception):
                raise found
            if found is None:
                _ = candidate.plan
            else:
                candidate.adopt(found)
        except InputError as error:
            made = None
            self._refuse(candidate, error)
        except BaseException as error:
            made = None if self._closing.is_set() else error
        finally:
            self._made.put((made, 1))

    def _refuse(self, candidate: Candidate, error: NestmapError) -> None:
        source = next(s for s in self._tuner.sources if s.index == candidate.subject_index)
        self._refused(source, error)


def generating_processes(size: int) -> int:
    """Processes that generate kernels for a pool of so many that build them, where that takes
    nothing from the kernels that are timed."""
    return 0 if size < 4 else max(1, 3 * usable_cores() // 8)


def solving_processes(size: int) -> int:
    """As :func:`generating_processes`, processes that derive and solve sketches: most do so before
    there is anything to build."""
    return 0 if size < 4 else max(1, 3 * usable_cores() // 4)
