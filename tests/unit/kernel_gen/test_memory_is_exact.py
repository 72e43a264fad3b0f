"""The bytes that the model bounds are the bytes that the generator allocates."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from bench.proofs.joint.printed_kernels import read_kernels
from mapper.constraint_rules.evaluation import evaluate_term
from mapper.constraint_rules.predicate import Compare, LocalSizeVariable, Variable
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.layer_sets import named_layer
from mapper.layer_spec import LayerSpec
from mapper.pipeline import assignment_from_json, derive_space, generate_kernels, subject_of_layer
from mapper.profiles import load_profile
from mapper.rewrites.families import Family
from mapper.solver.sampling import sample
from mapper.solver.space import Space
from nestmap.tuning.proposals.blocked_proposals import BlockedProposals
from tests.conftest import GOLDEN_FOLDER
from tests.effort import cases


def modelled(space: Space, prefix: str, chosen: Mapping[Variable, int]) -> list[int]:
    """Left sides of the device limits whose id starts so; a limit that cannot fail has none."""
    found: list[int] = []
    for constraint in space.constraints:
        predicate = constraint.predicate
        # A limit on a constant is decided as it is derived, and names no bytes.
        if constraint.id.startswith(f"device-limits/{prefix}") and isinstance(predicate, Compare):
            found.append(evaluate_term(predicate.left, chosen))
    return found


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


@pytest.mark.parametrize("variant", ["tiled", "tiled-slices"])
def test_what_is_loaded_ahead_counts_as_private_memory(variant: str) -> None:
    layer = named_layer("vgg16/12").scaled(spatial=12, channels=16, filters=16)
    subject = subject_of_layer(layer, variant)
    device = load_profile("pocl")
    space = derive_space(subject, Mode.STRICT, device, RuleOptions())
    proposals = BlockedProposals(
        layer, variant, subject, space, device, Family.GROUPS, 2, smallest_group=2
    )
    ahead = 0
    for chosen in proposals.propose(cases(6, 12)):
        plan = generate_kernels(subject, chosen)
        for launch, kernel in zip(plan.launches, subject.nests, strict=True):
            private = modelled(space, f"private-bytes/{kernel.name}/", chosen)
            if not private:
                continue
            if "_next" not in plan.source:
                assert max(private) == launch.private_bytes
                continue
            # The model allows a work-item a few more than an equal share of a copy.
            assert max(private) - 64 <= launch.private_bytes <= max(private)
            other = {v: 0 if str(v) == "pf" else n for v, n in chosen.items()}
            assert max(modelled(space, f"private-bytes/{kernel.name}/", other)) < max(private)
            ahead += 1
    assert ahead


def test_no_work_item_loads_more_ahead_than_the_limits_reckon_with() -> None:
    case = json.loads((GOLDEN_FOLDER / "kernels" / "mappings.json").read_text())["tiled_prefetch"]
    subject = subject_of_layer(LayerSpec.from_json(case["layer"]), case["variant"])
    space = derive_space(subject, Mode.STRICT, load_profile("pocl"), RuleOptions())
    plain = assignment_from_json(space, case["choices"])
    items = case["choices"]["local_sizes"]["convolution"][0]
    assert items % 4 == 0
    ahead: list[bool] = []
    for sizes in ((items, 1, 1), (items // 4, 4, 1)):
        # In groups of two dimensions a copy is shared out over one of them.
        chosen = plain | {LocalSizeVariable("convolution", d): n for d, n in enumerate(sizes)}
        plan = generate_kernels(subject, chosen)
        modelled_bytes = max(modelled(space, "private-bytes/convolution/", chosen))
        assert plan.launches[-1].private_bytes <= modelled_bytes
        ahead.append("_next" in plan.source)
    assert ahead == [True, False]
