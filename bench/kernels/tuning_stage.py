"""The stage before a comparison: search for each layer, and put what is found into records."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mapper.ast_model.bounded_json import kind_of, loads_bounded
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, Problem
from mapper.layer_sets import layer_of_name, layer_set_names, load_layer_set
from mapper.layer_spec import LAYER_SCHEMA, LayerSpec
from mapper.tuning_records import TuningRecord, best_record, records_of
from nestmap.subjects import read_bounded
from nestmap.tuning.journal import Journal
from nestmap.tuning.layer_search import Budget, Progress, Wish, quest, search
from nestmap.tuning.measuring.pool import Deadlines, Pool
from nestmap.tuning.record_files import (
    device_folder,
    read_records,
    replace_records,
    write_records,
)
from nestmap.tuning.settling import finalists, in_the_same_turns

#: Seconds between two lines about a search.
_SAY_EVERY_S = 10.0
_MAX_BYTES = 2**16
_MAX_DEPTH = 8
NO_WISH = Wish()
DEFAULT_DEADLINES = Deadlines()


@dataclass(frozen=True, slots=True)
class Tuning:
    """How to search: of each layer in each variant with ``budget``."""

    variants: tuple[str, ...]
    budget: Budget
    workers: int
    journal: Path
    seed: int = 0
    wish: Wish = NO_WISH
    deadlines: Deadlines = DEFAULT_DEADLINES


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


def default_workers(kind: str) -> int:
    """Processes that build: one core is left to whoever is timed; on a CPU device the cores
    are what is timed, so there is only one."""
    return 1 if kind == "cpu" else max(1, (os.cpu_count() or 2) - 1)


def tune_layers(
    layers: Sequence[LayerSpec],
    device: str,
    how: Tuning,
    folder: Path,
    say: Callable[[str], None],
) -> None:
    """Search for every layer in turn; after each its records are in ``folder``. The best of its
    variants and its records so far are then timed again in the same turns.

    What a variant cannot compute is said and left out; InputError if nothing is left.
    Ctrl-C ends the search of one layer with its best in the records, or leaves out the timing
    again; a second one in the same search ends all.
    """
    with Pool(device, how.workers, how.deadlines) as pool:
        state = pool.device()
        assert state.profile is not None
        name = device_folder(state.facts)
        refused: list[Problem] = []
        searched = False
        with Journal(how.journal, state.facts) as journal:
            for layer in layers:
                results: list[TuningRecord] = []
                for variant in how.variants:
                    try:
                        wanted = quest(layer, variant, state.profile, how.wish)
                    except InputError as error:
                        refused += error.problems
                        say(f"{layer.name} {variant}: left out: {error.problems[0]}")
                        continue
                    searched = True
                    known = read_records(folder, name)
                    listener = _Talker(say)
                    found = search(
                        wanted,
                        pool,
                        journal,
                        how.budget,
                        known=known,
                        seed=how.seed,
                        listener=listener,
                    )
                    listener.last()
                    write_records(folder, name, found)
                    _say_best(layer, variant, found, say)
                    results += found
                _settle(layer, results, folder, name, pool, state.profile, say)
                pool.forget()
        if not searched:
            raise InputError(dict.fromkeys(refused))


def _settle(
    layer: LayerSpec,
    results: Sequence[TuningRecord],
    folder: Path,
    device: str,
    pool: Pool,
    profile: DeviceProfile,
    say: Callable[[str], None],
) -> None:
    """Records of one variant are of the same turns already; those of several are not. Ctrl-C
    leaves them as the searches left them."""
    of_layer = records_of(read_records(folder, device), layer)
    chosen = finalists(results, [r for r in of_layer if r.target == profile.target])
    variants = dict.fromkeys(record.variant for record in chosen)
    if not results or len(variants) < 2:
        return
    say(f"{layer.name}: {len(chosen)} kernels of {', '.join(variants)} again, in turns")
    try:
        settled = in_the_same_turns(layer, chosen, pool, profile)
    except KeyboardInterrupt:
        pool.drain()
        say(f"{layer.name}: stopped; times of its variants are of different minutes")
        return
    if len(settled) < len(chosen):
        say(f"{layer.name}: {len(chosen) - len(settled)} of them failed or are not valid any more")
    if settled:
        replace_records(folder, device, layer, settled)
        _say_best(layer, "all variants", settled, say)


def _say_best(
    layer: LayerSpec, variant: str, found: Sequence[TuningRecord], say: Callable[[str], None]
) -> None:
    best, lean = best_record(found, layer), best_record(found, layer, 0)
    if best is None:
        say(f"{layer.name} {variant}: nothing was timed")
        return
    text = f"{layer.name} {variant}: {best.tflops:.3g} TFLOP/s, {best.extra_bytes} extra bytes"
    if lean is not None and lean is not best:
        text += f"; {lean.tflops:.3g} TFLOP/s without extra memory"
    say(text)


class _Talker:
    """Says how a search goes, now and then."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said = time.monotonic()
        self._progress: Progress | None = None

    def __call__(self, progress: Progress) -> None:
        self._progress = progress
        if time.monotonic() - self._said >= _SAY_EVERY_S:
            self._said = time.monotonic()
            self._say(progress.text())

    def last(self) -> None:
        """The last state."""
        if self._progress is not None:
            self._say(self._progress.text())
