"""The stage before a comparison: tune each layer, and put what is found into records."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from db.store import Store
from mapper.ast_model.bounded_json import kind_of, loads_bounded
from mapper.errors import InputError, Problem
from mapper.layer_sets import layer_of_name, layer_set_names, load_layer_set
from mapper.layer_spec import LAYER_SCHEMA, LayerSpec
from mapper.pipeline import subject_of_layer
from mapper.tuning_records import TuningRecord, best_record, records_of, tflops
from mapper.variants import LAST_RESORT
from nestmap.subjects import read_bounded
from nestmap.tuning.display import state_text
from nestmap.tuning.events import CandidateMeasured, Event
from nestmap.tuning.finalists import FINALISTS
from nestmap.tuning.record_files import device_folder, read_records, write_records
from nestmap.tuning.run import Budget, TuningResult, tune
from nestmap.tuning.sketch_subjects import Tuned, layer_in, possible_subjects
from nestmap.tuning.store_records import of_folder, stored_records
from nestmap.tuning.tuned_subjects import tuned_subjects
from worker.devices.interface import MeasuringDevice

#: Seconds between two lines about a search.
_SAY_EVERY_S = 10.0
_MAX_BYTES = 2**16
_MAX_DEPTH = 8


@dataclass(frozen=True, slots=True)
class Tuning:
    """How to tune: each layer in these variants, in those of the device where there are none (under
    its sketches alone, if that is said), with ``budget``. ``store`` is a file: what it holds is not
    measured again. ``starts`` are records to begin with beside those that are known."""

    variants: tuple[str, ...]
    budget: Budget
    store: Path
    seed: int = 0
    sketches: bool = False
    starts: tuple[TuningRecord, ...] = ()


def chosen_layers(names: Sequence[str]) -> tuple[LayerSpec, ...]:
    """Layers by the names of sets (``vgg16``) and of layers (``boda/3``) and from files with a
    layer (``my.json``), each once. InputError."""
    found: dict[LayerSpec, None] = {}
    for name in names:
        if name in layer_set_names():
            found.update((listed.layer, None) for listed in load_layer_set(name).layers)
        elif name.endswith(".json"):
            found[_layer_of_file(name)] = None
        else:
            found[layer_of_name(name)] = None
    if not found:
        raise InputError(Problem("--layers", "there is nothing to measure"))
    return tuple(found)


def bordered(layer: LayerSpec) -> LayerSpec:
    """The layer with its padding in the image: what it computes where whoever writes the image
    leaves room for the border. One without padding stays what it is."""
    if not (layer.pad_top or layer.pad_left or layer.pad_bottom or layer.pad_right):
        return layer
    return replace(
        layer,
        height=layer.height + layer.pad_top + layer.pad_bottom,
        width=layer.width + layer.pad_left + layer.pad_right,
        pad_top=0,
        pad_left=0,
        pad_bottom=0,
        pad_right=0,
        name=f"{layer.name} bordered",
    )


def _layer_of_file(name: str) -> LayerSpec:
    value = loads_bounded(read_bounded(name), max_bytes=_MAX_BYTES, max_depth=_MAX_DEPTH)
    if not isinstance(value, dict):
        raise InputError(Problem(name, "holds no layer", kind_of(value), LAYER_SCHEMA))
    return LayerSpec.from_json({"name": Path(name).stem, **value})


def tune_layers(
    layers: Sequence[LayerSpec],
    device: MeasuringDevice,
    how: Tuning,
    folder: Path,
    say: Callable[[str], None],
) -> None:
    """Tune every layer in turn as ``nestmap tune`` does; after each its records are in ``folder``.

    What a variant cannot compute is said and left out; InputError if nothing is left. Ctrl-C ends
    the search of one layer with its best in the records.
    """
    name = device_folder(device.facts())
    refused: list[Problem] = []
    tuned = False
    with Store.open(how.store) as store:
        for layer in layers:
            known = tuple(records_of((*how.starts, *read_records(folder, name)), layer))
            subjects = _subjects(layer, how, device, known, refused, say)
            if not subjects:
                continue
            tuned = True
            result = tune(
                subjects,
                device,
                store,
                seed=how.seed,
                budget=how.budget,
                listener=_Talker(layer, say),
                finalists=FINALISTS,
                records=known,
            )
            found = _records(store, layer, name, result)
            write_records(folder, name, found)
            _say_best(layer, found, result, say)
    if not tuned:
        raise InputError(dict.fromkeys(refused))


def _subjects(
    layer: LayerSpec,
    how: Tuning,
    device: MeasuringDevice,
    known: Sequence[TuningRecord],
    refused: list[Problem],
    say: Callable[[str], None],
) -> list[Tuned]:
    first = subject_of_layer(layer, LAST_RESORT)
    if how.sketches:
        return list(possible_subjects(first, device.profile()))
    if not how.variants:
        return list(tuned_subjects(first, None, device.facts(), device.profile(), known))
    found: list[Tuned] = []
    for variant in how.variants:
        try:
            found.append(layer_in(layer, variant, device.profile()))
        except InputError as error:
            refused += error.problems
            say(f"{layer.name} {variant}: left out: {error.problems[0]}")
    return found


def _records(
    store: Store, layer: LayerSpec, folder: str, result: TuningResult
) -> list[TuningRecord]:
    """What the store holds of the layer; finalists with the times of their turns together."""
    finals = {final.entry.candidate: final for final in result.finals}
    found: list[TuningRecord] = []
    for stored in stored_records(store, layer, of_folder(folder), finals):
        record, final = stored.record, finals.get(stored.candidate)
        if final is not None:
            record = replace(
                record,
                time_ms=final.time_ms,
                trials=final.trials,
                tflops=round(tflops(layer, final.time_ms), 4),
            )
        found.append(record)
    return found


def _say_best(
    layer: LayerSpec,
    found: Sequence[TuningRecord],
    result: TuningResult,
    say: Callable[[str], None],
) -> None:
    text = f"{layer.name}: {state_text(result.state)}"
    best, lean = best_record(found, layer), best_record(found, layer, 0)
    if best is None:
        say(f"{text}; nothing was timed")
        return
    text += f"; {best.variant}: {best.tflops:.3g} TFLOP/s, {best.extra_bytes} extra bytes"
    if lean is not None and lean is not best:
        text += f"; {lean.tflops:.3g} TFLOP/s without extra memory"
    say(text)


class _Talker:
    """Says how a search goes, now and then."""

    def __init__(self, layer: LayerSpec, say: Callable[[str], None]) -> None:
        self._name = layer.name
        self._say = say
        self._said = time.monotonic()

    def __call__(self, event: Event) -> None:
        if isinstance(event, CandidateMeasured) and time.monotonic() - self._said >= _SAY_EVERY_S:
            self._said = time.monotonic()
            self._say(f"{self._name}: {state_text(event.state)}")
