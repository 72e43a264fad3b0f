"""Every assignment of a space, one by one, as the solver finds them.

CP-SAT loses solutions when it enumerates with more than one worker, so there is one. Answers
are deduplicated on the decision variables and each is checked in plain Python.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from types import TracebackType

from ortools.sat.python import cp_model

from mapper.constraint_rules.compiled import compile_all
from mapper.constraint_rules.predicate import Assignment, Variable
from mapper.solver.model import NO_PINS, Model, build_model, solver_with
from mapper.solver.space import Space, check

Progress = Callable[[int], None]
_QUEUE_LENGTH = 1024
_POLL_S = 0.05


class _Collector(cp_model.CpSolverSolutionCallback):
    """Runs in the solver's thread; hands each solution over and stops when told to."""

    def __init__(self, model: Model, found: queue.Queue[dict[Variable, int]]) -> None:
        super().__init__()
        self._model = model
        self._found = found
        self.stopped = threading.Event()

    def on_solution_callback(self) -> None:
        """One solution was found."""
        assignment = self._model.read(self.value)
        while not self.stopped.is_set():
            try:
                self._found.put(assignment, timeout=_POLL_S)
                return
            except queue.Full:
                continue
        self.stop_search()


class Enumeration(Iterator[dict[Variable, int]]):
    """An iterator over assignments, to be closed (it is a context manager).

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
        self._found: queue.Queue[dict[Variable, int]] = queue.Queue(_QUEUE_LENGTH)
        self._model = build_model(space, pins)
        self._collector = _Collector(self._model, self._found)
        self._solver = solver_with(time_limit_s=time_limit_s)
        self._solver.parameters.enumerate_all_solutions = True
        # Over many small dives presolve costs more than it saves.
        self._solver.parameters.cp_model_presolve = False
        self._valid = compile_all(
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
        if not self._valid(tuple(assignment.values())):
            self.close(complete=False)
            broken = ", ".join(found.constraint for found in check(self._space, assignment))
            raise AssertionError(f"the solver's answer breaks {broken}")
        self.count += 1
        if self._progress is not None:
            self._progress(self.count)
        return assignment

    def _next(self) -> dict[Variable, int] | None:
        """The next new assignment; None at the end or when cancelled."""
        while True:
            if self._cancelled is not None and self._cancelled():
                self._collector.stopped.set()
                return None
            assignment = self._take()
            if assignment is None:
                return None
            key = tuple(assignment.values())
            if key not in self._seen:
                self._seen.add(key)
                return assignment

    def _take(self) -> dict[Variable, int] | None:
        assert self._thread is not None
        while True:
            try:
                return self._found.get(timeout=_POLL_S)
            except queue.Empty:
                if self._cancelled is not None and self._cancelled():
                    self._collector.stopped.set()
                    return None
                if not self._thread.is_alive() and self._found.empty():
                    return None

    def _exhausted(self) -> bool:
        if self._error is not None:
            raise self._error
        if self._collector.stopped.is_set():
            return False
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
    cancelled: Callable[[], bool] | None = None,
    progress: Progress | None = None,
) -> Enumeration:
    """All assignments that agree with the pins, as an iterator that knows when it is complete."""
    return Enumeration(
        space,
        pins,
        limit=limit,
        time_limit_s=time_limit_s,
        cancelled=cancelled,
        progress=progress,
    )
