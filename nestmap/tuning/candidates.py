"""Candidates of a tuning run: an assignment with its kernels and its row for the store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from db.records import CandidateRecord
from mapper.constraint_rules.predicate import Variable
from mapper.errors import LimitError
from mapper.host_plan import HostPlan
from mapper.pipeline import Subject, assignment_from_json, assignment_to_json, generate_kernels
from mapper.solver.sampling import sample
from mapper.solver.space import Space
from nestmap.seeds import derived_seed

_ATTEMPTS = 5

#: ``draw(space, count, seed)``: up to ``count`` assignments, the same for the same seed.
Draw = Callable[[Space, int, int], Sequence[Mapping[Variable, int]]]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run a subject; ``subject_index`` says which one of the run's subjects."""

    subject_index: int
    variant: str
    assignment: Mapping[Variable, int]
    plan: HostPlan
    record: CandidateRecord

    @property
    def id(self) -> str:
        """The store's name for it."""
        return self.record.id


def candidate_of(
    subject_index: int, subject: Subject, program_hash: str, assignment: Mapping[Variable, int]
) -> Candidate:
    """Generate the kernels of an assignment; InputError where the generator refuses it."""
    plan = generate_kernels(subject, assignment)
    chosen = assignment_to_json(assignment)
    record = CandidateRecord(
        program_hash=program_hash,
        parameters=chosen.get("parameters", {}),
        mapping=chosen["mapping"],
        local_sizes=chosen.get("local_sizes", {}),
        source_hash=hashlib.sha256(plan.source.encode()).hexdigest(),
        memory_bytes=plan.memory_bytes,
        nestmap_version=version("nestmap"),
    )
    return Candidate(subject_index, subject.variant or subject.label, assignment, plan, record)


def rebuild(subject: Subject, space: Space, record: CandidateRecord) -> HostPlan:
    """The kernels of a stored candidate, from its row alone."""
    return generate_kernels(subject, assignment_from_json(space, record.chosen))


def draw_with_sampler(space: Space, count: int, seed: int) -> Sequence[Mapping[Variable, int]]:
    """Random assignments from the solver's sampler; fewer if it reaches a limit of its own."""
    found: list[Mapping[Variable, int]] = []
    for attempt in range(_ATTEMPTS):
        try:
            for assignment in sample(space, count, derived_seed(seed, attempt)):
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
