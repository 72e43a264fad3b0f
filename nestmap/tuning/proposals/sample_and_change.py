"""Which candidates are tried: samples of the whole space, then changes of the best found."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing import get_context
from random import Random
from typing import Protocol

from mapper.constraint_rules.predicate import (
    CodeVariable,
    LocalSizeVariable,
    ParameterVariable,
    Variable,
    variables,
)
from mapper.errors import InputError, LimitError, UnsatisfiableError
from mapper.pipeline import assignment_from_json, assignment_to_json
from mapper.solver.sampling import sample
from mapper.solver.space import Space, check
from nestmap.tuning.trial import Trial, choices_key

Assignment = Mapping[Variable, int]

#: Candidates that come from the whole space before any is changed.
EXPLORED = 64
#: Of later ones, the share that still comes from the whole space.
STILL_EXPLORED = 0.2
#: The best so many are changed, better ones more often; half as many that need no memory.
ELITE = 12
_DRAWN_AT_ONCE = 8
_CHANGED_AT_ONCE = 3
_MOST_FREED = 4
#: The chance of what is tied to a freed variable to be freed too, and the most variables of a
#: constraint that ties.
_TIED_FREED = 0.4
_FEW = 3
#: Calls in a row without anything new after which a space is taken as exhausted.
_BARREN = 6


class Proposals(Protocol):
    """The search's choice of candidates."""

    def propose(self, count: int) -> list[Assignment]:
        """Up to ``count`` candidates that were not proposed before; none: there are no more."""
        ...

    def tell(self, results: Sequence[tuple[Assignment, Trial]]) -> None:
        """What became of candidates, those of an earlier run included."""
        ...


