"""Random chains of primitives on a program, with values of parameters that keep its obligations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from random import Random

from mapper.ast_model.builders import said_name
from mapper.ast_model.nodes import Let, Program, Reduce
from mapper.ast_model.type_check import check_program
from mapper.ast_model.types import Memory
from mapper.errors import InputError, LimitError
from mapper.schedules.primitives.border import border
from mapper.schedules.primitives.compute_at import compute_at
from mapper.schedules.primitives.contract import contract, fuse_products
from mapper.schedules.primitives.copy_result import copy_result
from mapper.schedules.primitives.copy_views import copy_views
from mapper.schedules.primitives.dot import dot
from mapper.schedules.primitives.fission import fission
from mapper.schedules.primitives.flatten import flatten, flatten_reduces
from mapper.schedules.primitives.inline import inline
from mapper.schedules.primitives.interchange import interchange, interchange_reduces
from mapper.schedules.primitives.interleave import interleave
from mapper.schedules.primitives.layout import layout
from mapper.schedules.primitives.materialise import materialise
from mapper.schedules.primitives.move_inside import move_inside
from mapper.schedules.primitives.narrow import narrow
from mapper.schedules.primitives.nest import nest
from mapper.schedules.primitives.overlap import overlap, widen
from mapper.schedules.primitives.pack import pack
from mapper.schedules.primitives.prefetch import double_buffer, prefetch
from mapper.schedules.primitives.reorder import reorder
from mapper.schedules.primitives.reshare import reshare
from mapper.schedules.primitives.restart import restart
from mapper.schedules.primitives.rfactor import rfactor
from mapper.schedules.primitives.separate import separate
from mapper.schedules.primitives.split import Overhang, split
from mapper.schedules.primitives.split_reduce import split_reduce
from mapper.schedules.primitives.spread import spread
from mapper.schedules.primitives.stage import stage
from mapper.schedules.primitives.stage_accumulator import stage_accumulator
from mapper.schedules.primitives.unroll import unroll
from mapper.schedules.primitives.vectorise import vectorise
from mapper.schedules.step import NotApplicable, Step
from mapper.schedules.tree import concrete_maps, sites

MAX_TRIES = 300


@dataclass
class Chain:
    """A program after some primitives; ``log`` says which, ``values`` are of its parameters."""

    random: Random
    program: Program
    values: dict[str, int] = field(default_factory=dict[str, int])
    log: list[str] = field(default_factory=list[str])
    refused: list[str] = field(default_factory=list[str])
    fresh: int = 0

    def parameter(self, stem: str) -> str:
        self.fresh += 1
        return f"{stem}{self.fresh}"

    def maps(self) -> list[str]:
        return [str(m.id) for m in concrete_maps(self.program)]

    def reduces(self) -> list[str]:
        found = sites(self.program, lambda node: isinstance(node, Reduce))
        return [s.node.parameter for s in found if isinstance(s.node, Reduce)]

    def lets(self) -> list[str]:
        found = sites(self.program, lambda node: isinstance(node, Let))
        return [s.node.name for s in found if isinstance(s.node, Let)]

    def bases(self) -> list[str]:
        names = [i.name for i in self.program.inputs] + [k.name for k in self.program.kernels]
        return names + self.lets()

    def attempt(self, name: str) -> bool:
        """One primitive somewhere; False if it is refused or no value is left that it allows."""
        call = _CALLS[name](self)
        if call is None:
            return False
        text, run = call
        try:
            step = run()
        except NotApplicable as error:
            assert error.problems[0].path.split("(")[0]
            self.refused.append(f"{text}: {error}")
            return False
        except LimitError:
            return False
        values = self.values_for(step)
        if values is None:
            return False
        self.program, self.values = step.program, values
        self.log.append(f"{text} { ({p.name: values[p.name] for p in step.parameters}) }")
        return True

    def grow(self) -> bool:
        """Some primitive somewhere, the first of at most 20 that applies."""
        return any(self.attempt(self.random.choice(NAMES)) for _ in range(20))

    def reach(self, name: str) -> bool:
        """This primitive, after at most a dozen others that it may need."""
        for _ in range(12):
            if any(self.attempt(name) for _ in range(6)):
                return True
            self.attempt(self.random.choice(_BEFORE.get(name, NAMES)))
        return False

    def values_for(self, step: Step) -> dict[str, int] | None:
        """The values so far and some of the new parameters that keep all obligations."""
        new = step.parameters
        choices = [self.random.sample(p.values, len(p.values))[:40] for p in new]
        sizes = dict(step.program.sizes)
        obligations = check_program(step.program).obligations
        for tried, picked in enumerate(product(*choices)):
            values = self.values | dict(zip((p.name for p in new), picked, strict=True))
            try:
                if all(o.holds(sizes | values) for o in obligations):
                    return values
            except InputError:  # a division that leaves a remainder
                pass
            if tried > MAX_TRIES:
                break
        return None


Call = tuple[str, Callable[[], Step]]


def _of_map(name: str, run: Callable[[Chain, str], Step]) -> Callable[[Chain], Call | None]:
    def call(chain: Chain) -> Call | None:
        maps = chain.maps()
        if not maps:
            return None
        target = chain.random.choice(maps)
        return f"{name}({target})", lambda: run(chain, target)

    return call


def _of_reduce(name: str, run: Callable[[Chain, str], Step]) -> Callable[[Chain], Call | None]:
    def call(chain: Chain) -> Call | None:
        reduces = chain.reduces()
        if not reduces:
            return None
        target = chain.random.choice(reduces)
        return f"{name}({target})", lambda: run(chain, target)

    return call


def _of_let(name: str, run: Callable[[Chain, str], Step]) -> Callable[[Chain], Call | None]:
    def call(chain: Chain) -> Call | None:
        lets = chain.lets()
        if not lets:
            return None
        target = chain.random.choice(lets)
        return f"{name}({target})", lambda: run(chain, target)

    return call


def _of_loop(name: str, run: Callable[[Chain, str, str], Step]) -> Callable[[Chain], Call | None]:
    def call(chain: Chain) -> Call | None:
        loops = chain.maps() + chain.reduces()
        if not loops:
            return None
        loop, base = chain.random.choice(loops), chain.random.choice(chain.bases())
        return f"{name}({loop}, {base})", lambda: run(chain, loop, base)

    return call


def _of_parameter(
    name: str, run: Callable[[Chain, str, tuple[int, ...]], Step]
) -> Callable[[Chain], Call | None]:
    def call(chain: Chain) -> Call | None:
        if not chain.program.parameters:
            return None
        target = chain.random.choice(chain.program.parameters)
        return f"{name}({target.name})", lambda: run(chain, target.name, target.values)

    return call


def _rarely(call: Callable[[Chain], Call | None]) -> Callable[[Chain], Call | None]:
    """What applies nearly everywhere would be most of a chain."""
    return lambda chain: call(chain) if chain.random.random() < 0.15 else None


def _size(chain: Chain) -> str | int:
    return chain.parameter("p") if chain.random.random() < 0.7 else chain.random.choice((1, 2, 3))


def _memory(chain: Chain) -> Memory:
    return chain.random.choice(list(Memory))


def _order(chain: Chain, rank: int) -> list[int]:
    return chain.random.sample(range(rank), rank)


def _use(chain: Chain) -> int:
    """Which of several reads; mostly the only one."""
    return chain.random.choice((0, 0, 0, 1, 2))


_CALLS: dict[str, Callable[[Chain], Call | None]] = {
    "split": _of_map(
        "split", lambda c, m: split(c.program, m, _size(c), c.random.choice(list(Overhang)),
                                    c.parameter("rho"))),
    "interchange": _of_map("interchange", lambda c, m: interchange(c.program, m)),
    "reorder": _of_map("reorder", lambda c, m: reorder(
        c.program, [m, *c.random.sample(c.maps(), min(len(c.maps()), c.random.choice((1, 2))))])),
    "nest": _of_map("nest", lambda c, m: nest(c.program, [m, c.random.choice(c.maps())])),
    "separate": _of_map("separate", lambda c, m: separate(c.program, m)),
    "flatten": _of_map("flatten", lambda c, m: flatten(c.program, m)),
    "move_inside": _of_map("move_inside", lambda c, m: move_inside(c.program, m)),
    "fission": _of_map("fission", lambda c, m: fission(c.program, m, _memory(c))),
    "vectorise": _of_map("vectorise", lambda c, m: vectorise(c.program, m, _size(c))),
    "reshare": _of_map(
        "reshare", lambda c, m: reshare(c.program, m, c.random.choice((2, 3)), _size(c))),
    "split_reduce": _of_reduce("split_reduce", lambda c, r: split_reduce(c.program, r, _size(c))),
    "interchange_reduces": _of_reduce(
        "interchange_reduces", lambda c, r: interchange_reduces(c.program, r)),
    "flatten_reduces": _of_reduce(
        "flatten_reduces", lambda c, r: flatten_reduces(c.program, r)),
    "rfactor": _of_reduce("rfactor", lambda c, r: rfactor(c.program, r, _size(c), _memory(c))),
    "stage_accumulator": _of_reduce(
        "stage_accumulator", lambda c, r: stage_accumulator(c.program, r, _memory(c))),
    "restart": _of_reduce("restart", lambda c, r: restart(c.program, r, _memory(c))),
    "dot": _of_reduce("dot", lambda c, r: dot(c.program, r, c.random.choice((1, 2)))),
    "interleave": _rarely(_of_reduce("interleave", lambda c, r: interleave(
        c.program, r, _size(c), c.parameter("swap") if c.random.random() < 0.5 else 1))),
    "copy_result": _rarely(_of_map("copy_result", lambda c, _: copy_result(
        c.program, c.random.choice(c.program.kernels).name, c.parameter("computed")))),
    "copy_views": _of_map("copy_views", lambda c, _: copy_views(
        c.program, c.random.choice(c.program.kernels).name)),
    "spread": _of_reduce("spread", lambda c, r: spread(c.program, r, c.random.choice((1, 2)))),
    "unroll": _of_reduce("unroll", lambda c, r: unroll(c.program, r, c.random.choice((1, "ut")))),
    "prefetch": _of_reduce("prefetch", lambda c, r: prefetch(c.program, r)),
    "double_buffer": _of_reduce("double_buffer", lambda c, r: double_buffer(c.program, r)),
    "contract": _of_loop("contract", lambda c, m, _: contract(c.program, m)),
    "fuse_products": _of_loop("fuse_products", lambda c, m, _: fuse_products(c.program, m)),
    "overlap": _of_loop("overlap", lambda c, m, b: overlap(
        c.program, m, said_name(b) or b, use=_use(c))),
    "widen": _of_loop("widen", lambda c, m, b: widen(
        c.program, m, b, c.random.choice((0, 1)), c.random.choice((1, 2)),
        c.random.choice((1, 1, 2)))),
    "stage": _of_loop("stage", lambda c, m, b: stage(
        c.program, m, b, _memory(c),
        order=c.random.choice(((), (), _order(c, 2), _order(c, 3))),
        padding=c.random.choice((0, 0, 1)), vector=c.random.choice((1, 1, 2)),
        apart=c.random.random() < 0.5, use=_use(c))),
    "stage_once": _of_loop("stage", lambda c, m, b: stage(
        c.program, m, said_name(b) or b, _memory(c), once=True)),
    "pack": _of_loop("pack", lambda c, m, b: pack(
        c.program, m, b, c.parameter("packed"), c.random.choice(((), (), _order(c, 3))),
        use=_use(c))),
    "border": _of_loop("border", lambda c, m, b: border(
        c.program, m, said_name(b) or b, c.parameter("bordered"), use=_use(c))),
    "narrow": _of_parameter("narrow", lambda c, name, values: narrow(
        c.program, name,
        [v for v in values if v == c.values[name] or c.random.random() < 0.5])),
    "compute_at": _of_loop("compute_at", lambda c, m, b: compute_at(c.program, b, m, _memory(c))),
    "inline": _of_let("inline", lambda c, t: inline(c.program, t)),
    "materialise": _of_let(
        "materialise", lambda c, t: materialise(c.program, t, c.parameter("kernel"))),
    "layout": _of_let("layout", lambda c, t: layout(
        c.program, t, _order(c, c.random.choice((1, 2, 3))))),
}  # fmt: skip
NAMES = tuple(_CALLS)
_CALLS["stage_in_reduce"] = _of_reduce(
    "stage",
    lambda c, r: stage(c.program, r, c.random.choice(c.program.inputs).name, Memory.LOCAL),
)
#: What others need before they apply, where any will not do.
_BEFORE = {
    "narrow": ("split", "split_reduce"),
    "spread": ("move_inside", "stage_accumulator"),
    "prefetch": ("split_reduce", "stage_in_reduce"),
    "double_buffer": ("split_reduce", "stage_in_reduce"),
    "materialise": ("rfactor", "fission"),
    "inline": ("stage",),
    "layout": ("stage", "rfactor"),
    "restart": ("move_inside", "split_reduce"),
    "separate": ("nest", "interchange"),
    "flatten_reduces": ("move_inside", "split_reduce"),
    "interchange_reduces": ("move_inside", "split_reduce"),
}
