"""Candidates of a tuning run: an assignment with its kernels and its row for the store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from typing import Any

from db.records import CandidateRecord, candidate_id
from mapper.constraint_rules.predicate import Variable
from mapper.errors import LimitError
from mapper.host_plan import HostPlan
from mapper.pipeline import Subject, assignment_from_json, assignment_to_json, generate_kernels
from mapper.search.goal import FastestWithin, Goal
from mapper.solver.limits import Watch
from mapper.solver.sampling import sample
from mapper.solver.space import Space
from nestmap.seeds import derived_seed

_ATTEMPTS = 5
#: Candidates in a row that allocate too much after which a bound is taken to exclude all.
MOST_TOO_LARGE = 64

#: ``draw(space, count, seed)``: up to ``count`` assignments, the same for the same seed.
Draw = Callable[[Space, int, int], Sequence[Mapping[Variable, int]]]


class Candidate:
    """One way to run a subject; ``subject_index`` says which one of the run's subjects.

    Its kernels are generated where they are first asked for (tens of milliseconds), by whoever
    asks: a strategy that never looks at them leaves that to the processes beside a pool.
    """

    def __init__(
        self,
        subject_index: int,
        subject: Subject,
        program_hash: str,
        assignment: Mapping[Variable, int],
        plan: HostPlan | None = None,
    ) -> None:
        self.subject_index = subject_index
        self.subject = subject
        self.program_hash = program_hash
        self.assignment = assignment
        self._plan = plan

    @property
    def variant(self) -> str:
        """The subject's variant, or what it is called."""
        return self.subject.variant or self.subject.label

    @cached_property
    def chosen(self) -> dict[str, Any]:
        """What was chosen, as every command reads it."""
        return assignment_to_json(self.assignment)

    @cached_property
    def id(self) -> str:
        """The store's name for it."""
        chosen = self.chosen
        return candidate_id(
            self.program_hash,
            chosen.get("parameters", {}),
            chosen["mapping"],
            chosen.get("local_sizes", {}),
        )

    @property
    def is_generated(self) -> bool:
        """Whether its kernels are there already."""
        return self._plan is not None

    @property
    def plan(self) -> HostPlan:
        """Its kernels; InputError where the generator refuses the assignment."""
        if self._plan is None:
            self._plan = generate_kernels(self.subject, self.assignment)
        return self._plan

    def adopt(self, plan: HostPlan) -> None:
        """Take over the kernels that another process has generated of this assignment."""
        self._plan = plan

    @cached_property
    def record(self) -> CandidateRecord:
        """Its row; InputError as :attr:`plan`."""
        chosen = self.chosen
        return CandidateRecord(
            program_hash=self.program_hash,
            parameters=chosen.get("parameters", {}),
            mapping=chosen["mapping"],
            local_sizes=chosen.get("local_sizes", {}),
            source_hash=hashlib.sha256(self.plan.source.encode()).hexdigest(),
            memory_bytes=self.plan.memory_bytes,
            nestmap_version=version("nestmap"),
        )


def candidate_of(
    subject_index: int, subject: Subject, program_hash: str, assignment: Mapping[Variable, int]
) -> Candidate:
    """A candidate with its kernels; InputError where the generator refuses the assignment."""
    plan = generate_kernels(subject, assignment)
    return Candidate(subject_index, subject, program_hash, assignment, plan)


def fits(candidate: Candidate, goal: Goal) -> bool:
    """Whether a candidate allocates no more than the goal allows; InputError where it has no
    kernels."""
    return not isinstance(goal, FastestWithin) or candidate.plan.memory_bytes <= goal.bytes


def rebuild(subject: Subject, space: Space, record: CandidateRecord) -> HostPlan:
    """The kernels of a stored candidate, from its row alone."""
    return generate_kernels(subject, assignment_from_json(space, record.chosen))


def draw_with_sampler(
    space: Space, count: int, seed: int, *, watch: Callable[[], Watch] = Watch
) -> Sequence[Mapping[Variable, int]]:
    """Random assignments from the solver's sampler; fewer if it reaches a limit of its own."""
    found: list[Mapping[Variable, int]] = []
    for attempt in range(_ATTEMPTS):
        try:
            for assignment in sample(space, count, derived_seed(seed, attempt), watch=watch()):
                found.append(assignment)
            return found
        except LimitError:
            # Where random draws of the parameters fail, the whole space may be too large for
            # the solver; another seed draws others.
            if found:
                return found
            if attempt == _ATTEMPTS - 1:
                raise
    return found
