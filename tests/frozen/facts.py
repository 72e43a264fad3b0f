"""What is frozen: a name for each fact, and what computes it.

Later steps keep these or change them on purpose. Not here, because other tests freeze them:
the text of kernels of each kind (``tests/golden/kernels``), ``docs/openapi.json``
(``tests/unit/api/test_openapi.py``), the counts of the CC'22 tree in paper mode
(``tests/unit/constraint_rules/test_known_answers.py``) and of the published tuning spaces
(``tests/unit/tuning_space/test_published_spaces.py``).

Facts begin with what they are about:

- ``constraints/…``: of a variant of a layer on a device, of each rule how many constraints there
  are, and a hash of how they read;
- ``mappings/…`` and ``assignments/…``: how many there are, exactly;
- ``record/…``: of a shipped record ``check``'s verdict, and hashes of the constraints that it is
  held to and of its kernels;
- ``replay/…``: the rows that a search evaluates of a recording, in order;
- ``tuner/…``: the candidates that a run of ``nestmap tune`` would try, in order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any
from zlib import crc32

from bench.searches.contestants import OWN_SEARCHES, WITH_TRANSFER
from bench.searches.recording import Recording, read_recording
from bench.searches.replay import Arena, replay
from mapper.ast_model.nest_codec import nest_from_json
from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.rule import Constraint, Mode
from mapper.host_plan import HostPlan
from mapper.layer_sets import load_layer_set
from mapper.layer_spec import Activation, LayerSpec, Layout
from mapper.measurement import Timed
from mapper.pipeline import (
    Subject,
    derive_space,
    generate_kernels,
    subject_of_layer,
    subject_of_nest,
)
from mapper.profiles import load_profile
from mapper.solver.counting import count_assignments, count_mappings
from mapper.solver.space import Space
from mapper.tuning_records import TuningRecord, record_devices, shipped_records
from mapper.variants import LAST_RESORT, VARIANTS
from nestmap.mappings import Verdict, judge, read_mapping
from nestmap.tuning.record_subjects import subject_of_record
from nestmap.tuning.sketch_subjects import (
    PossibleSketch,
    layer_in,
    possible_subjects,
    with_suits,
)
from nestmap.tuning.starting_points import source_of
from nestmap.tuning.tuned_subjects import tuned_subjects
from nestmap.tuning.tuner import Trial, Tuner

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = ROOT / "bench" / "recordings"
#: Of the records each so many-th is looked at wherever tests run, all by `make frozen`.
_EACH_OF_RECORDS = 40
_EVALUATIONS = 40
_CANDIDATES = 12
#: Of each layer on a device.
_SKETCHES = 3
_SOLVE_S = 600.0


@dataclass(frozen=True)
class Fact:
    """``find`` gives a JSON value, always the same; what is not ``quick`` `make frozen` finds."""

    name: str
    find: Callable[[], Any]
    quick: bool = True


def facts() -> dict[str, Fact]:
    """All of them by name, those of one kind together."""
    found = [*_constraints(), *_counts(), *_records(), *_replays(), *_tuners()]
    assert len({fact.name for fact in found}) == len(found), "two facts of one name"
    return {fact.name: fact for fact in found}


def text_hash(text: str) -> str:
    """Enough of SHA-256 to see a change."""
    return sha256(text.encode()).hexdigest()[:16]


def _hash_of_lines(lines: Iterable[str]) -> str:
    return text_hash("\n".join(lines))


def constraint_lines(constraints: Iterable[Constraint]) -> list[str]:
    """Each as it is printed, with all that is said about it."""
    return [
        f"{c.id} [{c.provenance}] {c.predicate} -- {c.sentence} ({c.remedy})" for c in constraints
    ]


_PLAIN = LayerSpec(
    16, 12, 14, 32, 3, 3, pad_top=1, pad_left=1, pad_bottom=1, pad_right=1, name="plain"
)
_LANES = replace(_PLAIN, channels=8, filters=8, height=9, width=10, bias=True)
#: Each variant is derived of those that it computes; sizes are small and not all even.
LAYERS = (
    _PLAIN,
    LayerSpec(6, 13, 11, 10, 5, 3, stride_y=2, stride_x=2, pad_top=2, pad_left=1, name="strided"),
    replace(_LANES, groups=8, activation=Activation.RELU, name="depthwise"),
    replace(_LANES, filters=12, groups=2, batch=2, dilation_y=2, layout=Layout.NCHW, name="planes"),
    LayerSpec(32, 6, 7, 32, 1, 1, layout=Layout.NCHW16C, name="in blocks"),
)


def space_of(layer: LayerSpec, variant: str, device: str, mode: Mode = Mode.STRICT) -> Space:
    """As the commands derive it."""
    profile = load_profile(device)
    return derive_space(layer_in(layer, variant, profile), mode, profile, DEFAULT_OPTIONS)


def _constraints() -> Iterator[Fact]:
    for variant, known in VARIANTS.items():
        done = [layer for layer in LAYERS if known.applies(layer) is None]
        for place, layer in enumerate(done):
            for mode, device in (
                (Mode.STRICT, "pocl"), (Mode.STRICT, "h200"), (Mode.PAPER, "pocl"),
            ):  # fmt: skip
                yield Fact(
                    f"constraints/{variant}/{layer.name}/{device}/{mode.value}",
                    partial(_constraints_of, layer, variant, device, mode),
                    quick=not place and device == "pocl" and mode is Mode.STRICT,
                )

    for layer in LAYERS:
        first = subject_of_layer(layer, LAST_RESORT)
        for device in ("pocl", "h200"):
            names = [subject.variant for subject in possible_subjects(first, load_profile(device))]
            for place, name in enumerate(names[:_SKETCHES]):
                yield Fact(
                    f"constraints/{name}/{layer.name}/{device}/strict",
                    partial(_constraints_of_sketch, layer, name, device),
                    quick=layer is LAYERS[0] and not place,
                )


def _constraints_of_sketch(layer: LayerSpec, name: str, device: str) -> dict[str, str] | None:
    """None where it does not apply, which is known once it is derived."""
    first = subject_of_layer(layer, LAST_RESORT)
    subject = PossibleSketch(first, name, load_profile(device)).derive()
    return None if subject is None else _by_rule(_suited_space(device, subject))


def _constraints_of(layer: LayerSpec, variant: str, device: str, mode: Mode) -> dict[str, str]:
    return _by_rule(space_of(layer, variant, device, mode))


def _by_rule(space: Space) -> dict[str, str]:
    found: dict[str, str] = {"variables": text_hash(repr(space.variables))}
    by_rule = sorted(space.constraints, key=lambda constraint: constraint.rule)
    for rule, group in groupby(by_rule, key=lambda constraint: constraint.rule):
        lines = constraint_lines(group)
        found[rule] = f"{len(lines)} {_hash_of_lines(lines)}"
    return found


def _counts() -> Iterator[Fact]:
    tree = ROOT / "examples" / "cc22_convolution_tree.json"
    yield Fact("mappings/cc22-tree/strict", partial(_count_of_tree, tree, joint=False))
    yield Fact("assignments/cc22-tree/strict", partial(_count_of_tree, tree, joint=True))
    listed = [*load_layer_set("vgg16").layers[::3], *load_layer_set("resnet50").layers[:3]]
    for place, layer in enumerate(entry.layer for entry in listed):
        for variant in ("direct", "partial", "high-level"):
            if VARIANTS[variant].applies(layer) is not None:
                continue
            # Strict counts of the first two take a second, of assignments of `direct` ten.
            what, quick = f"{variant}/{layer.name}", variant == "high-level" or not place
            for mode in (Mode.PAPER, Mode.STRICT):
                count = partial(_count_of_layer, layer, variant, mode)
                yield Fact(f"mappings/{what}/{mode.value}", count, quick)
            if variant != "direct" or not place:
                joint = partial(_count_of_layer, layer, variant, Mode.STRICT, joint=True)
                yield Fact(f"assignments/{what}/strict", joint, quick and variant != "direct")


def _count(space: Space, joint: bool) -> int:
    if joint:
        return count_assignments(space, time_limit_s=_SOLVE_S)
    found = count_mappings(space, time_limit_s=_SOLVE_S)
    assert found.complete, "not counted in time"
    return found.mappings


def _count_of_tree(path: Path, joint: bool) -> int:
    subject = subject_of_nest(nest_from_json(json.loads(path.read_text("utf-8"))).nest)
    return _count(derive_space(subject, Mode.STRICT, load_profile("pocl"), DEFAULT_OPTIONS), joint)


def _count_of_layer(layer: LayerSpec, variant: str, mode: Mode, joint: bool = False) -> int:
    return _count(space_of(layer, variant, "pocl", mode), joint)


def _records() -> Iterator[Fact]:
    for device in record_devices():
        variants: set[str] = set()
        for name, record in named_records(device):
            quick = record.variant not in variants or not crc32(name.encode()) % _EACH_OF_RECORDS
            variants.add(record.variant)
            yield Fact(name, partial(_verdict_of, record, device), quick)


def named_records(device: str) -> Iterator[tuple[str, TuningRecord]]:
    """The shipped records of a device; of one layer there are several, and each has a number."""
    numbers: dict[str, int] = {}
    for record in shipped_records(device):
        layer = record.layer.name
        number = numbers[layer] = numbers.get(layer, -1) + 1
        yield f"record/{device}/{layer}/{number}/{record.variant}", record


def verdict_on(record: TuningRecord, space: Space) -> Verdict:
    """What ``nestmap check`` says."""
    given = read_mapping(space, json.dumps({"choices": dict(record.choices)}), Mode.STRICT)
    return judge(space, given.assignment, _SOLVE_S)


def recorded(record: TuningRecord, device: str) -> tuple[Subject, Space]:
    """What a record's choices are of, and their space."""
    profile = load_profile(device)
    subject = subject_of_record(record, profile)
    return subject, derive_space(subject, Mode.STRICT, profile, DEFAULT_OPTIONS)


