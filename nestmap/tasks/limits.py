"""What a request may use, set before anything of it is read: memory, processor and wall time.

The limits are the operating system's, because a solver written in C++ keeps no promise of its
own: past the address space it gets no more memory, past its processor time (SIGXCPU) or half a
second past the deadline (SIGALRM) the process ends, whatever it is doing.
"""

from __future__ import annotations

import ctypes
import math
import resource
import signal
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from mapper.constraint_rules.predicate import IntTerm, Predicate, subterms
from mapper.errors import LimitError, Problem
from mapper.solver.limits import SolveLimits
from mapper.solver.space import Space

#: With this status a child ends that has no memory left (api/solver_child.py).
EXIT_MEMORY = 71
#: An idle child holds about this much address space.
LEAST_MEMORY = 384 * 2**20
#: The C++ solver and Python's lists stand beside the arrays that are accounted for.
_ACCOUNTED_SHARE = 0.5
_ALARM_AFTER_S = 0.5
_FILES = 256
_FILE_BYTES = 2**31
_PR_SET_PDEATHSIG = 1
#: What CP-SAT takes at worst, from models of layers (2 KB a part) and of products over wide
#: domains (1 GB for 60,000 variables).
_BYTES_A_PART = 3_000
_BYTES_A_VALUE = 2_000


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """Address space in bytes, seconds of processor and of wall time, for one request."""

    memory_bytes: int = 2 * 2**30
    cpu_s: float = 120.0
    wall_s: float = 60.0

    def for_solver(self) -> SolveLimits:
        """What the solver itself keeps to, so that it can say what was too much."""
        return SolveLimits(self.wall_s, int(self.memory_bytes * _ACCOUNTED_SHARE))


def set_lasting_limits(end_with_parent: bool) -> None:
    """Limits of the whole process: no core dumps, few files, and no life without a parent."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_NOFILE, _FILES)
    _lower(resource.RLIMIT_FSIZE, _FILE_BYTES)
    if end_with_parent and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def begin(limits: TaskLimits) -> None:
    """Limits of the request that comes now."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    wanted = max(limits.memory_bytes, LEAST_MEMORY)
    resource.setrlimit(
        resource.RLIMIT_AS, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
    )
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = math.ceil(used.ru_utime + used.ru_stime + limits.cpu_s)
    # Only the soft limit: the next request gets its own. SIGXCPU ends the process.
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, limits.wall_s + _ALARM_AFTER_S)


def end() -> None:
    """The request is over: a child may wait for the next one as long as it likes."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    for which in (resource.RLIMIT_CPU, resource.RLIMIT_AS):
        hard = resource.getrlimit(which)[1]
        resource.setrlimit(which, (hard, hard))


def resident_bytes() -> int:
    """The memory that the process really has."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def refuse_large_model(space: Space, limits: TaskLimits) -> None:
    """LimitError for a space whose model would not fit, before anything of it is built."""
    parts = sum(1 for _ in _parts(space))
    values = sum(len(domain) for _, domain in space.variables)
    estimate = parts * _BYTES_A_PART + values * _BYTES_A_VALUE
    if estimate > limits.memory_bytes:
        raise LimitError(
            Problem(
                "",
                "the model for the solver would be too large",
                f"about {estimate / 2**20:.0f} MiB ({parts} parts of constraints, {values} values)",
                f"{limits.memory_bytes / 2**20:.0f} MiB",
                "smaller domains, or pin values",
            )
        )


def _parts(space: Space) -> Iterable[int]:
    """Every part of every constraint, shared ones once."""
    seen: set[int] = set()
    parts: list[Predicate | IntTerm] = [constraint.predicate for constraint in space.constraints]
    while parts:
        part = parts.pop()
        if id(part) not in seen:
            seen.add(id(part))
            yield id(part)
            parts += subterms(part)


def _lower(which: int, most: int) -> None:
    soft, hard = resource.getrlimit(which)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    if soft == resource.RLIM_INFINITY or soft > most:
        resource.setrlimit(which, (most, hard))
