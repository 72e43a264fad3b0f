"""Processes that generate kernels; a module of its own, so that they load little else."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from functools import lru_cache
from typing import cast

from mapper.constraint_rules.predicate import Variable
from mapper.host_plan import HostPlan
from mapper.pipeline import Subject, generate_kernels
from nestmap.tuning.processes import Processes

#: A subject, written once for all its candidates, and an assignment.
_Job = tuple[bytes, Mapping[Variable, int]]
#: Subjects that a process keeps.
_KEPT = 32


class GeneratingProcesses(Processes[None, _Job, HostPlan]):
    """A job is a subject as :func:`written` says it, and an assignment."""

    def __init__(self, processes: int) -> None:
        super().__init__(_generate, None, processes)


def written(subject: Subject) -> bytes:
    """A subject as it goes to a process."""
    return pickle.dumps(subject)


@lru_cache(maxsize=_KEPT)
def _read(subject: bytes) -> Subject:
    return cast("Subject", pickle.loads(subject))


def _generate(nothing: None, job: _Job) -> HostPlan:
    del nothing
    subject, assignment = job
    return generate_kernels(_read(subject), assignment)
