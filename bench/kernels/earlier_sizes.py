"""Solutions of sketches that have the sizes of an earlier record: where a renewal begins.

A record of the convolution template says how large tiles, chunks and slices were; which map goes to
which work-group or work-item the solver decides in the sketch's space, as for any solution.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from heapq import nsmallest
from random import Random

from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.predicate import ParameterVariable, Variable
from mapper.constraint_rules.rule import Mode
from mapper.device_profile import DeviceProfile
from mapper.errors import LimitError
from mapper.layer_spec import LayerSpec
from mapper.pipeline import Subject, assignment_to_json, derive_space, subject_of_layer
from mapper.solver.factored.suited import SuitedSpace
from mapper.solver.limits import within_processor_seconds
from mapper.solver.space import Domain, Space
from mapper.tuning_records import TuningRecord
from nestmap.tuning.kernel_parts import kernel_parts
from nestmap.tuning.sketch_subjects import PossibleSketch, possible_subjects, with_suits

#: Solutions that are looked at of a sketch with these sizes, and those that are kept: the cheapest,
#: each of another way to read and copy.
_DRAWN = 1500
_KEPT = 9
_SOLVING_S = 20.0
#: What groups of work-items keep of a tile, by a word of a sketch's name.
_FAST = frozenset(("local", "packed", "registers", "sliced", "split"))


def starts_of(
    layer: LayerSpec, record: TuningRecord, device: DeviceProfile
) -> Iterator[TuningRecord]:
    """The cheapest solutions of each like sketch with a record's sizes, as records that say its
    time."""
    for sketch in possible_subjects(subject_of_layer(layer, "high-level"), device):
        if not isinstance(sketch, PossibleSketch) or not _is_like(sketch.variant, record.variant):
            continue
        subject = sketch.derive()
        if subject is None:
            continue
        for choices in _solutions(subject, sizes(record), device):
            yield replace(record, layer=layer, variant=sketch.variant, choices=choices)


def _is_like(sketch: str, variant: str) -> bool:
    words = {*sketch.split("-")}
    if variant.startswith(("blocked", "channelwise")):
        # Lone work-items: bands of tiles, and a copy of the image with its border, or neither.
        bands, bordered = "bands" in variant, "in-place" not in variant
        fits = ("blocks" in words) == bands and "packed" in words
        return fits and (variant == "channelwise" or ("bordered" in words) == bordered)
    same = ("slices" in variant) == ("sliced" in words)
    same &= ("split" in variant) == ("split" in words)
    return same and "blocks" in words and not words.isdisjoint(_FAST)


def is_of_the_template(record: TuningRecord) -> bool:
    """Whether a record has the sizes of the convolution template."""
    return "bm" in record.choices.get("parameters", {})


def sizes(record: TuningRecord) -> dict[str, int]:
    """A template record's sizes by the names that sketches have for them."""
    given: Mapping[str, int] = record.choices["parameters"]
    rows, columns = given["th"], given["tw"]
    own_rows, own_columns = given["tr"], given["tp"]
    return {
        **{
            f"{size}_{loop}": value
            for loop in ("filter", "group")
            for size, value in (
                ("tile", given["bm"]),
                ("own", given["tm"]),
                ("items", given["bm"] // given["tm"]),
                ("lanes", given["v"]),
            )
        },
        "tile_column": columns,
        "own_column": own_columns,
        "items_column": columns // own_columns,
        "tile_row": rows,
        "own_row": own_rows,
        "items_row": rows // own_rows,
        "tile_row_column": rows * columns,
        "own_row_column": own_rows * own_columns,
        "items_row_column": rows * columns // (own_rows * own_columns),
        "chunk_convolution": given["bc"],
        "chunk_convolution_parts": given["bc"],
        "slices_convolution": given.get("ks", 1),
        "part_convolution": record.layer.channels // given.get("sp", 1),
    }


def _solutions(
    subject: Subject, wanted: Mapping[str, int], device: DeviceProfile
) -> Iterator[dict[str, object]]:
    options = with_suits(subject, DEFAULT_OPTIONS)
    space = derive_space(subject, Mode.STRICT, device, options)
    pinned = _pinned(space, wanted)
    if pinned is None:
        return
    parts = kernel_parts(subject.require_program(), pinned)
    costs = [part.cost(device) for part in parts]
    try:
        solved = SuitedSpace(pinned, within_processor_seconds(_SOLVING_S))
    except LimitError:
        return
    if not solved.count_joint():
        return
    random = Random(0)
    # The cheapest of each way to read and copy: the cost says little of these.
    ways = [variable for variable, _ in pinned.variables if _is_way(variable)]
    found: dict[tuple[int, ...], tuple[float, Mapping[Variable, int]]] = {}
    for _ in range(_DRAWN):
        drawn = solved.draw_joint(random)
        if drawn is not None:
            cost_ms = sum(cost.ms(drawn) for cost in costs)
            way = tuple(drawn[name] for name in ways)
            if way not in found or cost_ms < found[way][0]:
                found[way] = cost_ms, drawn
    for _, drawn in nsmallest(_KEPT, found.values(), key=lambda entry: entry[0]):
        yield assignment_to_json(drawn)


def _is_way(variable: Variable) -> bool:
    return isinstance(variable, ParameterVariable) and variable.name.startswith(
        ("copy_image", "lanes_image")
    )


def _pinned(space: Space, wanted: Mapping[str, int]) -> Space | None:
    """The space with these sizes; None where one of them is not among a sketch's."""
    variables: list[tuple[Variable, Domain]] = []
    for variable, domain in space.variables:
        if isinstance(variable, ParameterVariable) and variable.name in wanted:
            value = wanted[variable.name]
            if value not in domain:
                return None
            domain = (value,)
        variables.append((variable, domain))
    return replace(space, variables=tuple(variables))