def _verdict_of(record: TuningRecord, device: str) -> dict[str, Any]:
    subject, space = recorded(record, device)
    verdict = verdict_on(record, space)
    found: dict[str, Any] = {
        "verdict": "valid" if verdict.valid else sorted(v.constraint for v in verdict.violations),
        "constraints": _hash_of_lines(constraint_lines(space.constraints)),
    }
    if verdict.valid:
        plan = generate_kernels(subject, verdict.assignment)
        found["kernels"] = text_hash(plan.source)
    return found


_PLACES = (
    "hub_convolution_a100",
    "vgg16_7_quick_partial_pocl",
    "h200/vgg16_24_tiled-slices_h200",
    "h200/vgg16_7_partial_h200",
    "pocl/vgg16_24_blocked_pocl",
)


def _replays() -> Iterator[Fact]:
    """60 evaluations of each of these were the same with OpenBLAS's kernels for Skylake, Haswell
    and Nehalem, so that a processor decides nothing."""
    for place in _PLACES:
        for search in ("model-guided", "evolution", "random"):
            for seed in range(2):
                name = f"replay/{place}/{search}/{seed}"
                yield Fact(name, partial(_rows_of, place, search, seed), quick=not seed)
    taught = "h200/vgg16_24_tiled-slices_h200"
    for seed in range(2):
        name = f"replay/{taught}/{WITH_TRANSFER}/{seed}"
        yield Fact(name, partial(_rows_of, taught, WITH_TRANSFER, seed), quick=False)


