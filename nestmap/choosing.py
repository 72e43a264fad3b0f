"""Which variant of a layer is meant where nobody names one.

``direct`` where it computes the layer: its space can be counted and enumerated. Elsewhere, of the
variants that compute the layer, one that is expected to be fast on the device: the fastest whose
mappings are found in seconds. What `tune` searches is decided elsewhere
(:func:`nestmap.tuning.starting_points.tuned_variants`).
"""

from __future__ import annotations

from mapper.device_profile import DeviceProfile
from mapper.layer_spec import LayerSpec
from mapper.variants import DEFAULT_VARIANT, LAST_RESORT, VARIANTS

#: Why a variant is the one that its user named.
NAMED = "as asked for"
#: Parts of names of variants that share channels out: to draw from their spaces takes a minute.
_SLOW_TO_SOLVE = ("slices", "split")
#: What may be so much slower than the fastest is asked about instead of these.
_NEAR = 1.3
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
    """Chooses for layers on a device; ``reason`` says why it chose the last one as it did."""

    def __init__(self, device: DeviceProfile) -> None:
        self._device = device
        self.reason = ""

    def __call__(self, layer: LayerSpec) -> str:
        """The variant of a layer."""
        problem = VARIANTS[DEFAULT_VARIANT].applies(layer)
        if problem is None:
            self.reason = "does this layer; others by name"
            return DEFAULT_VARIANT
        # Loads what searches begin with.
        from nestmap.tuning.starting_points import promises_on

        promises = promises_on(facts_of_profile(self._device), layer)
        why = f"{DEFAULT_VARIANT} does not do {problem.path} {problem.found}"
        if not promises:
            self.reason = f"{why}, and none that is expected to be fast does"
            return LAST_RESORT
        least = min(promises.values())
        near = [name for name, promise in promises.items() if promise <= _NEAR * least]
        soon = [name for name in near if not any(part in name for part in _SLOW_TO_SOLVE)]
        self.reason = f"{why}; expected to be the fastest of those that do on {self._device.name}"
        if soon and soon[0] != near[0]:
            self.reason += f", but for {near[0]}, whose mappings take long to find"
        return (soon or near)[0]
