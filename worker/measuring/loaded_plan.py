"""A host plan on a real device: built, allocated, filled, launched and read back."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Self

import numpy as np

from mapper.elements import Element
from mapper.host_plan import BufferRole, HostPlan, Launch
from mapper.measurement import CompileError, ResourceError, Timeout
from worker.devices.opencl import OpenClDevice, open_device
from worker.measuring.checks import output_buffer
from worker.measuring.driver_errors import PlanFailure, plan_failure
from worker.measuring.guards import Guards, guarded
from worker.measuring.unobserved import launch_unobserved

#: How often a launch is asked whether it runs by now.
_LOOK_AGAIN_S = 0.0005


@dataclass(frozen=True, slots=True)
class Session:
    """A context and a profiling, in-order queue on one device (pyopencl's objects)."""

    device: OpenClDevice
    context: Any
    queue: Any


def open_session(spec: str) -> Session:
    """Open the device that ``spec`` names; raises DeviceError when it is not there."""
    import pyopencl as cl

    device = open_device(spec)
    context = cl.Context([device.handle])
    profiling = cl.command_queue_properties.PROFILING_ENABLE
    return Session(device, context, cl.CommandQueue(context, properties=profiling))


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Device times of one run in ns, by its events: ``kernel_ns`` is the sum over the launches,
    ``span_ns`` first start to last end; ``prepared_ns`` is what prepared launches took beside, 0
    where they had run before. ``launches_ns`` are the others one by one, with their kernels'
    names."""

    kernel_ns: int
    span_ns: int
    prepared_ns: int = 0
    launches_ns: tuple[tuple[str, int], ...] = ()


def _poison(element: Element) -> np.ndarray[Any, Any]:
    """One element that is no result, or seldom one."""
    if element.is_integer:
        return np.full(element.bytes, 0xA5, np.uint8).view(element.value)
    return np.array([np.nan], dtype=element.value)


class LoadedPlan:
    """A plan whose program is built and whose buffers exist; a context manager.

    ``with_guards`` puts NaNs around every buffer (:mod:`worker.measuring.guards`); a simulator that
    looks after bounds itself would be misled by them.

    Making one raises :class:`PlanFailure`. ``build_ms`` is the time of the driver's build
    call; drivers may go on compiling at a kernel's first launch (:meth:`compile_for_groups`).
    """

    def __init__(self, session: Session, plan: HostPlan, *, with_guards: bool = False) -> None:
        self._session = session
        self._plan = plan
        self._output = output_buffer(plan)
        self._buffers: dict[str, Any] = {}
        self._with_guards = with_guards
        self._guards: dict[str, Guards] = {}
        self._given: dict[str, np.ndarray[Any, Any]] = {}
        self._check_launch_sizes()
        started = time.perf_counter()
        self._program = self._build()
        self.build_ms = (time.perf_counter() - started) * 1e3
        self._launches = [(launch, self._make_kernel(launch)) for launch in plan.launches]
        self._check_memory()
        self._allocate()
        self._set_arguments()
        self._made_ready = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        # The next candidate may need all of the memory: do not wait for the collector.
        for buffer in (*self._buffers.values(), *(g.whole for g in self._guards.values())):
            buffer.release()
        self._buffers.clear()
        self._guards.clear()

    def _check_launch_sizes(self) -> None:
        """Ask the driver's limits first: some drivers crash instead of refusing."""
        handle = self._session.device.handle
        sizes = tuple(int(size) for size in handle.max_work_item_sizes)
        for launch in self._plan.launches:
            group = prod(launch.local_size)
            if group > handle.max_work_group_size:
                raise PlanFailure(
                    ResourceError(
                        f"kernel {launch.kernel}: INVALID_WORK_GROUP_SIZE: {group} work-items; "
                        f"allowed: {handle.max_work_group_size}"
                    )
                )
            if any(size > limit for size, limit in zip(launch.local_size, sizes, strict=False)):
                raise PlanFailure(
                    ResourceError(
                        f"kernel {launch.kernel}: INVALID_WORK_ITEM_SIZE: {launch.local_size}; "
                        f"allowed: {sizes}"
                    )
                )
            if launch.local_bytes > handle.local_mem_size:
                raise PlanFailure(
                    ResourceError(
                        f"kernel {launch.kernel}: {launch.local_bytes} bytes of local memory; "
                        f"allowed: {handle.local_mem_size}"
                    )
                )

    def _build(self) -> Any:
        import pyopencl as cl

        try:
            with warnings.catch_warnings():
                # pyopencl warns about every build log that is not empty.
                warnings.simplefilter("ignore")
                return cl.Program(self._session.context, self._plan.source).build()
        except cl.Error as error:
            raise plan_failure(error, "building the program") from error

    def _make_kernel(self, launch: Launch) -> Any:
        import pyopencl as cl

        try:
            kernel = cl.Kernel(self._program, launch.kernel)
        except cl.Error as error:
            raise plan_failure(error, f"kernel {launch.kernel}") from error
        if kernel.num_args != len(launch.arguments):
            raise PlanFailure(
                CompileError(
                    f"kernel {launch.kernel} has {kernel.num_args} parameters; "
                    f"the plan passes {len(launch.arguments)}"
                )
            )
        # CL_KERNEL_WORK_GROUP_SIZE is not checked here but recorded: NVIDIA's driver answers 256
        # for every kernel and yet runs groups of 1024. The enqueue decides.
        local = self._work_group_info(kernel, "LOCAL_MEM_SIZE")
        limit = self._session.device.handle.local_mem_size
        if local is not None and local > limit:
            raise PlanFailure(
                ResourceError(
                    f"kernel {launch.kernel}: {local} bytes of local memory; allowed: {limit}"
                )
            )
        return kernel

    def _work_group_info(self, kernel: Any, name: str) -> int | None:
        import pyopencl as cl

        try:
            which = getattr(cl.kernel_work_group_info, name)
            return int(kernel.get_work_group_info(which, self._session.device.handle))
        except cl.Error:
            # Optional in some drivers; the enqueue decides then.
            return None

    def _check_memory(self) -> None:
        """Refuse what cannot fit: hosts overcommit, and touching the pages would kill us."""
        available = self._session.device.handle.global_mem_size
        if self._plan.memory_bytes > available:
            raise PlanFailure(
                ResourceError(
                    f"the plan allocates {self._plan.memory_bytes} bytes of global memory; "
                    f"the device has {available}"
                )
            )

    def _allocate(self) -> None:
        import pyopencl as cl

        for number, planned in enumerate(self._plan.buffers):
            try:
                guards = guarded(self._session, planned, number) if self._with_guards else None
                if guards is not None:
                    self._guards[planned.name] = guards
                    self._buffers[planned.name] = guards.buffer
                    continue
                self._buffers[planned.name] = cl.Buffer(
                    self._session.context, cl.mem_flags.READ_WRITE, planned.bytes
                )
            except cl.Error as error:
                self.__exit__()
                doing = f"allocating {planned.bytes} bytes for buffer {planned.name}"
                raise plan_failure(error, doing) from error

    def _set_arguments(self) -> None:
        """Once for all runs: between two launches of one nothing else may take the host's time."""
        import pyopencl as cl

        for launch, kernel in self._launches:
            try:
                kernel.set_args(*(self._buffers[name] for name in launch.arguments))
            except cl.Error as error:
                self.__exit__()
                raise plan_failure(error, f"arguments of kernel {launch.kernel}") from error

    def fill_inputs(self, inputs: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Copy every input into the start of its buffer."""
        import pyopencl as cl

        try:
            for planned in self._plan.buffers:
                if planned.role is BufferRole.INPUT:
                    data = np.ascontiguousarray(inputs[planned.name], dtype=planned.dtype.value)
                    self._given[planned.name] = data
                    cl.enqueue_copy(
                        self._session.queue, self._buffers[planned.name], data, is_blocking=True
                    )
        except cl.Error as error:
            raise plan_failure(error, "copying inputs") from error

    def poison(self) -> None:
        """Fill intermediates and the output, what pads inputs, and the guards: with NaN, and
        integers with what is seldom a result (0xA5 in every byte)."""
        import pyopencl as cl

        self._made_ready = False
        try:
            for planned in self._plan.buffers:
                given = planned.dtype.bytes * prod(planned.shape)
                start = given if planned.role is BufferRole.INPUT else 0
                if start < planned.bytes:
                    cl.enqueue_fill_buffer(
                        self._session.queue,
                        self._buffers[planned.name],
                        _poison(planned.dtype),
                        start,
                        planned.bytes - start,
                    )
            for guards in self._guards.values():
                guards.set(self._session.queue)
            self._session.queue.finish()
        except cl.Error as error:
            raise plan_failure(error, "filling buffers with NaN") from error

    def written_outside(self) -> str:
        """What the runs since :meth:`poison` wrote that is no output or intermediate: beside a
        buffer, or into an input. Compared by bits; empty if nothing."""
        import pyopencl as cl

        try:
            for guards in self._guards.values():
                if found := guards.changed(self._session.queue):
                    return found
            for name, given in self._given.items():
                now = np.empty_like(given)
                cl.enqueue_copy(self._session.queue, now, self._buffers[name], is_blocking=True)
                bits = np.dtype(f"u{given.itemsize}")
                wrong = np.flatnonzero(now.view(bits) != given.view(bits))
                if wrong.size:
                    return f"the kernel wrote into its input {name}, first into element {wrong[0]}"
        except cl.Error as error:
            raise plan_failure(error, "reading guards", running=True) from error
        return ""

    def compile_for_groups(self, running_s: float) -> None:
        """Have kernels compiled for their work-groups, where the driver waits for a launch.

        PoCL does: one work-group of each is run, and the buffers have to be poisoned after it.
        (Beyond 65,535 work-items in a dimension it compiles another form, at the first run.)
        Raises PlanFailure, a Timeout where a group alone runs for longer than ``running_s``.
        """
        import pyopencl as cl

        if not (self._session.device.is_pocl and self._session.device.kind == "cpu"):
            return
        current = ""
        try:
            for launch, kernel in self._launches:
                current = launch.kernel
                self._compile_for_group(launch, kernel, running_s)
        except cl.Error as error:
            raise plan_failure(error, f"running kernel {current}", running=True) from error

    def _compile_for_group(self, launch: Launch, kernel: Any, running_s: float) -> None:
        import pyopencl as cl

        queue, states = self._session.queue, cl.command_execution_status
        started = time.perf_counter()
        event = cl.enqueue_nd_range_kernel(queue, kernel, launch.local_size, launch.local_size)
        queue.flush()
        began: float | None = None
        # The driver says that it runs once it is compiled.
        while (state := event.command_execution_status) > states.COMPLETE:
            now = time.perf_counter()
            if state == states.RUNNING:
                began = began or now
                if now - began > running_s:
                    raise PlanFailure(Timeout(running_s), retire=True)
            time.sleep(_LOOK_AGAIN_S)
        queue.finish()
        self.build_ms += ((began or time.perf_counter()) - started) * 1e3

    def run(self) -> RunTimes:
        """Launch everything that is not prepared once, and wait for it.

        Prepared launches come before it in the first run after :meth:`poison`, as weights are
        packed once and not for every image.
        """
        import pyopencl as cl

        prepared = [] if self._made_ready else [p for p in self._launches if p[0].prepared]
        launches = [*prepared, *(pair for pair in self._launches if not pair[0].prepared)]
        events: list[Any] = []
        current = ""
        try:
            for launch, kernel in launches:
                current = launch.kernel
                events.append(
                    cl.enqueue_nd_range_kernel(
                        self._session.queue, kernel, launch.global_size, launch.local_size
                    )
                )
            self._session.queue.finish()
            self._made_ready = True
            times = [(event.profile.start, event.profile.end) for event in events]
        except cl.Error as error:
            raise plan_failure(error, f"running kernel {current}", running=True) from error
        counted = times[len(prepared) :]
        names = [launch.kernel for launch, _ in launches[len(prepared) :]]
        return RunTimes(
            kernel_ns=sum(end - start for start, end in counted),
            span_ns=counted[-1][1] - counted[0][0] if counted else 0,
            prepared_ns=sum(end - start for start, end in times[: len(prepared)]),
            launches_ns=tuple(
                (name, end - start) for name, (start, end) in zip(names, counted, strict=True)
            ),
        )

    @property
    def launches_of_a_run(self) -> int:
        """Launches that are not prepared."""
        return sum(not launch.prepared for launch, _ in self._launches)

    def enqueue_run(self, queue: Any) -> None:
        """Put a run, without what is prepared, into a queue of the same context, without events,
        and return at once. Something must have been run before. Raises pyopencl's errors."""
        for launch, kernel in self._launches:
            if not launch.prepared:
                launch_unobserved(queue, kernel, launch.global_size, launch.local_size)

    def read_output(self) -> np.ndarray[Any, Any]:
        """The output in its logical shape and element type."""
        import pyopencl as cl

        result = np.empty(self._output.shape, dtype=self._output.dtype.value)
        try:
            cl.enqueue_copy(
                self._session.queue, result, self._buffers[self._output.name], is_blocking=True
            )
        except cl.Error as error:
            raise plan_failure(error, "reading the output", running=True) from error
        return result

    def kernel_facts(self) -> dict[str, str]:
        """What the driver says of each compiled kernel: group limit and memory in bytes."""
        bare = [planned.name for planned in self._plan.buffers if planned.name not in self._guards]
        facts = {"guards": f"not around {', '.join(bare)}" if bare else "around every buffer"}
        for launch, kernel in self._launches:
            for fact, name in (
                ("max_work_group_size", "WORK_GROUP_SIZE"),
                ("preferred_multiple", "PREFERRED_WORK_GROUP_SIZE_MULTIPLE"),
                ("local_bytes", "LOCAL_MEM_SIZE"),
                ("private_bytes", "PRIVATE_MEM_SIZE"),
            ):
                value = self._work_group_info(kernel, name)
                if value is not None:
                    facts[f"kernel.{launch.kernel}.{fact}"] = str(value)
        return facts
