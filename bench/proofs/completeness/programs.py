"""Small programs on which every assignment can be tried.

Each has up to four maps and is written with two sets of sizes: what runs right for the first is
run again with the second, so that nothing is called right by luck.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mapper.ast_model.text_form import parse
from mapper.pipeline import Subject, subject_of_program

Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SmallProgram:
    """A program's text with its sizes in braces, and two sets of values for them."""

    name: str
    body: str
    sizes: tuple[Sizes, Sizes]
    declarations: str = field(default="")

    @property
    def maps(self) -> int:
        """How many maps it has."""
        return self.body.count("map#")

    def text(self, sizes: Sizes) -> str:
        """The program with these sizes."""
        given = " ".join(f"size {name} = {value}" for name, value in sizes.items())
        functions = "fun f(v) = v * 2.0 + 1.0 fun g(v) = v * 3.0"
        return f'program "small" {{ {self.declarations} {given} {functions} {self.body} }}'

    def subject(self, sizes: Sizes) -> Subject:
        """What is mapped: the program with these sizes."""
        return subject_of_program(parse(self.text(sizes)), self.name)


# Both sets are even, so that vectors of two divide the second where they divide the first.
_MATRICES = ({"N": 4, "M": 6}, {"N": 6, "M": 2})
_LINES = ({"N": 6}, {"N": 4})
_ODD = ({"N": 5, "M": 3}, {"N": 3, "M": 5})
_MATRIX = "input x : [[float]M]N"


def _family() -> Iterator[SmallProgram]:
    yield SmallProgram("line", "input x : [float]N kernel out = map#A(v => f(v), x)", _LINES)
    yield SmallProgram(
        "rows", f"{_MATRIX} kernel out = map#A(r => map#B(v => f(v), r), x)", _MATRICES
    )
    yield SmallProgram(
        "cube",
        """input x : [[[float]M]N]2
        kernel out = map#A(p => map#B(r => map#C(v => f(v), r), p), x)""",
        _MATRICES,
    )
    yield SmallProgram(
        "odd rows", f"{_MATRIX} kernel out = map#A(r => map#B(v => f(v), r), x)", _ODD
    )
    yield SmallProgram(
        "one row",
        "input x : [[float]N]1 kernel out = map#A(r => map#B(v => f(v), r), x)",
        _LINES,
    )
    yield SmallProgram(
        "columns",
        f"{_MATRIX} kernel out = map#A(r => map#B(v => f(v), r), transpose(x))",
        _MATRICES,
    )
    yield SmallProgram(
        "vectors",
        """input x : [float]N
        kernel out = as_scalar(map#A(v => f(v), as_vector(2, x)))""",
        _LINES,
    )
    yield SmallProgram(
        "padded",
        "input x : [float]N kernel out = map#A(v => f(v), pad(1, 1, 0.5, x))",
        _LINES,
    )
    yield SmallProgram(
        "cropped",
        "input x : [float]N kernel out = pad(-1, -1, 0.0, map#A(v => f(v), x))",
        _LINES,
    )
    yield SmallProgram(
        "two kernels",
        """input x : [float]N kernel one = map#A(v => f(v), x)
        kernel two = map#B(v => g(v), reorder(reverse, one))""",
        _LINES,
    )
    yield SmallProgram(
        "parameter",
        """input x : [float]N
        kernel out = join(map#A(r => map#B(v => f(v), r), split(p, x)))""",
        _LINES,
        declarations="param p in {1, 2}",
    )
    for memory in ("private", "local", "global"):
        yield from _with_intermediate(memory)
        yield from _with_accumulator(memory)


