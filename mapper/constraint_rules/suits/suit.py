"""What a rule of suitability is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from mapper.ast_model.loop_nest import LoopKernel
from mapper.ast_model.nodes import MapId
from mapper.constraint_rules.predicate import TRUE, Predicate
from mapper.constraint_rules.rule import Constraint, Provenance
from mapper.device_profile import DeviceProfile

PREFIX = "suits-"


class DeviceKind(StrEnum):
    """What work-items run on: lanes of a GPU, or each on the vector unit of a processor's core."""

    GPU = "gpu"
    CPU = "cpu"


def kind_of(device: DeviceProfile) -> DeviceKind:
    """Whether a device is a processor."""
    return DeviceKind.CPU if device.is_processor else DeviceKind.GPU


@dataclass(frozen=True, slots=True)
class Finding:
    """One instance of a rule: what it is about, its predicate and the maps."""

    about: str
    predicate: Predicate
    subjects: tuple[MapId, ...] = ()
    buffer: str | None = None


Produce = Callable[[LoopKernel, DeviceProfile], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Suit:
    """A preference of some kinds of devices; ``sentence`` says it, ``title`` in a few words,
    ``source`` where it is from."""

    id: str
    title: str
    sentence: str
    remedy: str
    source: Provenance
    kinds: frozenset[DeviceKind]
    produce: Produce

    def constraints(self, kernel: LoopKernel, device: DeviceProfile) -> Iterator[Constraint]:
        """Its instances in one kernel; none where the device is of another kind."""
        if kind_of(device) not in self.kinds:
            return
        for finding in self.produce(kernel, device):
            if finding.predicate == TRUE:
                continue
            yield Constraint(
                id=f"{self.id}/{finding.about}",
                rule=self.id,
                subjects=finding.subjects,
                predicate=finding.predicate,
                provenance=self.source,
                buffer=finding.buffer,
                sentence=self.sentence,
                remedy=self.remedy,
            )


BOTH = frozenset(DeviceKind)
ON_GPU = frozenset({DeviceKind.GPU})
ON_CPU = frozenset({DeviceKind.CPU})
