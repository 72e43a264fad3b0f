"""Where candidates come from: a list of all, or draws and completions of a solved space."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mapper.constraint_rules.evaluation import evaluate
from mapper.constraint_rules.predicate import Variable
from mapper.errors import InputError, LimitError, Problem, UnsatisfiableError
from mapper.search.strategy import Choice
from mapper.solver.dive import complete, diverse
from mapper.solver.limits import Watch
from mapper.solver.sampling import checked
from mapper.solver.solutions import FactoredSpace, Solutions, solutions_of
from mapper.solver.space import Domain, Space

#: Spaces with fewer candidates are listed whole.
LISTED = 50_000
#: Of the solver's deterministic time: what is found must not depend on how busy a machine is.
_COMPLETION_EFFORT = 2.0
_DRAW_ATTEMPTS = 4
#: Draws may repeat, and one that gives nothing says nothing.
_TRIES_A_DRAW = 50
#: Random completions that are looked at before the solver is asked for one.
_GUESSES = 16

Choices = NDArray[np.int64]


class Candidates(Protocol):
    """Valid candidates, each a row of values of :attr:`variables`."""

    @property
    def variables(self) -> tuple[tuple[Variable, Domain], ...]:
        """The variables with their domains, in the order of a choice."""
        ...

    @property
    def listed(self) -> Choices | None:
        """Every candidate as a row, if they are few; None otherwise."""
        ...

    def draw(self, count: int, seed: int) -> list[Choice]:
        """Random candidates, different ones; fewer if there are no more."""
        ...

    def completed(self, kept: Mapping[int, int], seed: int) -> Choice | None:
        """A random candidate with these values (by place of variable); None if there is none."""
        ...


class ListedCandidates:
    """Candidates that are all known: rows x variables. InputError if there are none."""

    def __init__(self, variables: Sequence[tuple[Variable, Domain]], rows: Choices) -> None:
        if rows.ndim != 2 or rows.shape[1] != len(variables) or not len(rows):
            raise InputError(
                Problem("rows", "are no candidates", str(rows.shape), f"n x {len(variables)}")
            )
        self._variables = tuple(variables)
        self._rows = rows

    @property
    def variables(self) -> tuple[tuple[Variable, Domain], ...]:
        """See :class:`Candidates`."""
        return self._variables

    @property
    def listed(self) -> Choices:
        """See :class:`Candidates`."""
        return self._rows

    def draw(self, count: int, seed: int) -> list[Choice]:
        """See :class:`Candidates`."""
        order = Random(seed).sample(range(len(self._rows)), min(count, len(self._rows)))
        return [tuple(self._rows[row].tolist()) for row in order]

    def completed(self, kept: Mapping[int, int], seed: int) -> Choice | None:
        """See :class:`Candidates`."""
        fits = np.ones(len(self._rows), np.bool_)
        for place, value in kept.items():
            fits &= self._rows[:, place] == value
        rows = np.flatnonzero(fits)
        if not len(rows):
            return None
        return tuple(self._rows[Random(seed).choice(rows.tolist())].tolist())


class SolvedCandidates:
    """The valid assignments of a space: drawn by its sampler, completed by CP-SAT.

    The space is compiled once, at the first draw. Draws are uniform by mappings; where a
    diagram would take too much memory they are diverse instead. ``watch`` gives the limits
    that completions keep to.
    """

    def __init__(self, space: Space, watch: Callable[[], Watch] = Watch) -> None:
        self._space = space
        self._watch = watch
        self._solutions: Solutions | None = None
        self._too_large = False

    @property
    def variables(self) -> tuple[tuple[Variable, Domain], ...]:
        """See :class:`Candidates`."""
        return self._space.variables

    @property
    def listed(self) -> None:
        """See :class:`Candidates`."""
        return None

    def draw(self, count: int, seed: int) -> list[Choice]:
        """See :class:`Candidates`; LimitError where no attempt gives anything."""
        if self._solutions is None and not self._too_large:
            try:
                self._solutions = solutions_of(self._space)
            except LimitError:
                self._too_large = True
        if self._solutions is None:
            return self._diverse(count, seed)
        random = Random(seed)
        found: dict[Choice, None] = {}
        for _ in range(_TRIES_A_DRAW * count):
            drawn = self._solutions.draw_mapping(random)
            if drawn is not None:
                found[self._choice(checked(self._space, drawn))] = None
            if len(found) == count:
                break
        return list(found)

    def _diverse(self, count: int, seed: int) -> list[Choice]:
        found: list[Choice] = []
        for attempt in range(_DRAW_ATTEMPTS):
            try:
                for drawn in diverse(self._space, count, seed * _DRAW_ATTEMPTS + attempt):
                    found.append(self._choice(drawn))
                return found
            except UnsatisfiableError:
                return found
            except LimitError:
                # Where random draws of the parameters fail, another seed draws others.
                if found:
                    return found
                if attempt == _DRAW_ATTEMPTS - 1:
                    raise
        return found

    def completed(self, kept: Mapping[int, int], seed: int) -> Choice | None:
        """See :class:`Candidates`; None too where the solver would have to work for long.

        LimitError past the limits of the watch, Cancelled where it says so.

        A few random values are tried first: looking whether they hold is far cheaper than
        having the solver find some.
        """
        entries = self._space.variables
        random = Random(seed)
        assignment = {entries[place][0]: value for place, value in kept.items()}
        free = [entry for place, entry in enumerate(entries) if place not in kept]
        for _ in range(_GUESSES if free else 1):
            tried = assignment | {name: random.choice(domain) for name, domain in free}
            if all(evaluate(constraint.predicate, tried) for constraint in self._space.constraints):
                return self._choice(tried)
        watch = self._watch()
        try:
            found = complete(self._space, assignment, watch=watch, effort=_COMPLETION_EFFORT)
            return self._choice(found)
        except UnsatisfiableError:
            return None
        except LimitError:
            # Out of effort says nothing; out of time must not look like an answer.
            watch.tick()
            return None

    def _choice(self, assignment: Mapping[Variable, int]) -> Choice:
        return tuple(assignment[name] for name, _ in self._space.variables)


def candidates_of(space: Space, *, watch: Watch | None = None) -> Candidates:
    """All candidates of a space of parameters if they are few, else its sampler and solver.

    UnsatisfiableError if there are none.
    """
    solutions = None
    with suppress(LimitError):
        solutions = solutions_of(space, watch)
    if isinstance(solutions, FactoredSpace):
        count = solutions.count_joint()
        if not count:
            raise UnsatisfiableError("the space has no valid assignment")
        if count <= LISTED:
            names = [name for name, _ in space.variables]
            rows = [[found[name] for name in names] for found in solutions.mappings()]
            return ListedCandidates(space.variables, np.array(rows, np.int64))
    return SolvedCandidates(space)
