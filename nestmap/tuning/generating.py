"""Processes that generate kernels; a module of its own, so that they load little else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mapper.constraint_rules.predicate import Variable
from mapper.host_plan import HostPlan
from mapper.pipeline import Subject, generate_kernels
from nestmap.tuning.processes import Processes

_Job = tuple[int, Mapping[Variable, int]]


class GeneratingProcesses(Processes[Sequence[Subject], _Job, HostPlan]):
    """A job is a subject's number and an assignment."""

    def __init__(self, subjects: Sequence[Subject], processes: int) -> None:
        super().__init__(_generate, subjects, processes)


def _generate(subjects: Sequence[Subject], job: _Job) -> HostPlan:
    index, assignment = job
    return generate_kernels(subjects[index], assignment)
