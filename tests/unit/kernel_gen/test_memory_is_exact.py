"""The bytes that the model bounds are the bytes that the generator allocates."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from random import Random

import pytest

from bench.proofs.joint.printed_kernels import read_kernels
from mapper.constraint_rules.evaluation import evaluate_term
from mapper.constraint_rules.predicate import (
    Compare,
    LocalSizeVariable,
    ParameterVariable,
    Variable,
)
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.host_plan import HostPlan
from mapper.layer_sets import named_layer
from mapper.layer_spec import LayerSpec
from mapper.pipeline import assignment_from_json, derive_space, generate_kernels, subject_of_layer
from mapper.profiles import load_profile
from mapper.solver.factored.suited import SuitedSpace
from mapper.solver.sampling import sample
from mapper.solver.space import Space
from mapper.tuning_space.where import with_where
from nestmap.tuning.sketch_subjects import layer_in, with_suits
from tests.conftest import GOLDEN_FOLDER
from tests.effort import cases

#: How many copies of a chunk are on their way, by its name in sketches of layers.
AHEAD = "prefetch_convolution"
PRIVATE = "private-bytes/convolution/"


def modelled(space: Space, prefix: str, chosen: Mapping[Variable, int]) -> list[int]:
    """Left sides of the device limits whose id starts so; a limit that cannot fail has none."""
    found: list[int] = []
    for constraint in space.constraints:
        predicate = constraint.predicate
        # A limit on a constant is decided as it is derived, and names no bytes.
        if constraint.id.startswith(f"device-limits/{prefix}") and isinstance(predicate, Compare):
            found.append(evaluate_term(predicate.left, chosen))
    return found


def loaded_ahead(plan: HostPlan) -> set[str]:
    """Of what the last kernel loads an iteration early."""
    return set(re.findall(r"\bp_next_([a-z]+)", plan.source))


def drawn(space: Space, where: str) -> Iterator[dict[Variable, int]]:
    """A few solutions that agree with this."""
    suited, random = SuitedSpace(with_where(space, [where])), Random(2)
    for _ in range(cases(4, 8)):
        chosen = suited.draw_joint(random)
        assert chosen is not None
        yield dict(chosen)


@pytest.mark.parametrize("variant", ["direct", "partial"])
def test_modelled_bytes_are_planned_bytes(variant: str) -> None:
    layer = named_layer("vgg16/12").scaled(spatial=12, channels=16, filters=16)
    subject = subject_of_layer(layer, variant)
    device = load_profile("pocl")
    space = derive_space(subject, Mode.STRICT, device, RuleOptions())
    for chosen in sample(space, cases(3, 6), seed=2):
        plan = generate_kernels(subject, chosen)
        printed = {kernel.name: kernel for kernel in read_kernels(plan.source)}
        # The direct program's buffers have the layer's sizes alone: a constant, no limit left.
        expected = [plan.memory_bytes] if variant == "partial" else []
        assert modelled(space, "global-bytes", chosen) == expected
        for launch, kernel in zip(plan.launches, subject.nests, strict=True):
            local = modelled(space, f"local-bytes/{kernel.name}", chosen)
            assert local == ([launch.local_bytes] if local else [])
            assert local or launch.local_bytes == 0
            private = modelled(space, f"private-bytes/{kernel.name}/", chosen)
            assert not private or max(private) == launch.private_bytes
            (stacked,) = modelled(space, f"stacked-bytes/{kernel.name}", chosen) or [24_576]
            assert printed[launch.kernel].stacked_bytes <= stacked <= 24_576
            size = launch.local_size[0] * launch.local_size[1] * launch.local_size[2]
            assert size <= device.max_work_group_size


@pytest.mark.parametrize("sketch", ["blocks-local-filter", "blocks-sliced-packed-filter"])
def test_what_is_loaded_ahead_counts_as_private_memory(sketch: str) -> None:
    layer = named_layer("vgg16/12").scaled(spatial=12, channels=16, filters=16)
    device = load_profile("h200")
    subject = layer_in(layer, sketch, device)
    space = derive_space(subject, Mode.STRICT, device, with_suits(subject, RuleOptions()))
    for chosen in drawn(space, f"{AHEAD} == 0"):
        plan = generate_kernels(subject, chosen)
        assert loaded_ahead(plan) == set()
        assert max(modelled(space, PRIVATE, chosen)) == plan.launches[-1].private_bytes
    ahead = 0
    # Of one chunk there is none ahead.
    for chosen in drawn(space, f"{AHEAD} > 0 and chunk_convolution < 16"):
        plan = generate_kernels(subject, chosen)
        private, planned = modelled(space, PRIVATE, chosen), plan.launches[-1].private_bytes
        assert planned <= max(private)
        if loaded_ahead(plan) < {"image", "weights"}:
            continue
        # The model allows a work-item a few more than an equal share of a copy.
        assert max(private) - 64 <= planned
        without = modelled(space, PRIVATE, chosen | {ParameterVariable(AHEAD): 0})
        assert sum(without) < sum(private)
        # What comes later may need as much as what is there at once.
        ahead += max(without) < max(private)
    assert ahead


def test_no_work_item_loads_more_ahead_than_the_limits_reckon_with() -> None:
    cases_by_name = json.loads((GOLDEN_FOLDER / "kernels" / "mappings.json").read_text())
    case, device = cases_by_name["blocks_local_prefetch"], load_profile("h200")
    subject = layer_in(LayerSpec.from_json(case["layer"]), case["variant"], device)
    space = derive_space(subject, Mode.STRICT, device, RuleOptions())
    plain = assignment_from_json(space, case["choices"])
    items = case["choices"]["local_sizes"]["convolution"][0]
    assert items % 12 == 0
    ahead: list[set[str]] = []
    for deep in (1, 4, 6):
        # In groups of two dimensions a copy is shared out over one of them.
        sizes = (items // deep, deep, 1)
        chosen = plain | {LocalSizeVariable("convolution", d): n for d, n in enumerate(sizes)}
        plan = generate_kernels(subject, chosen)
        modelled_bytes = max(modelled(space, PRIVATE, chosen))
        assert plan.launches[-1].private_bytes <= modelled_bytes
        ahead.append(loaded_ahead(plan))
    assert ahead == [{"image", "weights"}, {"weights"}, set()]
