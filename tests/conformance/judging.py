"""One case of a convolution, judged: reference, interpreter and a kernel on PoCL.

``VARIANTS`` is what is under test: the program as it is written, and its sketches for a processor
and for a GPU, of which each seed takes others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.ast_model.interpreter import interpret
from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.predicate import Variable
from mapper.constraint_rules.rule import Mode
from mapper.device_profile import DeviceProfile
from mapper.errors import UnsatisfiableError
from mapper.host_plan import HostPlan
from mapper.layer_spec import DType, LayerSpec
from mapper.measurement import Timed
from mapper.pipeline import (
    Subject,
    assignment_to_json,
    choices_of,
    derive_space,
    generate_kernels,
    subject_of_layer,
)
from mapper.profiles import load_profile
from mapper.schedules.sketches.derivation import possible_names
from mapper.solver.factored.suited import SuitedSpace
from mapper.solver.limits import SolveLimits, Watch
from mapper.solver.sampling import sample
from mapper.tuning_space.where import with_where
from mapper.variants import LAST_RESORT
from nestmap.tuning.reference import convolve
from nestmap.tuning.sketch_subjects import PossibleSketch, layer_in, with_suits
from tests.conformance.random_layers import inputs_of
from tests.effort import cases
from worker import oclgrind
from worker.measuring import MeasuringChild, Protocol, Tolerance

#: PoCL's groups are no larger, and small layers fill no warp of 32.
_SMALLER = {
    "pocl": {"max_work_group_size": 256, "max_work_item_sizes": (256, 256, 256)},
    "h200": {"max_work_group_size": 256, "max_work_item_sizes": (256, 256, 256), "lanes": 4},
}
#: Devices whose sketches are tried, with 16-bit floats that are stored and converted.
SKETCHED: dict[str, DeviceProfile] = {
    f"sketches-of-{name}": replace(load_profile(name), half_storage=True, **smaller)
    for name, smaller in _SMALLER.items()
}
PROCESSOR_SKETCHES, GPU_SKETCHES = SKETCHED
VARIANTS = (LAST_RESORT, *SKETCHED)
SEED = 20
MAPPINGS = cases(1, 2)
_SOLVE_S = 60.0
_RUN_S = 60.0
_ONCE = Protocol(warmup=0, repetitions=1, max_repetitions=1, slow_after_ms=0.0, budget_ms=0.0)


@dataclass(frozen=True)
class Case:
    """A layer, its inputs by name, and its result as somebody else computed it.

    Arrays have the shapes that the layer says.
    """

    name: str
    layer: LayerSpec
    inputs: dict[str, NDArray[Any]]
    expected: NDArray[Any]

    @property
    def tolerance(self) -> Tolerance:
        """Of float32 sums, ours and theirs, rounded once more where 16 bits are stored.

        A layer of few outputs may have small ones only, by cancellation; what is rounded are
        sums of the size that sums of such products have.
        """
        length = self.layer.accumulation_length
        typical = np.sqrt(length) * _rms(self.inputs["image"]) * _rms(self.inputs["weights"])
        size = _rms(self.expected)
        factor = Tolerance().factor
        larger = factor * max(1.0, typical / size) if size else factor
        return Tolerance(length, larger, int(self.layer.dtype is DType.FLOAT16))


def case_of(layer: LayerSpec) -> Case:
    """A layer with random inputs, and the reference's result."""
    inputs = inputs_of(layer)
    return Case(str(layer), layer, inputs, convolve(layer, **inputs))


def _rms(array: NDArray[Any]) -> float:
    return float(np.sqrt(np.mean(array.astype(np.float64) ** 2)))


def shaped(layer: LayerSpec, *arrays: NDArray[Any]) -> dict[str, NDArray[np.float32]]:
    """Image, weights and perhaps bias, in the shapes of the layer: a 1-D one has rows of 1."""
    shapes = (layer.image_shape, layer.weights_shape, (layer.filters,))
    return {
        name: np.ascontiguousarray(array, np.float32).reshape(shape)
        for name, array, shape in zip(("image", "weights", "bias"), arrays, shapes, strict=False)
    }


def assert_near(found: NDArray[Any], case: Case, what: str) -> None:
    """Every element within the tolerance that kernels are held to."""
    expected = case.expected.astype(np.float64)
    assert found.shape == expected.shape, f"{case.name}, {what}"
    scale = np.maximum(np.abs(expected), _rms(expected))
    wrong = ~(np.abs(found - expected) <= case.tolerance.relative * scale)
    assert not wrong.any(), f"{case.name}, {what}: {wrong.sum()} of {wrong.size} are wrong"


def judge_reference(case: Case) -> None:
    """The NumPy reference gives what the other gave."""
    assert case.layer.output_shape == case.expected.shape, case.name
    assert_near(convolve(case.layer, **case.inputs), case, "reference")


