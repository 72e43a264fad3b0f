"""The spaces of a program's sketches, solved side by side before the search asks for them.

A space takes seconds to be solved and drawn from, and a search weighs a dozen of them. Where the
cores are not what is timed, processes solve them: all with fewer sizes at first, most promising
first, with the solutions that a search begins with; and a space with all sizes once candidates of
it were tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from time import thread_time

from mapper.device_profile import DeviceProfile
from mapper.errors import NestmapError
from mapper.pipeline import Subject
from mapper.solver.factored.suited import SuitedSpace
from mapper.solver.limits import DEFAULT_LIMITS, Watch
from mapper.solver.space import Space
from nestmap.tuning.drawing import Drawn, opening
from nestmap.tuning.kernel_parts import KernelPart, kernel_parts
from nestmap.tuning.part_search import SolverHere, with_fewer_sizes
from nestmap.tuning.processes import Processes

#: Seconds of processor time that a space may take here: nobody waits for it.
_SOLVING_S = 60.0
#: Seconds between two looks at whether anybody still waits.
_LOOK_S = 0.1

SpaceOf = Callable[[Subject], Space]
_Given = tuple[Sequence[Subject], SpaceOf, DeviceProfile]
#: A subject's number, and which of its parts with all sizes: none is the start of all of them.
_Job = tuple[int, int | None]
#: A part with fewer sizes, and what its search begins with.
_Opened = tuple[SuitedSpace, tuple[Drawn, ...]]


@dataclass(frozen=True, slots=True)
class Begun:
    """A sketch's space, its parts, and these with fewer sizes or why they are not solved."""

    space: Space
    parts: tuple[KernelPart, ...]
    opened: tuple[_Opened | NestmapError, ...]


class SolvedAhead:
    """Processes that solve sketches for a device, those at ``places``; ``space_of``, which derives
    a space, travels to them."""

    def __init__(
        self,
        subjects: Sequence[Subject],
        places: Sequence[int],
        space_of: SpaceOf,
        device: DeviceProfile,
        processes: int,
    ) -> None:
        self._processes: Processes[_Given, _Job, Begun | SuitedSpace] = Processes(
            _solve, (subjects, space_of, device), processes
        )
        self._sketches = {index: SketchAhead(partial(self._made, index)) for index in places}

    def __enter__(self) -> SolvedAhead:
        return self

    def __exit__(self, *exception: object) -> None:
        self._processes.close()

    def sketch(self, index: int) -> SketchAhead | None:
        """The subject at a place, if it is one of those."""
        return self._sketches.get(index)

    def _made(self, index: int, part: int | None) -> Future[Begun | SuitedSpace | Exception | None]:
        future: Future[Begun | SuitedSpace | Exception | None] = Future()
        self._processes.submit((index, part), future.set_result)
        return future


class SketchAhead:
    """One sketch that processes solve."""

    def __init__(
        self, made: Callable[[int | None], Future[Begun | SuitedSpace | Exception | None]]
    ) -> None:
        self._made = made
        self._begun = made(None)

    @property
    def is_begun(self) -> bool:
        """Whether nobody has to wait for its space any more."""
        return self._begun.done()

    def begun(self, watch: Callable[[], Watch] = Watch) -> Begun | None:
        """What it begins with; None where the process was ended. Raises what deriving it raised,
        and Cancelled as ``watch`` says."""
        found = _awaited(self._begun, watch)
        return found if isinstance(found, Begun) else None

    def part(self, number: int) -> _PartAhead:
        """Who solves a part of a sketch that is begun."""
        begun = self.begun()
        assert begun is not None
        return _PartAhead(
            begun.parts[number].space, begun.opened[number], partial(self._made, number)
        )


class _PartAhead:
    """A :class:`~nestmap.tuning.part_search.Solver`; what no process has solved is solved here."""

    def __init__(
        self,
        space: Space,
        opened: _Opened | NestmapError,
        made: Callable[[], Future[Begun | SuitedSpace | Exception | None]],
    ) -> None:
        self._space = space
        self._opened = opened
        self._made = made
        self._fine: Future[Begun | SuitedSpace | Exception | None] | None = None

    def coarse(self, watch: Watch) -> SuitedSpace:
        """With fewer sizes."""
        if isinstance(self._opened, NestmapError):
            raise self._opened
        space, _ = self._opened
        space.watch = watch
        return space

    def opening(self) -> Sequence[Drawn]:
        """What its search begins with."""
        return () if isinstance(self._opened, NestmapError) else self._opened[1]

    def fine(self, watch: Watch, wait: bool) -> SuitedSpace | None:
        """With all sizes; None where it is not there yet and nobody waits."""
        if self._fine is None:
            self._fine = self._made()
        if not wait and not self._fine.done():
            return None
        found = _awaited(self._fine, lambda: watch)
        if not isinstance(found, SuitedSpace):
            return SolverHere(self._space).fine(watch, wait)
        found.watch = watch
        return found


def _awaited(
    future: Future[Begun | SuitedSpace | Exception | None], watch: Callable[[], Watch]
) -> Begun | SuitedSpace | None:
    while True:
        try:
            found = future.result(_LOOK_S)
        except TimeoutError:
            watch().look()
            continue
        if isinstance(found, Exception):
            raise found
        return found


# In a process


def _solve(given: _Given, job: _Job) -> Begun | SuitedSpace:
    (subjects, space_of, device), (index, number) = given, job
    subject = subjects[index]
    space = space_of(subject)
    parts = kernel_parts(subject.require_program(), space)
    if number is not None:
        return _let_go(SuitedSpace(parts[number].space, _watch()))
    return Begun(space, parts, tuple(_opened(part, device) for part in parts))


def _opened(part: KernelPart, device: DeviceProfile) -> _Opened | NestmapError:
    space = with_fewer_sizes(part.space)
    try:
        solved = SuitedSpace(space, _watch())
        drawn = opening(space, solved, part.cost(device)) if solved.count_joint() else ()
    except NestmapError as error:
        return error
    return _let_go(solved), drawn


def _watch() -> Watch:
    limits = replace(DEFAULT_LIMITS, time_s=_SOLVING_S)
    return Watch(limits, started=thread_time(), clock=thread_time)


def _let_go(space: SuitedSpace) -> SuitedSpace:
    """A space as it travels: limits are of who goes on with it."""
    space.watch = Watch()
    return space
