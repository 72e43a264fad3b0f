"""Spaces of layers in a variant, as the tuner derives them."""

from __future__ import annotations

from dataclasses import dataclass

from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.rule import Mode
from mapper.device_profile import DeviceProfile
from mapper.layer_spec import LayerSpec
from mapper.pipeline import Subject, derive_space, subject_of_layer
from mapper.solver.space import Space


@dataclass(frozen=True, slots=True)
class Derived:
    """A layer in a variant with its space on a device."""

    layer: LayerSpec
    variant: str
    subject: Subject
    space: Space
    profile: DeviceProfile


def derived(layer: LayerSpec, variant: str, profile: DeviceProfile) -> Derived:
    """The space of a layer in a variant; InputError as the product raises it."""
    subject = subject_of_layer(layer, variant)
    space = derive_space(subject, Mode.STRICT, profile, DEFAULT_OPTIONS)
    return Derived(layer, variant, subject, space, profile)
