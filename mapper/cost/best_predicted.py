"""The best candidates of a space as the analytic model predicts them, and a bound for all.

The solver is asked for the least relaxed time (:mod:`mapper.cost.relaxed_objective`) that any
candidate not seen so far has. What it finds is predicted in full and excluded, until no other
candidate can be predicted to be faster than those found; or until a limit is reached: then
they are the best so far, and the bound says how much faster any other can be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

from ortools.sat.python import cp_model

from mapper.constraint_rules.predicate import Assignment, Variable, any_of, member, negate
from mapper.cost.relaxed_objective import RelaxedTime
from mapper.errors import InputError, LimitError, Problem
from mapper.solver.bounded_solve import solve_within
from mapper.solver.dive import diverse
from mapper.solver.limits import Watch
from mapper.solver.model import Model, build_model, solver_with
from mapper.solver.space import Space, check

#: Random candidates that the search begins with, and whose times it is scaled by.
_FIRST = 4
#: Of the solver's deterministic time, for the first solve; doubled when a solve leads nowhere. In
#: spaces of layers half as much passes before the first solution, and again in each solve.
_FIRST_EFFORT = 40.0
#: The scale is refined when the best time is so many times below what it was made for.
_RESCALED = 16.0
#: Where nothing is predicted yet.
_ANY_MS = 1.0
#: No rounding makes a relaxed time larger than the prediction by more.
_ROUNDING = 1e-4

#: The predicted time of an assignment in ms; None where it has no kernel.
Predict = Callable[[Assignment], float | None]
#: Puts the relaxed time into a model, scaled for times about so many ms.
Relax = Callable[[Model, float], RelaxedTime]


@dataclass(frozen=True, slots=True)
class Predicted:
    """A valid assignment and its predicted time."""

    assignment: Mapping[Variable, int]
    time_ms: float


@dataclass(frozen=True, slots=True)
class BestPredicted:
    """Up to ``count`` candidates, fastest first; no candidate is predicted below ``bound_ms``.

    ``others_ms`` bounds all that were not predicted one by one (infinite where there are no
    others), of which there were ``predicted``. ``proved``: within the tolerance no other candidate
    is predicted to be faster than any of these.
    """

    found: tuple[Predicted, ...]
    others_ms: float
    proved: bool
    predicted: int

    @property
    def bound_ms(self) -> float:
        """No valid candidate is predicted below it."""
        return min([self.others_ms, *(entry.time_ms for entry in self.found[:1])])

    @property
    def gap(self) -> float:
        """How much faster than the best found another one may be, as a part of its time."""
        if not self.found:
            return 1.0
        best = self.found[0].time_ms
        return (best - self.bound_ms) / best if best else 0.0


def best_predicted(
    space: Space,
    relax: Relax,
    predict: Predict,
    count: int,
    *,
    seed: int = 0,
    watch: Watch | None = None,
    effort: float | None = None,
    tolerance: float = 0.01,
) -> BestPredicted:
    """The ``count`` assignments with the least predicted times.

    Limits end it with what was found so far: the time of ``watch``, its ``solutions`` as a number
    of predictions, and ``effort``, deterministic time of the solver (about seconds). What is found
    within an effort or a number of predictions depends on the seed alone. ``watch`` is told of
    the number of predictions. ``tolerance``: candidates faster by a smaller part do not matter.

    Raises InputError for a count below 1 or a tolerance outside 0 to 1, UnsatisfiableError where
    there is no valid assignment, Cancelled as ``watch`` says, LimitError for numbers too large for
    the solver, past the memory limit, or where time ended before any assignment was found.
    """
    if count < 1:
        raise InputError(Problem("count", "there is nothing to find", str(count), "at least 1"))
    if not 0 <= tolerance < 1:
        raise InputError(Problem("tolerance", "is no part of a time", str(tolerance), "0 to 1"))
    search = _Search(space, relax, predict, count, seed, watch or Watch(), effort, tolerance)
    return search.run()


class _Collector(cp_model.CpSolverSolutionCallback):
    """Every solution on the way to the best one is a candidate."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self._model = model
        self.found: list[dict[Variable, int]] = []

    def on_solution_callback(self) -> None:
        """One solution was found."""
        self.found.append(self._model.read(self.value))


