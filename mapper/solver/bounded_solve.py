"""CP-SAT within the limits of a computation under way."""

from __future__ import annotations

import threading

from ortools.sat.python import cp_model

from mapper.errors import LimitError, Problem
from mapper.solver.limits import Watch

_POLL_S = 0.05


def refuse_invalid(model: cp_model.CpModel, status: cp_model.CpSolverStatus | None) -> None:
    """LimitError if the solver took no look at the model: some of its numbers are too large."""
    if status == cp_model.MODEL_INVALID:
        reason = str(model.validate()).partition(" name:")[0]
        raise LimitError(
            Problem(
                "",
                "the numbers of the constraints are too large for the solver",
                reason,
                "",
                "values in a larger unit, or as labels",
            )
        )


def solve_within(
    watch: Watch,
    solver: cp_model.CpSolver,
    model: cp_model.CpModel,
    *,
    at_most_s: float | None = None,
    solutions: cp_model.CpSolverSolutionCallback | None = None,
) -> cp_model.CpSolverStatus:
    """Solve until there is an answer or the time is over: then UNKNOWN, or FEASIBLE.

    ``at_most_s`` is a limit on this solve alone; ``solutions`` is told of each on the way, in the
    solver's thread. Raises Cancelled within a fraction of a
    second, LimitError for a model with numbers too large. The solver runs in a thread of its
    own, since the thread that it blocks can neither be interrupted nor ask whether it was
    cancelled.
    """
    limits = [limit for limit in (watch.left_s, at_most_s) if limit is not None]
    if limits:
        if min(limits) <= 0:
            return cp_model.UNKNOWN
        solver.parameters.max_time_in_seconds = min(limits)
    found: list[cp_model.CpSolverStatus] = []
    failed: list[BaseException] = []
    # Not the thread's own state: an interrupted join makes Python 3.11 take it for ended.
    ended = threading.Event()

    def run() -> None:
        try:
            found.append(solver.solve(model, solutions))
        except BaseException as error:
            failed.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=run, daemon=True)
    try:
        thread.start()
        while not ended.wait(_POLL_S):
            watch.look()
    finally:
        # An interrupt comes here too, with the solver still at work.
        while thread.ident is not None and not ended.is_set():
            solver.stop_search()
            ended.wait(_POLL_S)
    if failed:
        raise failed[0]
    refuse_invalid(model, found[0])
    return found[0]