def drawn(
    case: Case, variant: str, profile: DeviceProfile, count: int, seed: int
) -> Iterator[tuple[str, HostPlan]]:
    """A few mappings among all that strict mode admits, as texts and as kernels; of sketches among
    all that suit their device.

    The interpreter is held against the case with the tuning parameters of each.
    """
    if variant in SKETCHED:
        found = of_any_sketch(case.layer, SKETCHED[variant], seed)
    else:
        found = of_variant(case.layer, variant, profile, count, seed)
    return judged(case, islice(found, count), seed)


#: A mapping of a subject.
Mapped = tuple[Subject, Mapping[Variable, int]]


def of_variant(
    layer: LayerSpec, variant: str, profile: DeviceProfile, count: int, seed: int
) -> Iterator[Mapped]:
    """Samples of the solver."""
    subject = subject_of_layer(layer, variant)
    space = derive_space(subject, Mode.STRICT, profile, DEFAULT_OPTIONS)
    for chosen in sample(space, count, seed, watch=Watch(SolveLimits(time_s=_SOLVE_S))):
        yield subject, chosen


def of_any_sketch(layer: LayerSpec, profile: DeviceProfile, seed: int) -> Iterator[Mapped]:
    """A solution of each sketch of the layer's program that has one, in random order. Every layer
    has such a sketch."""
    written, random = subject_of_layer(layer, LAST_RESORT), Random(f"{seed} {layer}")
    names = possible_names(written.require_program(), profile)
    assert names is not None, "copies of views are combined"
    for name in random.sample(names, len(names)):
        subject = PossibleSketch(written, name, profile).derive()
        if subject is not None:
            yield from of_sketch(subject, profile, random)


def of_sketch(
    subject: Subject, profile: DeviceProfile, random: Random, where: Sequence[str] = ()
) -> Iterator[Mapped]:
    """A solution under all that suits the device; none where there is none."""
    space = derive_space(subject, Mode.STRICT, profile, with_suits(subject, DEFAULT_OPTIONS))
    try:
        chosen = SuitedSpace(with_where(space, where)).draw_joint(random)
    except UnsatisfiableError:
        return
    if chosen is not None:
        yield subject, chosen


def of_named(
    case: Case, name: str, variant: str, where: Sequence[str] = (), seed: int = SEED
) -> Iterator[tuple[str, HostPlan]]:
    """A mapping of the sketch of this name for one of ``SKETCHED`` with sizes as wanted."""
    profile = SKETCHED[variant]
    subject = layer_in(case.layer, name, profile)
    found = of_sketch(subject, profile, Random(seed), where)
    return judged(case, found, seed)


def judged(case: Case, found: Iterator[Mapped], seed: int) -> Iterator[tuple[str, HostPlan]]:
    """Texts and kernels of mappings, at least one, that the interpreter agrees with."""
    several = 0
    for subject, chosen in found:
        json = assignment_to_json(chosen)
        what = f"{case.name}, {subject.variant}, seed {seed}: {json}"
        parameters = choices_of(chosen).parameters
        result = interpret(subject.require_program(), parameters, case.inputs)
        assert_near(result, case, f"interpreter, {what}")
        several += 1
        yield what, generate_kernels(subject, chosen)
    assert several, f"{case.name}: no solution"


def judge_variant(case: Case, variant: str, device: MeasuringChild, seed: int = SEED) -> None:
    """The variant's program in the interpreter, and kernels of it on PoCL, give the same."""
    judge_plans(case, drawn(case, variant, device.profile(), MAPPINGS, seed), device)


def judge_plans(case: Case, plans: Iterable[tuple[str, HostPlan]], device: MeasuringChild) -> None:
    """Kernels give what the case says on PoCL."""
    device.upload_workload("conformance", case.inputs, case.expected.astype(np.float64))
    for what, plan in plans:
        outcome = device.measure(
            plan,
            workload="conformance",
            tolerance=case.tolerance,
            protocol=_ONCE,
            timeout_s=_RUN_S,
        )
        assert isinstance(outcome, Timed), f"{what}\n{outcome}"


def judge_in_oclgrind(
    cases: Sequence[Case], variant: str, device: MeasuringChild, seed: int = SEED
) -> None:
    """A kernel of each case is right and clean in Oclgrind: no race, nothing unwritten read.

    The simulator is started once for all of them.
    """
    profile = device.profile()
    judge_plans_in_oclgrind((case, drawn(case, variant, profile, 1, seed)) for case in cases)


def judge_plans_in_oclgrind(
    several: Iterable[tuple[Case, Iterable[tuple[str, HostPlan]]]],
) -> None:
    """Kernels of some cases are right and clean in Oclgrind, which is started once for them."""
    simulations: dict[str, oclgrind.Simulation] = {}
    for case, plans in several:
        expected = case.expected.astype(np.float64)
        for what, plan in plans:
            simulations[what] = oclgrind.Simulation(plan, case.inputs, expected, case.tolerance)
    reports = oclgrind.check_many(tuple(simulations.values()), timeout_s=_RUN_S)
    faults = [f"{w}\n{r}" for w, r in zip(simulations, reports, strict=True) if not r.ok]
    assert not faults, "\n".join(faults)
