"""One case of a convolution, judged: reference, interpreter and a kernel on PoCL.

``VARIANTS`` are the variants under test, each with the names of the cases that it is known
not to do. A variant that refuses anything else fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mapper.ast_model.interpreter import interpret
from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.predicate import Variable
from mapper.constraint_rules.rule import Mode
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError
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
from mapper.rewrites.catalogue import CHAINS, LONE_VARIANTS
from mapper.rewrites.families import Family
from mapper.solver.limits import SolveLimits, Watch
from mapper.solver.sampling import sample
from mapper.solver.space import Space
from mapper.variants import VARIANTS as ALL_VARIANTS
from nestmap.tuning.proposals.blocked_proposals import BlockedProposals
from nestmap.tuning.reference import convolve
from tests.conformance.random_layers import inputs_of
from tests.effort import cases
from worker import oclgrind
from worker.measuring import MeasuringChild, Protocol, Tolerance

VARIANTS: dict[str, frozenset[str]] = {
    "high-level": frozenset(),
    "tiled": frozenset(),
    "tiled-reread": frozenset(),
    "im2col": frozenset(),
    "blocked": frozenset(),
    "blocked-bands": frozenset(),
}
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


def refuses(case: Case, variant: str) -> bool:
    """True for a case that the variant is known not to do; it must say so."""
    if case.name not in VARIANTS.get(variant, frozenset()):
        return False
    assert ALL_VARIANTS[variant].applies(case.layer) is not None, f"{case.name} is done"
    with pytest.raises(InputError, match="allowed:"):
        subject_of_layer(case.layer, variant)
    return True


def drawn(
    case: Case, variant: str, profile: DeviceProfile, count: int, seed: int
) -> Iterator[tuple[str, HostPlan]]:
    """A few mappings among all that strict mode admits, as texts and as kernels.

    The interpreter is held against the case with the tuning parameters of each.
    """
    subject = subject_of_layer(case.layer, variant)
    space = derive_space(subject, Mode.STRICT, profile, DEFAULT_OPTIONS)
    for assignment in candidates(subject, variant, space, profile, count, seed):
        what = f"{case.name}, {variant}, seed {seed}: {assignment_to_json(assignment)}"
        parameters = choices_of(assignment).parameters
        found = interpret(subject.require_program(), parameters, case.inputs)
        assert_near(found, case, f"interpreter, {what}")
        yield what, generate_kernels(subject, assignment)


def candidates(
    subject: Subject, variant: str, space: Space, profile: DeviceProfile, count: int, seed: int
) -> Iterable[Mapping[Variable, int]]:
    """Samples of the solver; of blocked variants candidates as a search proposes them."""
    if variant not in CHAINS or subject.layer is None:
        return sample(space, count, seed, watch=Watch(SolveLimits(time_s=_SOLVE_S)))
    family = Family.SINGLE if variant in LONE_VARIANTS else Family.GROUPS
    proposals = BlockedProposals(
        subject.layer, variant, subject, space, profile, family, seed, smallest_group=1
    )
    found = proposals.propose(count)
    assert found, "nothing was proposed"
    return found


def judge_variant(case: Case, variant: str, device: MeasuringChild, seed: int = SEED) -> None:
    """The variant's program in the interpreter, and kernels of it on PoCL, give the same."""
    if refuses(case, variant):
        return
    device.upload_workload("conformance", case.inputs, case.expected.astype(np.float64))
    for what, plan in drawn(case, variant, device.profile(), MAPPINGS, seed):
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
    simulations: dict[str, oclgrind.Simulation] = {}
    for case in cases:
        if refuses(case, variant):
            continue
        expected = case.expected.astype(np.float64)
        for what, plan in drawn(case, variant, device.profile(), 1, seed):
            simulations[what] = oclgrind.Simulation(plan, case.inputs, expected, case.tolerance)
    reports = oclgrind.check_many(tuple(simulations.values()), timeout_s=_RUN_S)
    faults = [f"{w}\n{r}" for w, r in zip(simulations, reports, strict=True) if not r.ok]
    assert not faults, "\n".join(faults)
