"""Cells of the campaign in several processes, each started afresh and ended at once.

Processes are spawned, not forked: the solver runs threads. The parent ends them when it is
interrupted; a worker that dies (killed for memory, say) costs its cell and no more.
"""

from __future__ import annotations

import multiprocessing
import signal
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from bench.proofs.joint.campaign import Cell, CellResult, run_cell

_END_S = 5.0


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    connection: Connection
    cell: Cell


def run_cells(
    cells: Iterable[Cell], jobs: int, progress: Callable[[Cell, int], None]
) -> Generator[CellResult]:
    """Results as cells end, in any order; ``progress`` tells how far each one is.

    One job runs in this process. Closing the iterator, or an exception, ends the workers.
    """
    if jobs == 1:
        for cell in cells:
            yield _guarded(cell, lambda count, cell=cell: progress(cell, count))
        return
    waiting = deque(cells)
    with _workers(min(jobs, len(waiting)), waiting) as workers:
        while workers:
            for ready in wait([worker.connection for worker in workers]):
                worker = next(w for w in workers if w.connection is ready)
                try:
                    message = worker.connection.recv()
                except (EOFError, OSError):
                    workers.remove(worker)
                    yield _died(worker)
                    if waiting:
                        workers.append(_start(waiting.popleft()))
                    continue
                if isinstance(message, int):
                    progress(worker.cell, message)
                    continue
                if waiting:
                    worker.cell = waiting.popleft()
                    with suppress(ConnectionError):  # that it died shows when it is waited for
                        worker.connection.send(worker.cell)
                else:
                    workers.remove(worker)
                    _end(worker)
                yield message


@contextmanager
def _workers(count: int, waiting: deque[Cell]) -> Iterator[list[_Worker]]:
    started: list[_Worker] = []
    try:
        for _ in range(count):
            started.append(_start(waiting.popleft()))
        yield started
    finally:
        for worker in started:
            worker.process.terminate()
        for worker in started:
            _end(worker)


def _start(cell: Cell) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    ours.send(cell)
    return _Worker(process, ours, cell)


def _end(worker: _Worker) -> None:
    worker.connection.close()
    worker.process.join(_END_S)
    if worker.process.is_alive():
        worker.process.kill()
        worker.process.join()


def _serve(connection: Connection) -> None:
    """A worker's life: cells until the parent closes the pipe."""
    # Ctrl-C reaches the whole process group; what becomes of the workers is the parent's task.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(EOFError, ConnectionError):
        while True:
            connection.send(_guarded(connection.recv(), connection.send))


def _guarded(cell: Cell, progress: Callable[[int], None]) -> CellResult:
    try:
        return run_cell(cell, progress=progress)
    except ConnectionError:  # the parent is gone
        raise
    except Exception:
        result = _empty(cell)
        result.fail("crash", traceback.format_exc(limit=-6), None)
        return result


def _died(worker: _Worker) -> CellResult:
    _end(worker)
    result = _empty(worker.cell)
    result.fail("crash", f"the worker ended with exit code {worker.process.exitcode}", None)
    return result


def _empty(cell: Cell) -> CellResult:
    return CellResult(cell.key, cell.layer.name, cell.variant, cell.device, cell.seed, cell.count)
