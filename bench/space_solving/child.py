"""One measurement in a process of its own: ``python -m bench.space_solving.child``.

Reads a request from stdin and writes one line of JSON to stdout. Only the call itself is
timed, with ``time.perf_counter``: packages are loaded before, the answer is checked after. No
call is made before it to warm anything up.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.space_solving.canonical import digest, positions
from bench.space_solving.contestants.problem import (
    Contestant,
    NotMeasured,
    Problem,
    Start,
    predicate_function,
)


def _nestmap(start: Start) -> Contestant:
    from bench.space_solving.contestants.nestmap_engine import NestmapEngine

    return NestmapEngine(start)


def _kernel_tuner() -> Contestant:
    from bench.space_solving.contestants.kernel_tuner_builder import KernelTuner

    return KernelTuner()


def _python_constraint(forward_check: bool) -> Contestant:
    from bench.space_solving.contestants.python_constraint_builder import PythonConstraint

    return PythonConstraint(forward_check=forward_check)


def _pyatf() -> Contestant:
    from bench.space_solving.contestants.pyatf_builder import PyAtf

    return PyAtf()


def _numpy_join() -> Contestant:
    from bench.space_solving.contestants.numpy_builders import NumpyJoin

    return NumpyJoin()


def _numpy_brute_force() -> Contestant:
    from bench.space_solving.contestants.numpy_builders import NumpyBruteForce

    return NumpyBruteForce()


def _plain_python() -> Contestant:
    from bench.space_solving.contestants.plain_python import PlainPython

    return PlainPython()


CONTESTANTS: dict[str, Callable[[], Contestant]] = {
    "nestmap": lambda: _nestmap(Start.JSON),
    "nestmap-texts": lambda: _nestmap(Start.TEXTS),
    "nestmap-compiled": lambda: _nestmap(Start.COMPILED),
    "numpy-join": _numpy_join,
    "numpy-brute-force": _numpy_brute_force,
    "kernel-tuner": _kernel_tuner,
    "python-constraint": lambda: _python_constraint(True),
    "python-constraint-list": lambda: _python_constraint(False),
    "pyatf": _pyatf,
    "brute-force": _plain_python,
}


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request: seconds, count, and what compares answers."""
    problem = Problem(
        {name: tuple(values) for name, values in request["parameters"].items()},
        tuple(request["constraints"]),
        request["schema"],
        request["document"],
    )
    task, number, seed = request["task"], request["number"], request["seed"]
    contestant = CONTESTANTS[request["contestant"]]()
    contestant.prepare(problem)
    calls: dict[str, Callable[[], Any]] = {
        "construct": contestant.construct,
        "count": contestant.count,
        "sample": lambda: contestant.sample(number, seed),
    }
    call = calls[task]
    # The default action of the signal ends the process, whatever it is doing. (A timer of
    # processor time would make the kernel sample that clock in steps of milliseconds.)
    signal.setitimer(signal.ITIMER_REAL, float(request["timeout_s"]))
    processor = time.process_time()
    started = time.perf_counter()
    found = call()
    seconds = time.perf_counter() - started
    signal.setitimer(signal.ITIMER_REAL, 0)
    answer: dict[str, Any] = {
        "seconds": seconds,
        "cpu_seconds": time.process_time() - processor,
        "stages": getattr(contestant, "stages", {}),
        # On Linux in KiB. The answer is in it, what checks it is not.
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }
    if task == "count":
        return {**answer, "count": found}
    columns = contestant.columns(found)
    answer["count"] = len(columns[0])
    if task == "construct":
        answer["distinct"], answer["digest"] = digest(columns, problem.parameters)
    else:
        answer["wrong"] = _wrong(problem, columns)
    return answer


def _wrong(problem: Problem, columns: Sequence[Any]) -> int:
    """How many samples break a constraint, in plain Python."""
    checks = [
        ([problem.names.index(name) for name in names], predicate_function(text, names))
        for text, names in zip(problem.constraints, problem.constraint_names, strict=True)
    ]
    values = list(problem.parameters.values())
    wrong = 0
    for row in positions(columns, problem.parameters).tolist():
        chosen = [values[index][place] for index, place in enumerate(row)]
        wrong += not all(holds(*(chosen[i] for i in used)) for used, holds in checks)
    return wrong


def main() -> None:
    """Answer the request on stdin; its ``memory_mb`` bounds the address space."""
    request = json.load(sys.stdin)
    limit = int(request["memory_mb"]) * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    # What packages print must not mix with the answer.
    out, sys.stdout = sys.stdout, sys.stderr
    try:
        answer = measure(request)
    except NotMeasured as error:
        answer = {"refused": str(error)}
    except MemoryError:
        answer = {"refused": f"over {request['memory_mb']} MB"}
    json.dump(answer, out)
    out.write("\n")
    out.flush()


if __name__ == "__main__":
    main()
