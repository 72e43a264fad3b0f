"""Which variant of a layer is meant where nobody names one, and what limits say of a device.

``direct`` where it computes the layer: its space can be counted and enumerated; elsewhere the
program as it is written. What `tune` searches is decided elsewhere
(:func:`nestmap.tuning.tuned_subjects.tuned_subjects`).
"""

from __future__ import annotations

from mapper.device_profile import DeviceProfile
from mapper.layer_spec import LayerSpec
from mapper.variants import DEFAULT_VARIANT, LAST_RESORT, VARIANTS

#: Why a variant is the one that its user named.
NAMED = "as asked for"
#: No GPU lets a work-item have so many bytes of registers.
_MOST_PRIVATE_OF_GPUS = 4096
#: What shipped profiles are called by their drivers.
_NAMES = {"h200": "NVIDIA H200", "mali-g72": "Mali-G72"}


def facts_of_profile(device: DeviceProfile) -> dict[str, str]:
    """What limits say of a device, as its facts would: its name and its kind."""
    if device.name == "null":
        return {"device.name": device.name, "device.kind": "null"}
    stacked = device.kernel_private_bytes is not None
    processor = bool(device.target) or stacked or device.private_bytes > _MOST_PRIVATE_OF_GPUS
    facts = {
        "device.name": _NAMES.get(device.name, device.name),
        "device.kind": "cpu" if processor else "gpu",
    }
    if processor:
        facts |= {"device.target": device.target, "platform.version": "PoCL"}
    return facts


class DefaultVariant:
    """Chooses for layers; ``reason`` says why it chose the last one as it did."""

    def __init__(self) -> None:
        self.reason = ""

    def __call__(self, layer: LayerSpec) -> str:
        """The variant of a layer."""
        problem = VARIANTS[DEFAULT_VARIANT].applies(layer)
        if problem is None:
            self.reason = "does this layer; others by name"
            return DEFAULT_VARIANT
        why = f"{DEFAULT_VARIANT} does not do {problem.path} {problem.found}"
        self.reason = f"{why}; its sketches by name"
        return LAST_RESORT