class _Search:
    def __init__(
        self,
        space: Space,
        relax: Relax,
        predict: Predict,
        count: int,
        seed: int,
        watch: Watch,
        effort: float | None,
        tolerance: float,
    ) -> None:
        self._space = space
        self._relax = relax
        self._predict = predict
        self._count = count
        self._seed = seed
        self._watch = watch
        self._effort = inf if effort is None else effort
        self._tolerance = tolerance
        self._known: dict[tuple[int, ...], float | None] = {}
        self._best: list[Predicted] = []
        self._bound_ms = 0.0

    def run(self) -> BestPredicted:
        try:
            for assignment in diverse(self._space, _FIRST, self._seed, watch=self._watch):
                self._look_at(assignment)
            self._improve()
        except LimitError:
            # Out of time there is what was found before.
            if self._watch.left_s != 0 or not self._known:
                raise
        proved = self._is_proved()
        return BestPredicted(tuple(self._best), self._bound_ms, proved, len(self._known))

    def _improve(self) -> None:
        """Find what is not known yet until nothing matters any more or a limit is reached."""
        model, relaxed, reference_ms = self._model()
        slice_ = _FIRST_EFFORT
        while not self._is_proved() and self._has_more():
            solver = solver_with(seed=self._seed % 2**31)
            solver.parameters.max_deterministic_time = min(slice_, self._effort)
            collector = _Collector(model)
            status = solve_within(self._watch, solver, model.cp, solutions=collector)
            self._effort -= solver.response_proto.deterministic_time
            if status == cp_model.INFEASIBLE:
                self._bound_ms = inf
                return
            least = relaxed.bound_ms(solver.best_objective_bound)
            self._bound_ms = max(self._bound_ms, least)
            before = self._best_ms
            for assignment in reversed(collector.found):
                if not self._has_more():
                    return
                self._look_at(assignment, least)
                self._exclude(model, assignment)
            if status != cp_model.OPTIMAL and self._best_ms >= before:
                slice_ *= 2
            if self._reference_ms * _RESCALED < reference_ms:
                model, relaxed, reference_ms = self._model()
            self._hint(model)

    @property
    def _best_ms(self) -> float:
        return self._best[0].time_ms if self._best else inf

    @property
    def _reference_ms(self) -> float:
        """What a model is scaled by: constants may all be nothing, so a time may be, too."""
        return self._best_ms if 0 < self._best_ms < inf else _ANY_MS

    def _model(self) -> tuple[Model, RelaxedTime, float]:
        """A model without what is known, scaled for the best time that is known."""
        model = build_model(self._space, watch=self._watch.tick)
        reference_ms = self._reference_ms
        relaxed = self._relax(model, reference_ms)
        names = [name for name, _ in self._space.variables]
        for key in self._known:
            self._exclude(model, dict(zip(names, key, strict=True)))
        self._hint(model)
        return model, relaxed, reference_ms

    def _look_at(self, assignment: dict[Variable, int], least_ms: float = 0.0) -> None:
        """Predict a candidate in full. ``least_ms``: it cannot be below."""
        key = tuple(assignment.values())
        if key in self._known:
            return
        broken = ", ".join(violation.constraint for violation in check(self._space, assignment))
        if broken:
            raise AssertionError(f"the solver's answer breaks {broken}")
        time_ms = self._known[key] = self._predict(assignment)
        self._watch.look()
        if self._watch.progress is not None:
            self._watch.progress(len(self._known))
        if time_ms is None:
            return
        if time_ms < least_ms * (1 - _ROUNDING):
            raise AssertionError(f"predicted {time_ms} ms, below the bound of {least_ms} ms")
        self._best.append(Predicted(assignment, time_ms))
        self._best.sort(key=lambda entry: entry.time_ms)
        del self._best[self._count :]

    def _is_proved(self) -> bool:
        """Whether no other candidate matters."""
        if len(self._best) < self._count:
            return self._bound_ms == inf
        return self._bound_ms >= self._best[-1].time_ms * (1 - self._tolerance)

    def _has_more(self) -> bool:
        """Whether the limits allow for more."""
        most = self._watch.limits.solutions
        return (
            self._watch.left_s != 0
            and self._effort > 0
            and (most is None or len(self._known) < most)
        )

    def _exclude(self, model: Model, assignment: Assignment) -> None:
        model.lowering.add(
            any_of(
                *(
                    negate(member(name, (value,)))
                    for name, value in assignment.items()
                    if name not in model.pins
                )
            )
        )

    def _hint(self, model: Model) -> None:
        """Look near the best known first."""
        model.cp.clear_hints()
        if not self._best:
            return
        chosen = self._best[0].assignment
        for variable, booleans, number in model.readers:
            if number is not None:
                model.cp.add_hint(number, chosen[variable])
            for value, boolean in booleans:
                model.cp.add_hint(boolean, value == chosen[variable])
