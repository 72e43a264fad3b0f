"""Every assignment of a space, one by one, as the solver finds them.

CP-SAT loses solutions when it enumerates with more than one worker, so there is one. Answers
are deduplicated on the decision variables and each is checked in plain Python.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import TracebackType

from ortools.sat.python import cp_model

from mapper.constraint_rules.compiled import CompiledPredicates
from mapper.constraint_rules.predicate import Assignment, Variable
from mapper.errors import LimitError
from mapper.solver.bounded_solve import refuse_invalid
from mapper.solver.limits import DEFAULT_MEMORY, SolveLimits, Watch
from mapper.solver.model import Model, build_model, solver_with
from mapper.solver.space import NO_PINS, Space, check

Progress = Callable[[int], None]
_LARGEST_BATCH = 256
_POLL_S = 0.05


class _Collector(cp_model.CpSolverSolutionCallback):
    """Runs in the solver's thread; hands solutions over in batches, stops when told to.

    The interpreter runs one thread at a time, so that handing over each solution would cost
    more than finding it: batches grow, and the solver waits while one is looked at.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self._model = model
        self._lock = threading.Lock()
        self._batch: list[dict[Variable, int]] = []
        self._size = 1
        self.found: queue.Queue[list[dict[Variable, int]]] = queue.Queue(1)
        self.stopped = threading.Event()

    def on_solution_callback(self) -> None:
        """One solution was found."""
        assignment = self._model.read(self.value)
        with self._lock:
            self._batch.append(assignment)
            if len(self._batch) < self._size:
                return
        batch = self.take()
        self._size = min(2 * self._size, _LARGEST_BATCH)
        while not self.stopped.is_set():
            try:
                self.found.put(batch, timeout=_POLL_S)
                return
            except queue.Full:
                continue
        self.stop_search()

    def take(self) -> list[dict[Variable, int]]:
        """What was found and not handed over yet."""
        with self._lock:
            batch, self._batch = self._batch, []
        return batch


class Enumeration(Iterator[dict[Variable, int]]):
    """An iterator over assignments, to be closed (it is a context manager).

    The constructor builds the model: LimitError if that takes too long or its numbers are too
    large, Cancelled if the caller asked to stop.

    ``complete`` is None until the iterator is exhausted, then whether every assignment was
    given: False after ``limit`` assignments, the time limit or a cancellation.
    """

    def __init__(
        self,
        space: Space,
        pins: Assignment = NO_PINS,
        *,
        limit: int | None = None,
        time_limit_s: float | None = None,
        memory_bytes: int | None = DEFAULT_MEMORY,
        cancelled: Callable[[], bool] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.complete: bool | None = None
        self.count = 0
        self._space = space
        self._limit = limit
        self._cancelled = cancelled
        self._progress = progress
        self._seen: set[tuple[int, ...]] = set()
        self._status: cp_model.CpSolverStatus | None = None
        self._error: BaseException | None = None
        self._batch: deque[dict[Variable, int]] = deque()
        limits = SolveLimits(time_s=time_limit_s, memory_bytes=memory_bytes)
        watch = Watch(limits, cancelled)
        self._model = build_model(space, pins, watch=watch.tick)
        self._memory = Watch(replace(limits, time_s=None), resident=watch.resident)
        self._collector = _Collector(self._model)
        # What building the model took is not there for the search.
        self._solver = solver_with(time_limit_s=watch.left_s)
        self._solver.parameters.enumerate_all_solutions = True
        # Over many small dives presolve costs more than it saves.
        self._solver.parameters.cp_model_presolve = False
        self._compiled = CompiledPredicates(
            [constraint.predicate for constraint in space.constraints],
            [variable for variable, _ in space.variables],
        )
        self._thread: threading.Thread | None = None

    def _run(self) -> None:
        try:
            self._status = self._solver.solve(self._model.cp, self._collector)
        except BaseException as error:
            self._error = error

    def __iter__(self) -> Enumeration:
        return self

    def __next__(self) -> dict[Variable, int]:
        if self.complete is not None:
            raise StopIteration
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        if self._limit is not None and self.count >= self._limit:
            # The limit may be the exact number: then one look further tells.
            self.close(complete=self._next() is None and self._exhausted())
            raise StopIteration
        assignment = self._next()
        if assignment is None:
            self.close(complete=self._exhausted())
            raise StopIteration
        self.count += 1
        if self._progress is not None:
            self._progress(self.count)
        return assignment

    def _next(self) -> dict[Variable, int] | None:
        """The next new assignment; None at the end or when cancelled."""
        assert self._thread is not None
        while not self._batch:
            try:
                self._memory.look()
            except LimitError:
                self.close()
                raise
            if self._stop_if_cancelled():
                return None
            ended = not self._thread.is_alive()
            try:
                self._accept(self._collector.found.get(timeout=0 if ended else _POLL_S))
            except queue.Empty:
                # Nothing for a while: take what is there, however little.
                left = self._collector.take()
                if ended and not left:
                    return None
                self._accept(left)
        return None if self._stop_if_cancelled() else self._batch.popleft()

    def _accept(self, found: list[dict[Variable, int]]) -> None:
        """Check a batch and keep what is new in it."""
        rows = [tuple(assignment.values()) for assignment in found]
        if not self._compiled.all_hold(rows):
            self.close(complete=False)
            for assignment in found:
                broken = ", ".join(v.constraint for v in check(self._space, assignment))
                if broken:
                    raise AssertionError(f"the solver's answer breaks {broken}")
        for row, assignment in zip(rows, found, strict=True):
            if row not in self._seen:
                self._seen.add(row)
                self._batch.append(assignment)

    def _stop_if_cancelled(self) -> bool:
        if self._cancelled is not None and self._cancelled():
            self._collector.stopped.set()
        return self._collector.stopped.is_set()

    def _exhausted(self) -> bool:
        if self._error is not None:
            raise self._error
        if self._collector.stopped.is_set():
            return False
        refuse_invalid(self._model.cp, self._status)
        return self._status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)

    def close(self, *, complete: bool = False) -> None:
        """Stop the search; what was given so far stays valid."""
        if self.complete is None:
            self.complete = complete
        self._collector.stopped.set()
        if self._thread is not None and self._thread.is_alive():
            self._solver.stop_search()
            self._thread.join()

    def __enter__(self) -> Enumeration:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def enumerate_assignments(
    space: Space,
    pins: Assignment = NO_PINS,
    *,
    limit: int | None = None,
    time_limit_s: float | None = None,
    memory_bytes: int | None = DEFAULT_MEMORY,
    cancelled: Callable[[], bool] | None = None,
    progress: Progress | None = None,
) -> Enumeration:
    """All assignments that agree with the pins, as an iterator that knows when it is complete.

    LimitError where building the model takes longer than ``time_limit_s``, its numbers are too
    large, or the process grows by more than ``memory_bytes``.
    """
    return Enumeration(
        space,
        pins,
        limit=limit,
        time_limit_s=time_limit_s,
        memory_bytes=memory_bytes,
        cancelled=cancelled,
        progress=progress,
    )