class SampleAndChange:
    """Uniform samples by mapping; then the best with a few variables freed and solved anew.

    ``known`` are candidates that are tried first (records). One seed gives one sequence of
    draws; what is changed depends on the results, so on their order too.
    """

    def __init__(
        self,
        space: Space,
        seed: int,
        known: Iterable[Assignment] = (),
        executor: Executor | None = None,
        explored: int = EXPLORED,
    ) -> None:
        self._space = space
        self._random = Random(seed)
        self._known = list(known)
        self._executor = executor
        self._explored = explored
        self._seen: set[str] = set()
        self._found: list[tuple[float, int, Assignment]] = []
        self._barren = 0
        self._spare: list[Assignment] = []
        self._tied = tied_variables(space)

    def propose(self, count: int) -> list[Assignment]:
        """See :class:`Proposals`."""
        chosen = self._unseen(self._known[:count])
        self._known = self._known[count:]
        while len(chosen) < count and self._barren < _BARREN:
            # Drawn ones that were too many last time have waited longest.
            taken = self._spare[: count - len(chosen)]
            self._spare = self._spare[len(taken) :]
            chosen += taken
            missing = count - len(chosen)
            if not missing:
                break
            fresh = self._unseen(self._draw(missing))
            self._barren = 0 if fresh else self._barren + 1
            chosen += fresh[:missing]
            self._spare += fresh[missing:]
        return chosen

    def tell(self, results: Sequence[tuple[Assignment, Trial]]) -> None:
        """See :class:`Proposals`."""
        for assignment, trial in results:
            self._seen.add(choices_key(assignment_to_json(assignment)))
            if trial.time_ms is not None:
                self._found.append((trial.time_ms, trial.extra_bytes, assignment))
        self._found.sort(key=lambda item: item[:2])

    def _unseen(self, assignments: Iterable[Assignment]) -> list[Assignment]:
        fresh: list[Assignment] = []
        for assignment in assignments:
            key = choices_key(assignment_to_json(assignment))
            if key not in self._seen:
                self._seen.add(key)
                fresh.append(assignment)
        return fresh

    def _draw(self, count: int) -> list[Assignment]:
        """New assignments from as many calls of the solver as ``count`` wants."""
        calls: list[tuple[Callable[..., list[Assignment]], tuple[object, ...]]] = []
        promised = 0
        while promised < count:
            seed = self._random.randrange(2**31)
            explores = len(self._found) < self._explored
            if explores or self._random.random() < STILL_EXPLORED / _DRAWN_AT_ONCE:
                calls.append((drawn, (_DRAWN_AT_ONCE, seed)))
                promised += _DRAWN_AT_ONCE
            else:
                parent = self._parent()
                freed = self._freed(parent)
                pins = {v: value for v, value in parent.items() if v not in freed}
                calls.append((changed, (pins, _CHANGED_AT_ONCE, seed)))
                promised += _CHANGED_AT_ONCE - 1
        if self._executor is None:
            answers = [call(self._space, *arguments) for call, arguments in calls]
        else:
            futures: list[Future[list[Assignment]]] = [
                self._executor.submit(_in_process, call, arguments) for call, arguments in calls
            ]
            answers = [future.result() for future in futures]
        return [assignment for answer in answers for assignment in answer]

    def _parent(self) -> Assignment:
        """One of the best; every third time one of the best that need no memory."""
        pool = self._found[:ELITE]
        lean = [item for item in self._found if item[1] == 0][: ELITE // 2]
        if lean and self._random.random() < 1 / 3:
            pool = lean
        # The nth best is taken with weight 1/n.
        weights = [1 / rank for rank in range(1, len(pool) + 1)]
        return self._random.choices(pool, weights)[0][2]

    def _freed(self, parent: Assignment) -> Collection[Variable]:
        """A few parameters or codes with some of what is tied to them, and all local sizes,
        which follow from them."""
        parameters = [v for v in parent if isinstance(v, ParameterVariable)]
        codes = [v for v in parent if isinstance(v, CodeVariable)]
        group = parameters if parameters and self._random.random() < 0.75 else codes or parameters
        count = min(len(group), self._random.randint(1, _MOST_FREED))
        freed: set[Variable] = {v for v in parent if isinstance(v, LocalSizeVariable)}
        for variable in self._random.sample(group, count):
            freed.add(variable)
            tied = self._tied.get(variable, ())
            freed.update(v for v in tied if self._random.random() < _TIED_FREED)
        return freed


def tied_variables(space: Space) -> dict[Variable, tuple[Variable, ...]]:
    """The parameters and codes that each shares a constraint of few variables with: where a
    tile must divide a length, one of them alone can hardly change."""
    tied: dict[Variable, dict[Variable, None]] = {}
    for constraint in space.constraints:
        names = [
            v
            for v in sorted(variables(constraint.predicate), key=str)
            if not isinstance(v, LocalSizeVariable)
        ]
        if 2 <= len(names) <= _FEW:
            for name in names:
                tied.setdefault(name, {}).update((v, None) for v in names if v != name)
    return {name: tuple(others) for name, others in tied.items()}


def drawn(space: Space, count: int, seed: int) -> list[Assignment]:
    """Up to ``count`` samples of a space; fewer where its solver reaches a limit."""
    return _taken(space, count, seed, {})


def changed(space: Space, pins: Assignment, count: int, seed: int) -> list[Assignment]:
    """Up to ``count`` assignments with all but a few variables fixed."""
    return _taken(space, count, seed, pins)


def _taken(space: Space, count: int, seed: int, pins: Assignment) -> list[Assignment]:
    found: list[Assignment] = []
    try:
        found.extend(sample(space, count, seed, dict(pins)))
    except (UnsatisfiableError, LimitError):
        return found
    return found


def readable(space: Space, choices: Iterable[Mapping[str, object]]) -> list[Assignment]:
    """Those of stored choices that are still in the space, as assignments."""
    found: list[Assignment] = []
    for value in choices:
        try:
            assignment = assignment_from_json(space, dict(value))
        except InputError:
            continue
        if len(assignment) == len(space.variables) and not check(space, assignment):
            found.append(assignment)
    return found


# In a solver's process

_space: Space | None = None


def _remember(space: Space) -> None:
    global _space
    _space = space


def _in_process(
    call: Callable[..., list[Assignment]], arguments: Sequence[object]
) -> list[Assignment]:
    assert _space is not None
    return call(_space, *arguments)


def solver_processes(space: Space, count: int) -> ProcessPoolExecutor:
    """Processes that draw from a space side by side; to be shut down by the caller."""
    return ProcessPoolExecutor(
        count, mp_context=get_context("spawn"), initializer=_remember, initargs=(space,)
    )
