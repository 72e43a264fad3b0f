"""Processes that generate kernels; a module of its own, so that they load little else."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from mapper.constraint_rules.predicate import Variable
from mapper.host_plan import HostPlan
from mapper.pipeline import Subject, generate_kernels

_subjects: Sequence[Subject] = ()


def generating_pool(subjects: Sequence[Subject], processes: int) -> ProcessPoolExecutor:
    """Processes that know these subjects; :func:`generated` and :func:`is_ready` run in them."""
    return ProcessPoolExecutor(
        processes, mp_context=get_context("spawn"), initializer=_begin, initargs=(subjects,)
    )


def _begin(subjects: Sequence[Subject]) -> None:
    global _subjects
    _subjects = subjects
    # Ctrl-C is for the process that measures, which ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def is_ready() -> bool:
    """True, once a process has loaded everything."""
    return True


def generated(index: int, assignment: Mapping[Variable, int]) -> HostPlan:
    """The kernels of an assignment of a subject; InputError where there are none."""
    return generate_kernels(_subjects[index], assignment)