def _with_intermediate(memory: str) -> Iterator[SmallProgram]:
    line = {
        "same": "t",
        "reversed": "reorder(reverse, t)",
        "padded": "pad(1, 1, 0.5, t)",
    }
    for name, view in line.items():
        yield SmallProgram(
            f"two loops {memory} {name}",
            f"""input x : [float]N kernel out = let t = to_{memory}(map#A(v => f(v), x)) in
            map#B(v => g(v), {view})""",
            _LINES,
        )
    # So short that a work-group of four runs all of it.
    yield SmallProgram(
        f"two short loops {memory} reversed",
        f"""input x : [float]N kernel out = let t = to_{memory}(map#A(v => f(v), x)) in
        map#B(v => g(v), reorder(reverse, t))""",
        ({"N": 4}, {"N": 2}),
    )
    yield SmallProgram(
        f"two loops {memory} slide",
        f"""input x : [float]N kernel out = let t = to_{memory}(map#A(v => f(v), x)) in
        join(map#B(w => reduce((a, e) => add(a, e), 0.0, w), slide(2, 1, t)))""",
        _LINES,
    )
    yield SmallProgram(
        f"two loops {memory} split",
        f"""input x : [float]N kernel out = let t = to_{memory}(map#A(v => f(v), x)) in
        map#B(w => map#C(e => g(e), w), split(2, t))""",
        _LINES,
    )
    yield SmallProgram(
        f"nest and loop {memory} join",
        f"""{_MATRIX} kernel out = let t = to_{memory}(map#A(r => map#B(v => f(v), r), x)) in
        map#C(e => g(e), join(t))""",
        _MATRICES,
    )
    nests = {"same": "t", "transposed": "transpose(t)"}
    for name, view in nests.items():
        yield SmallProgram(
            f"two nests {memory} {name}",
            f"""{_MATRIX} kernel out = let t = to_{memory}(map#A(r => map#B(v => f(v), r), x)) in
            map#C(r => map#D(v => g(v), r), {view})""",
            _MATRICES,
        )
    for name, view in {"same": "t", "reversed": "reorder(reverse, t)"}.items():
        yield SmallProgram(
            f"tile {memory} {name}",
            f"""{_MATRIX} kernel out = map#A(r =>
            let t = to_{memory}(map#B(v => f(v), r)) in map#C(v => g(v), {view}), x)""",
            _MATRICES,
        )
    yield SmallProgram(
        f"tile {memory} split",
        f"""{_MATRIX} kernel out = map#A(r =>
        let t = to_{memory}(map#B(v => f(v), r)) in
        map#C(w => map#D(v => g(v), w), split(2, t)), x)""",
        _MATRICES,
    )
    yield SmallProgram(
        f"tile of one {memory}",
        f"""input x : [[float]1]N kernel out = map#A(r =>
        let t = to_{memory}(map#B(v => f(v), r)) in map#C(v => g(v), t), x)""",
        _LINES,
    )
    yield SmallProgram(
        f"scalar {memory}",
        f"""{_MATRIX} kernel out = map#A(r => map#B(v =>
        let q = to_{memory}(f(v)) in add(q, v), r), x)""",
        _MATRICES,
    )


def _with_accumulator(memory: str) -> Iterator[SmallProgram]:
    yield SmallProgram(
        f"row sums {memory}",
        f"""{_MATRIX} kernel out = join(map#A(r =>
        reduce((a, e) => add(a, e), to_{memory}(0.5), r), x))""",
        _MATRICES,
    )
    yield SmallProgram(
        f"column sums {memory}",
        f"""{_MATRIX} kernel out = join(map#O(s => map#C(v => g(v), s),
        reduce((a, r) => map#U(p => add(p.0, p.1), zip(a, r)),
               to_{memory}(map#I(z => id(z), fill(0.5, M))), x)))""",
        _MATRICES,
    )


def family() -> tuple[SmallProgram, ...]:
    """The programs picked by hand: one for each shape that a rule is about."""
    return tuple(_family())


def random_programs(seed: int, count: int) -> tuple[SmallProgram, ...]:
    """Programs of two stages of one or two maps each, with any memory and view between."""
    source = random.Random(seed)
    return tuple(_random(source, f"random {seed}/{k}") for k in range(count))


def _random(source: random.Random, name: str) -> SmallProgram:
    memory = source.choice(("private", "local", "global"))
    rank = source.choice((1, 2))
    n, m = source.sample((2, 3, 4, 5, 6), 2), source.sample((2, 3, 4, 6), 2)
    if rank == 1:
        sizes: tuple[Sizes, Sizes] = ({"N": 2 * n[0]}, {"N": 2 * n[1]})
        shape, producer = "[float]N", "map#A(v => f(v), x)"
        views = ("t", "reorder(reverse, t)", "reorder(stride(2), t)", "pad(1, 0, 0.5, t)")
        consumers = (
            ("map#B(v => g(v), {})", views),
            ("map#B(w => map#C(v => g(v), w), {})", ("split(2, t)", "slide(3, 1, t)")),
            ("join(map#B(w => reduce((a, e) => add(a, e), 0.5, w), {}))", ("split(2, t)",)),
        )
    else:
        sizes = ({"N": n[0], "M": m[0]}, {"N": n[1], "M": m[1]})
        shape, producer = "[[float]M]N", "map#A(r => map#B(v => f(v), r), x)"
        views = ("t", "transpose(t)", "reorder(reverse, t)", "slide(2, 1, join(t))")
        consumers = (
            ("map#C(r => map#D(v => g(v), r), {})", views),
            ("map#C(v => g(v), {})", ("join(t)", "join(transpose(t))")),
            ("join(map#C(w => reduce((a, e) => add(a, e), 0.5, w), {}))", ("t", "transpose(t)")),
        )
    shell, choices = source.choice(consumers)
    body = shell.format(source.choice(choices))
    return SmallProgram(
        name,
        f"input x : {shape} kernel out = let t = to_{memory}({producer}) in {body}",
        sizes,
    )