@cache
def _recording(place: str) -> Recording:
    return read_recording(RECORDINGS / f"{place}.json.gz")


@cache
def _arena(place: str, taught: bool) -> Arena:
    teachers = sorted((RECORDINGS / "h200").glob("*.json.gz")) if taught else []
    return Arena.of(_recording(place), [read_recording(path) for path in teachers])


def _rows_of(place: str, search: str, seed: int) -> list[int]:
    arena = _arena(place, search == WITH_TRANSFER)
    return replay(arena, lambda at: OWN_SEARCHES[search](at, seed), _EVALUATIONS)


#: What runs are told of their devices; and the layers, which have no records.
_TUNED = {
    "pocl": {"device.kind": "cpu", "device.name": "a processor"},
    "h200": {"device.kind": "gpu", "device.name": "a GPU"},
}


def _tuners() -> Iterator[Fact]:
    for device in _TUNED:
        for layer in LAYERS[:3]:
            for seed in range(2 if layer is LAYERS[0] else 1):
                name = f"tuner/{device}/{layer.name}/{seed}"
                quick = not seed and layer is LAYERS[0]
                yield Fact(name, partial(_tuned, device, layer, seed), quick)


def _tuned(device: str, layer: LayerSpec, seed: int) -> list[str]:
    facts, profile = _TUNED[device], load_profile(device)
    first = subject_of_layer(layer, LAST_RESORT)
    sources = [
        source_of(subject, partial(_suited_space, device), profile, facts, index=index)
        for index, subject in enumerate(tuned_subjects(first, None, facts, profile))
    ]
    tuner = Tuner(sources, profile, seed)
    tried: list[str] = []
    while len(tried) < _CANDIDATES:
        asked = tuner.ask()
        if not asked:
            break
        for candidate in asked:
            tried.append(f"{candidate.variant} {text_hash(candidate.plan.source)}")
            tuner.tell([Trial(candidate, Timed((_invented_ns(candidate.plan),), 0.0, 0.0))])
    return tried


def _suited_space(device: str, subject: Subject) -> Space:
    options = with_suits(subject, DEFAULT_OPTIONS)
    return derive_space(subject, Mode.STRICT, load_profile(device), options)


def _invented_ns(plan: HostPlan) -> int:
    """A time that something can be learned of: work-groups of 64 and few private bytes are fast."""
    time_ms = 0.0
    for launch in plan.launches:
        x, y, z = launch.local_size
        time_ms += 1.0 + abs(x * y * z - 64) / 16 + launch.private_bytes / 100
    return int(time_ms * 1e6)
