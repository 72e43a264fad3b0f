"""Random strict assignments of a layer must all generate, fit the device and synchronise.

For each layer, program and device profile: derive the space, draw assignments, generate
kernels and host plan, and verify what came out (see :mod:`bench.proofs.joint.verification`). No
device is needed. CC'22 ("Mapping Parallelism in a Functional IR through Constraint
Satisfaction", section 5.3) lost 95 % of what its solver returned here.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.proofs.joint.verification import Seen, faults, seen
from mapper.ast_model.elaborate import elaborate
from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.predicate import Variable
from mapper.constraint_rules.rule import Mode
from mapper.device_profile import DeviceProfile
from mapper.errors import NestmapError
from mapper.kernel_gen.generate import generate_from
from mapper.layer_spec import LayerSpec
from mapper.pipeline import (
    Subject,
    assignment_to_json,
    choices_of,
    derive_space,
    subject_of_layer,
)
from mapper.profiles import load_profile
from mapper.solver.sampling import sample
from mapper.solver.space import Space, check
from nestmap.seeds import derived_seed

CAMPAIGN_VARIANTS = ("partial", "direct")
CAMPAIGN_DEVICES = ("mali-g72", "h200", "pocl")
#: Failures that a cell writes down in full; the others are counted.
MAX_FAILURES_KEPT = 20
_PROGRESS_EVERY = 10

#: ``draw(space, count, seed)``: up to ``count`` distinct assignments, reproducible.
Draw = Callable[[Space, int, int], Iterable[Mapping[Variable, int]]]


@dataclass(frozen=True, slots=True)
class Cell:
    """A number of samples of one layer in one program for one device profile."""

    layer: LayerSpec
    variant: str
    device: str
    count: int
    seed: int

    @property
    def key(self) -> str:
        """Names the cell in the file of results."""
        return f"{self.layer.name}/{self.variant}/{self.device}/{self.count}/seed{self.seed}"


@dataclass(slots=True)
class CellResult:
    """What became of a cell.

    ``passed`` samples went through code generation, memory plan and barrier placement;
    ``failures`` hold all that reproduces them, at most MAX_FAILURES_KEPT, ``failed`` counts
    them. ``largest`` are the largest bytes and work-groups met, ``with_barriers`` and
    ``with_local`` count samples that have barriers and local memory. Seconds are of the
    processor, so that other work on the machine does not count.
    """

    key: str
    layer: str
    variant: str
    device: str
    seed: int
    wanted: int
    drawn: int = 0
    distinct: int = 0
    passed: int = 0
    failed: int = 0
    failures: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    with_barriers: int = 0
    with_local: int = 0
    barriers: int = 0
    largest: dict[str, int] = field(default_factory=dict[str, int])
    drawing_s: float = 0.0
    generating_s: float = 0.0
    verifying_s: float = 0.0
    commit: str = ""

    def to_json(self) -> dict[str, Any]:
        """A plain JSON value; ``CellResult(**value)`` reads it back."""
        return asdict(self)

    def fail(self, kind: str, message: str, candidate: dict[str, Any] | None) -> None:
        """Count a failure, and keep it with what reproduces it if not too many are kept."""
        self.failed += 1
        if len(self.failures) < MAX_FAILURES_KEPT:
            self.failures.append({"kind": kind, "message": message, "candidate": candidate})


def cells_of(
    layers: tuple[LayerSpec, ...],
    variants: tuple[str, ...],
    devices: tuple[str, ...],
    *,
    samples: int,
    seed: int,
) -> Iterator[Cell]:
    """Every cell: ``samples`` of each variant on each device, spread over the layers."""
    share, more = divmod(samples, len(layers))
    for variant in variants:
        for device in devices:
            for position, layer in enumerate(layers):
                count = share + (position < more)
                if count:
                    yield Cell(layer, variant, device, count, seed)


def run_cell(
    cell: Cell,
    *,
    progress: Callable[[int], None] = lambda count: None,
    draw: Draw = sample,
) -> CellResult:
    """Draw, generate and verify all samples of a cell; whatever goes wrong is in the result."""
    result = CellResult(cell.key, cell.layer.name, cell.variant, cell.device, cell.seed, cell.count)
    device = load_profile(cell.device)
    subject = subject_of_layer(cell.layer, cell.variant)
    space = derive_space(subject, Mode.STRICT, device, DEFAULT_OPTIONS)
    known: set[tuple[int | None, ...]] = set()
    for assignment in _drawn(cell, space, draw, result):
        result.drawn += 1
        known.add(tuple(assignment.get(variable) for variable, _ in space.variables))
        # Faults of every kind are what this looks for; one must not hide the others.
        try:
            found = _try(subject, space, assignment, device, result)
        except NestmapError as error:
            found = [("refused", str(error))]
        except Exception:
            found = [("crash", traceback.format_exc(limit=-6))]
        for kind, message in found:
            result.fail(kind, message, assignment_to_json(assignment))
        result.passed += not found
        if result.drawn % _PROGRESS_EVERY == 0:
            progress(result.drawn)
    result.distinct = len(known)
    if result.distinct < result.drawn:
        result.fail("repeats", f"{result.drawn - result.distinct} samples were drawn twice", None)
    return result


def _drawn(
    cell: Cell, space: Space, draw: Draw, result: CellResult
) -> Iterator[Mapping[Variable, int]]:
    """The samples; that drawing fails is a failure of the cell."""
    seed = derived_seed(cell.seed, cell.layer.name, cell.variant, cell.device)
    samples = iter(draw(space, cell.count, seed))
    while True:
        started = time.process_time()
        try:
            assignment = next(samples, None)
        except (NestmapError, AssertionError) as error:
            # The sampler checks its own answers by assertion.
            result.fail("sampler", f"drawing with seed {seed}: {error}", None)
            return
        finally:
            result.drawing_s += time.process_time() - started
        if assignment is None:
            return
        yield assignment


def _try(
    subject: Subject,
    space: Space,
    assignment: Mapping[Variable, int],
    device: DeviceProfile,
    result: CellResult,
) -> list[tuple[str, str]]:
    """Generate and verify one sample: what is wrong with it, by kind."""
    choices = choices_of(assignment)
    program = subject.require_program()
    started = time.process_time()
    loops = elaborate(program, dict(choices.parameters))
    plan = generate_from(loops, program, choices)
    generated = time.process_time()
    found = [("plan", text) for text in faults(plan, loops, choices, device)]
    found += [("broken rule", v.sentence) for v in check(space, assignment)]
    _note(seen(plan), result)
    result.generating_s += generated - started
    result.verifying_s += time.process_time() - generated
    return found


def _note(found: Seen, result: CellResult) -> None:
    result.with_barriers += found.barriers > 0
    result.with_local += found.local_bytes > 0
    result.barriers += found.barriers
    for name in ("local_bytes", "private_bytes", "work_items", "global_bytes"):
        result.largest[name] = max(result.largest.get(name, 0), getattr(found, name))
