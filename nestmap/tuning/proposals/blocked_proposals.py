"""Candidates of blocked variants: codes of a family, tuning parameters drawn and changed.

The space of a blocked convolution is wide in its parameters (tiles, chunks, vectors) and the
codes that suit a device are known. So parameters are drawn at random, codes and local sizes
follow from them, and every candidate is held against all constraints of the space before it
is proposed: what the solver would refuse is never built.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from math import prod
from random import Random

from mapper.ast_model.nest import NestMap, maps_below
from mapper.ast_model.nodes import MapId
from mapper.constraint_rules.predicate import (
    CodeVariable,
    LocalSizeVariable,
    ParameterVariable,
    Variable,
)
from mapper.cpu_targets import vector_registers
from mapper.device_profile import DeviceProfile
from mapper.layer_spec import LayerSpec
from mapper.pipeline import Subject
from mapper.rewrites.blocking import Blocking
from mapper.rewrites.catalogue import blocking_of
from mapper.rewrites.families import LINE, ROW, Family, codes_of
from mapper.schedule import PARALLEL_CODES, ScheduleCode
from mapper.solver.limits import Watch
from mapper.solver.space import Space, check
from nestmap.tuning.proposals.lone_cost import lone_cost
from nestmap.tuning.proposals.tile_cost import tile_cost

Assignment = Mapping[Variable, int]

#: Candidates drawn at random before the best are changed, and the share drawn after.
EXPLORED = 96
STILL_EXPLORED = 0.1
#: The best so many are changed.
ELITE = 12
_DRAWS = 4_000
#: Draws for each that is wanted, most of which are not worth a check.
_TRIES = 40
_MOST_LISTED = 50_000
#: What follows from the others where a work-item makes all of its group's tile.
_FOLLOWING = ("bm", "th", "tw", "mi", "v", "rho_x", "rho_y")
_PER_ITEM = (1, 2, 3, 4, 6, 7, 8, 14, 16)
#: Tiles of a group, and what a work-item has of them.
_TILES = {"th": "tr", "tw": "tp"}
#: Accumulators of a group's work-item that have a chance: more do not fit.
_MOST_ACCUMULATORS = 128
#: Of so many draws the one that is likely to be fastest is tried. The cost of what works alone is
#: known better than that of groups; bands of tiles are too many to be listed, and few are good.
_DRAWN_OF_WHICH_ONE = {Family.GROUPS: 8, Family.SINGLE: 96}
_BANDS_OF_WHICH_ONE = 768
#: Work-items of a group of the kernels that pack, pad and add up.
_COPIERS = 128
_GROUPS_OF_A_CORE = 4
#: Work-items of a group that are tried where each works alone: a group costs a processor what a
#: small tile does. With a row of tiles for each it costs next to nothing.
_LINES = (1, 4, 16)
_TILE_COLUMNS = "tile_x"
#: Work-items of a group that are tried where they work together.
SMALLEST_GROUP = 32
LARGEST_GROUP = 512


class BlockedProposals:
    """Random tiles with the codes of a family; then the best with a few parameters changed.

    ``known`` are candidates that are tried first (records), with ``recoded`` also under the codes
    that follow from their tuning parameters today; then ``hints``, tuning parameters of other
    layers, so far as they fit this one. Groups have ``smallest_group`` work-items or more.
    """

    def __init__(
        self,
        layer: LayerSpec,
        variant: str,
        subject: Subject,
        space: Space,
        profile: DeviceProfile,
        family: Family,
        seed: int,
        known: Iterable[Assignment] = (),
        smallest_group: int = SMALLEST_GROUP,
        *,
        hints: Iterable[Mapping[str, int]] = (),
        recoded: bool = False,
        watch: Callable[[], Watch] = Watch,
    ) -> None:
        self._watch = watch
        self._blocking: Blocking = blocking_of(layer, variant)
        self._shape = self._blocking.shape
        self._maps = {nest.name: tuple(maps_below(nest.roots)) for nest in subject.nests}
        mains = (k for k, maps in self._maps.items() if any(m.id == "item_mo" for m in maps))
        self._main = next(mains)
        self._space = space
        self._profile = profile
        self._family = family
        self._random = Random(seed)
        self._smallest_group = smallest_group
        widths = profile.vector_widths
        self._drawn_of_which_one = (
            _BANDS_OF_WHICH_ONE if self._blocking.held else _DRAWN_OF_WHICH_ONE[family]
        )
        # Who works alone has the registers of a core.
        alone = vector_registers(widths) * max(widths)
        self._most_accumulators = _MOST_ACCUMULATORS if family is Family.GROUPS else alone
        self._domains = {
            variable.name: tuple(values)
            for variable, values in space.variables
            if isinstance(variable, ParameterVariable)
        }
        # What is drawn by itself, and the tiles that a part of them divides: asked for each of
        # some hundred draws a candidate.
        self._free = [
            (name, domain)
            for name, domain in self._domains.items()
            if not name.startswith("rho") and name not in _TILES and name not in _TILES.values()
        ]
        self._parts = {
            item: tuple(v for v in self._domains[item] if v in _PER_ITEM) or self._domains[item]
            for item in _TILES.values()
        }
        self._whole = {
            (tile, part): tuple(v for v in self._domains[tile] if v % part == 0) or (part,)
            for tile, item in _TILES.items()
            for part in self._parts[item]
        }
        self._channels = dict(self._shape.sizes)["C"]
        self._height, self._width = self._shape.output_height, self._shape.output_width
        self._local_sizes = {
            variable.kernel: tuple(sizes)
            for variable, sizes in space.variables
            if isinstance(variable, LocalSizeVariable) and variable.dimension == 0
        }
        self._seen: set[frozenset[tuple[Variable, int]]] = set()
        self._found: list[tuple[float, dict[str, int]]] = []
        # Who copies to local memory for a group is no longer alone in it.
        copies = self._blocking.image_in_local or self._blocking.weights_in_local
        self._lines = _LINES if family is Family.SINGLE and not copies else (1,)
        # Rows that were joined are one, which nobody else would have a part in.
        if len(self._lines) > 1 and self._height > 1 and not self._blocking.held:
            self._lines = (*_LINES, ROW)
        self._vector_pads = True
        self._hints = list(hints)
        self._known = list(known)
        if recoded:
            self._known += [again for one in self._known for again in self._coded_again(one)]

    def propose(self, count: int) -> list[Assignment]:
        """Up to ``count`` candidates that were not proposed before."""
        chosen: list[Assignment] = []
        while self._known and len(chosen) < count:
            known = self._known.pop(0)
            if self._is_new(known):
                chosen.append(known)
        tries = 0
        while len(chosen) < count and tries < 40 * count:
            tries += 1
            # Draws of which few are worth a check take a second.
            self._watch().tick()
            values = self._hinted(self._hints.pop(0)) if self._hints else self._values()
            if values is None:
                continue
            assignment = self._assignment(values)
            if not self._is_new(assignment):
                continue
            valid = self._valid(assignment, values)
            if valid is not None:
                chosen.append(valid)
        return chosen

    def _is_new(self, assignment: Assignment) -> bool:
        key = frozenset(assignment.items())
        new = key not in self._seen
        self._seen.add(key)
        return new

    def _valid(self, assignment: Assignment, values: Mapping[str, int]) -> Assignment | None:
        """The candidate if it is in the space, perhaps with other codes; else None."""
        broken = check(self._space, assignment)
        if self._vector_pads and any(b.constraint == "vectorisation/pad_channel" for b in broken):
            # Of this layer they are no neighbours, as in groups that end within a block.
            self._vector_pads = False
            return self._valid(self._assignment(values), values)
        return None if broken else assignment

    def _coded_again(self, known: Assignment) -> Iterator[Assignment]:
        for line in self._lines:
            values = _parameters(known) | {LINE: line}
            again = self._valid(self._assignment(values), values)
            if again is not None:
                yield again

    def tell(self, assignment: Assignment, time_ms: float | None) -> None:
        """What a candidate took; None where it failed."""
        self._seen.add(frozenset(assignment.items()))
        if time_ms is None:
            return
        values = _parameters(assignment)
        values["flat_copy"] = int(self._random.random() < 0.5)
        if self._family is Family.SINGLE:
            values[LINE] = self._line_of(assignment)
        insort(self._found, (time_ms, values), key=lambda item: item[0])

    def _line_of(self, assignment: Assignment) -> int:
        if assignment.get(CodeVariable(_TILE_COLUMNS)) == int(ScheduleCode.SEQUENTIAL):
            return ROW
        return assignment.get(LocalSizeVariable(self._main, 0), 1)

    # -- tuning parameters -------------------------------------------------------------------

    def _values(self) -> dict[str, int] | None:
        explore = len(self._seen) < EXPLORED or self._random.random() < STILL_EXPLORED
        parent = None if explore or not self._found else self._parent()
        if parent is None and self._lone_tiles:
            drawn = self._random.choices(self._lone_tiles, k=self._drawn_of_which_one)
            return min(drawn, key=self._guess) | {LINE: self._random.choice(self._lines)}
        wanted = self._drawn_of_which_one if parent is None else 1
        drawn: list[dict[str, int]] = []
        for _ in range(max(_DRAWS, _TRIES * wanted)):
            values = self._drawn() if parent is None else self._changed(parent)
            values = self._completed(values)
            if values is not None:
                drawn.append(values)
                if len(drawn) == wanted:
                    break
        if len(drawn) < 2:
            return drawn[0] if drawn else None
        return min(drawn, key=self._guess)

    def _hinted(self, hint: Mapping[str, int]) -> dict[str, int] | None:
        """What was fast for another layer, each value the nearest that this layer has; None where
        that is not worth a check."""
        values = {
            name: min(domain, key=lambda value: (abs(value - hint.get(name, domain[0])), value))
            for name, domain in self._domains.items()
        }
        # Tiles are whole numbers of what a work-item makes.
        for tile, item in (*_TILES.items(), ("bm", "tm")):
            whole = [v for v in self._domains[tile] if v % values[item] == 0]
            if whole:
                values[tile] = min(whole, key=lambda v: (abs(v - values[tile]), v))
        return self._completed(
            values | {"flat_copy": hint.get("flat_copy", 0), LINE: hint.get(LINE, 1)}
        )

    @cached_property
    def _lone_tiles(self) -> list[dict[str, int]]:
        """Every choice that is worth a check where work-items work alone: so few of all draws are
        that drawing would seldom find the best. Empty for groups and bands of tiles, and where
        there are too many."""
        if self._family is Family.GROUPS or self._blocking.held:
            return []
        names = [name for name in self._domains if name not in _FOLLOWING]
        domains = [
            tuple(v for v in self._domains[name] if name not in ("tr", "tp") or v in _PER_ITEM)
            for name in names
        ]
        if prod(map(len, domains)) > _MOST_LISTED:
            return []
        every = (dict(zip(names, values, strict=True)) for values in product(*domains))
        completed = (self._completed(values | {"flat_copy": 0}) for values in every)
        return [values for values in completed if values is not None]

    def _guess(self, values: Mapping[str, int]) -> float:
        """What a candidate is likely to cost beside others of this layer."""
        if self._family is Family.GROUPS:
            return tile_cost(self._shape, self._profile, values)
        return lone_cost(self._shape, self._profile, values, held=self._blocking.held)

    def _parent(self) -> dict[str, int]:
        best = self._found[:ELITE]
        return best[min(self._random.randrange(len(best)), self._random.randrange(len(best)))][1]

    def _pick(self, values: Sequence[int]) -> int:
        # Half of what `choice` takes.
        return values[int(self._random.random() * len(values))]

    def _drawn(self) -> dict[str, int]:
        values = {name: self._pick(domain) for name, domain in self._free}
        for tile, item in _TILES.items():
            self._tile(values, tile, item)
        if self._family is Family.SINGLE:
            values[LINE] = self._pick(self._lines)
        values["flat_copy"] = self._pick((0, 1))
        return values

    def _tile(self, values: dict[str, int], tile: str, item: str) -> None:
        values[item] = self._pick(self._parts[item])
        values[tile] = self._pick(self._whole[tile, values[item]])

    def _changed(self, parent: Mapping[str, int]) -> dict[str, int]:
        values = dict(parent)
        names = [*(n for n in self._domains if not n.startswith("rho")), "flat_copy"]
        if len(self._lines) > 1:
            names.append(LINE)
        for name in self._random.sample(names, self._random.choice((1, 1, 2, 3))):
            if name in ("tr", "tp"):
                self._tile(values, "th" if name == "tr" else "tw", name)
            elif name == "flat_copy":
                values[name] ^= 1
            elif name == LINE:
                values[name] = self._random.choice([n for n in self._lines if n != values[name]])
            elif name in ("pv", "wide"):
                values["pv"], values["wide"] = self._pick(self._domains["pv"]), 0
            else:
                values[name] = self._pick(self._domains[name])
        return values

    def _completed(self, values: dict[str, int]) -> dict[str, int] | None:
        """The values with what follows from others; None for what is not worth a check."""
        v = dict(values)
        if self._family is Family.SINGLE:
            # A work-item that works alone makes all of its group's tile, one of its own unless
            # sums are held, which pays where several wait.
            v |= {"bm": v["tm"], "mi": 1}
            if not self._blocking.held:
                v |= {"th": v["tr"], "tw": v["tp"]}
            elif v["th"] * v["tw"] == v["tr"] * v["tp"] and (
                max(self._domains["th"]) * max(self._domains["tw"]) > 1
            ):
                return None
        if v["tr"] * v["tp"] * v["tm"] > self._most_accumulators:
            return None
        if v["bm"] % v["tm"] or (v["bm"] // v["tm"]) % v["mi"] or v["th"] % v["tr"]:
            return None
        if v["tw"] % v["tp"]:
            return None
        if self._channels % v.get("sp", 1) or (self._channels // v.get("sp", 1)) % v["bc"]:
            return None
        if v["bc"] % v.get("ks", 1):
            return None
        if self._family is Family.GROUPS:
            if not self._smallest_group <= _work_items(v) <= LARGEST_GROUP:
                return None
            widest = min(4, max(self._profile.vector_widths))
        else:
            widest = max(self._profile.vector_widths)
        # The widest vectors that the filters of a work-item fill.
        v["v"] = max(w for w in self._domains["v"] if w <= widest and v["tm"] % w == 0)
        if "ks" in v:
            # So many add up at most, so far as the vectors of a tile can be shared out.
            vectors = v["tr"] * v["tp"] * v["tm"] // v["v"]
            able = [n for n in self._domains["ka"] if v["ks"] % n == vectors % n == 0]
            v["ka"] = max(n for n in able if n <= v["ka"])
        v["rho_y"] = -self._height % v["th"]
        v["rho_x"] = -self._width % v["tw"]
        if "pv" in v:
            computed = self._shape.computed
            if "iv" in v:
                v["front"] = -computed.pad_left % v["iv"]
            width = (v["tp"] - 1) * computed.stride_x + computed.window_width
            v["wide"] = -(width + v.get("front", 0)) % v["pv"]
        if "iv" in v and not self._cut_into_vectors(v):
            return None
        if any(v[name] not in self._domains[name] for name in self._domains):
            return None
        return v

    def _cut_into_vectors(self, v: dict[str, int]) -> bool:
        """Whether a tile of the image and the way to the next are whole vectors."""
        computed = self._shape.computed
        step = v["tw"] * computed.stride_x
        tile = step - computed.stride_x + computed.window_width + v["front"] + v["wide"]
        v["tv"] = step // v["iv"]
        return step % v["iv"] == tile % v["iv"] == 0

    def _assignment(self, values: Mapping[str, int]) -> dict[Variable, int]:
        flat_copy = bool(values.get("flat_copy", 0))
        assignment: dict[Variable, int] = {
            ParameterVariable(name): values[name] for name in self._domains
        }
        for kernel, maps in self._maps.items():
            main = kernel == self._main
            codes = codes_of(
                self._family, maps, values, flat_copy=flat_copy, vector_pads=self._vector_pads
            )
            assignment.update({CodeVariable(m): int(code) for m, code in codes.items()})
            if not main:
                # One line of all parallel iterations; no work-item without any.
                numbers = {**dict(self._shape.sizes), **values}
                total = prod(item.trip.evaluate(numbers) for item in _parallel(maps, codes))
                if self._family is Family.SINGLE:
                    # Several groups for each core, so that all have as much to do.
                    cores = self._profile.compute_units
                    total = max(1, total // (_GROUPS_OF_A_CORE * cores))
                most = min(_COPIERS, total, self._profile.max_work_group_size)
                first = max((s for s in self._local_sizes.get(kernel, ()) if s <= most), default=1)
            else:
                groups = self._family is Family.GROUPS
                first = _work_items(values) if groups else max(1, values[LINE])
            for dimension in range(3):
                size = first if dimension == 0 else 1
                assignment[LocalSizeVariable(kernel, dimension)] = size
        known = {variable for variable, _ in self._space.variables}
        return {variable: value for variable, value in assignment.items() if variable in known}


def _parameters(assignment: Assignment) -> dict[str, int]:
    return {v.name: value for v, value in assignment.items() if isinstance(v, ParameterVariable)}


def _work_items(v: Mapping[str, int]) -> int:
    rows, columns = v["th"] // v["tr"], v["tw"] // v["tp"]
    return (v["bm"] // v["tm"]) * rows * columns * v.get("ks", 1)


def _parallel(maps: Iterable[NestMap], codes: Mapping[MapId, ScheduleCode]) -> Iterator[NestMap]:
    """The map with a parallel code of a kernel that has one, and those that are fused into it."""
    inside = False
    for item in maps:
        code = codes[item.id]
        inside = code in PARALLEL_CODES or (inside and code is ScheduleCode.FUSED)
        if inside:
            yield item
