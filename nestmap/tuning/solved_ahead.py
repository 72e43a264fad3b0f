"""A program's sketches, derived and solved side by side before the search asks for them.

A sketch takes up to a second to be derived, its space a second or two to be solved and drawn from,
and a search weighs a dozen of them. Where the cores are not what is timed, processes do it, most
promising first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from functools import partial

from mapper.device_profile import DeviceProfile
from mapper.errors import NestmapError
from mapper.pipeline import Subject
from mapper.solver.limits import Watch, within_processor_seconds
from mapper.solver.space import Space
from nestmap.tuning.drawing import Opened, opened
from nestmap.tuning.kernel_parts import KernelPart, kernel_parts
from nestmap.tuning.processes import Processes
from nestmap.tuning.sketch_subjects import PossibleSketch, Tuned

#: Seconds of processor time that a space may take here: nobody waits for it.
_SOLVING_S = 60.0
#: Seconds between two looks at whether anybody still waits.
_LOOK_S = 0.1

SpaceOf = Callable[[Subject], Space]
_Given = tuple[Sequence[Tuned], SpaceOf, DeviceProfile]


@dataclass(frozen=True, slots=True)
class Begun:
    """A sketch with its space, the space's parts, and these solved, or why they are not; no subject
    where the sketch does not apply."""

    subject: Subject | None
    space: Space | None = None
    parts: tuple[KernelPart, ...] = ()
    opened: tuple[Opened | NestmapError, ...] = ()

    def opener(self, number: int) -> Callable[[Watch], Opened]:
        """Who solves a part: it is solved."""
        return partial(_taken, self.opened[number])


def _taken(found: Opened | NestmapError, watch: Watch) -> Opened:
    if isinstance(found, NestmapError):
        raise found
    found.space.watch = watch
    return found


class SolvedAhead:
    """Processes that derive and solve sketches for a device, those at ``places``; ``space_of``,
    which derives a space, travels to them."""

    def __init__(
        self,
        subjects: Sequence[Tuned],
        places: Sequence[int],
        space_of: SpaceOf,
        device: DeviceProfile,
        processes: int,
    ) -> None:
        self._processes: Processes[_Given, int, Begun] = Processes(
            _begun, (subjects, space_of, device), processes
        )
        self._sketches = {index: SketchAhead(self._made(index)) for index in places}

    def __enter__(self) -> SolvedAhead:
        return self

    def __exit__(self, *exception: object) -> None:
        self._processes.close()

    def sketch(self, index: int) -> SketchAhead | None:
        """The subject at a place, if it is one of those."""
        return self._sketches.get(index)

    def _made(self, index: int) -> _Future:
        future: _Future = Future()
        self._processes.submit(index, future.set_result)
        return future


class SketchAhead:
    """One sketch that processes derive and solve."""

    def __init__(self, future: _Future) -> None:
        self.future = future

    @property
    def is_begun(self) -> bool:
        """Whether nobody has to wait for it any more."""
        return self.future.done()

    def begun(self, watch: Callable[[], Watch] = Watch) -> Begun | None:
        """What it begins with; None where the process was ended. Raises what deriving its space
        raised, and Cancelled as ``watch`` says."""
        while not self.is_begun:
            wait_for_any([self], watch)
        found = self.future.result()
        if isinstance(found, Exception):
            raise found
        return found


def wait_for_any(sketches: Iterable[SketchAhead], watch: Callable[[], Watch]) -> None:
    """Wait until one of these is begun; Cancelled as ``watch`` says."""
    futures = [sketch.future for sketch in sketches]
    while not wait_for(futures, _LOOK_S, FIRST_COMPLETED).done:
        watch().look()


_Future = Future[Begun | Exception | None]


# In a process


def _begun(given: _Given, index: int) -> Begun:
    subjects, space_of, device = given
    tuned = subjects[index]
    subject = tuned.derive() if isinstance(tuned, PossibleSketch) else tuned
    if subject is None:
        return Begun(None)
    space = space_of(subject)
    parts = kernel_parts(subject.require_program(), space)
    return Begun(subject, space, parts, tuple(_opened(part, device) for part in parts))


def _opened(part: KernelPart, device: DeviceProfile) -> Opened | NestmapError:
    watch = within_processor_seconds(_SOLVING_S)
    try:
        found = opened(part.space, part.cost(device), watch, part.idle)
    except NestmapError as error:
        return error
    # Limits are of who goes on with it.
    found.space.watch = Watch()
    return found
