"""Small random computations (products, convolutions, stencils, pools, sums) in the text form."""

from __future__ import annotations

from random import Random

import numpy as np
from numpy.typing import NDArray

from mapper.ast_model.nodes import Program
from mapper.ast_model.text_form import parse
from mapper.ast_model.types import dimensions


def computation(random: Random) -> Program:
    """A program that type-checks and elaborates, of a few hundred elements at most."""
    text = random.choice(_KINDS)(random)
    # Not drawn from ``random``: seeds that once failed stay what they are.
    own = Random(text)
    return parse(_in_rows(own) if own.random() < 0.1 else text)


def arrays(program: Program, random: Random) -> dict[str, NDArray[np.float64]]:
    """Whole numbers for its inputs, so that sums are exact in any order."""
    source = np.random.default_rng(random.randrange(2**32))
    sizes = dict(program.sizes)
    return {
        i.name: source.integers(-3, 4, [n.evaluate(sizes) for n in dimensions(i.type)[0]]).astype(
            np.float64
        )
        for i in program.inputs
    }


def _program(sizes: str, inputs: str, kernels: str) -> str:
    lines = [f"size {s}" for s in sizes.split(", ")]
    lines += [f"input {i}" for i in inputs.split("; ")]
    return 'program "p" {\n' + "\n".join(lines) + f"\n{kernels}\n}}"


def _product(random: Random) -> str:
    m, n, k = (random.choice((2, 3, 4, 6)) for _ in range(3))
    step = random.choice(
        ("fma(k.0, k.1, acc)", "add(acc, mul(k.0, k.1))", "max(acc, add(k.0, k.1))")
    )
    total = f"reduce((acc, k) => {step}, 0.0, zip(x, y))"
    if random.random() < 0.3:
        total = f"map#relu(t => max(t, 0.0), {total})"
    b, columns = ("[[float]N]K", "transpose(b)") if random.random() < 0.5 else ("[[float]K]N", "b")
    if random.random() < 0.25:
        n, columns = m, "a"  # a Gram matrix: one array is read in two places
    nest = f"map#row(x => join(map#column(y => {total}, {columns})), a)"
    if random.random() < 0.3:
        nest = f"transpose({nest})"
    return _program(
        f"M = {m}, N = {n}, K = {k}", f"a : [[float]K]M; b : {b}", f"kernel product = {nest}"
    )


def _spaced(random: Random) -> str:
    """Views with names around a kernel: zeros between elements, and in reverse."""
    n, m = random.choice((3, 4)), random.choice((2, 4))
    spaced = (
        f"let spaced = pad({m} - 1, 1, 0.0, join(map#between(e => pad(0, 1, 0.0, e), split(1, a))))"
    )
    total = "reduce((acc, k) => fma(k.0, k.1, acc), 0.0, zip(win, weights))"
    body = f"map#place(win => join(map#filter(weights => {total}, turned)), slide(m, 1, spaced))"
    return _program(
        f"N = {n}, m = {m}, F = 2", "a : [float]N; f : [[float]m]F",
        f"kernel c = {spaced} in let turned = map#turn(g => reorder(reverse, g), f) in {body}",
    )  # fmt: skip


def _convolution(random: Random) -> str:
    c, h, w, m = (random.choice(s) for s in ((1, 2, 3), (4, 5, 6), (4, 6), (2, 4)))
    k, pad, stride = random.choice((1, 2, 3)), random.choice((0, 1)), random.choice((1, 1, 2))
    image = "a"
    if pad:
        image = f"pad({pad}, {pad}, 0.0, map#edge(r => pad({pad}, {pad}, 0.0, r), a))"
    windows = (
        f"map#swap(s => transpose(s), slide(kh, {stride}, map#cut(r => "
        f"slide(kh, {stride}, r), {image})))"
    )
    total = "reduce((acc, q) => fma(q.0, q.1, acc), 0.0, zip(join(join(win)), join(join(one))))"
    if random.random() < 0.3:
        total = f"map#store(t => add(t, 1.0), {total})"
    nest = (
        f"map#row(line => map#column(win => join(map#filter(one => {total}, f)), line), {windows})"
    )
    if random.random() < 0.5:
        nest = f"transpose({nest})"
    return _program(
        f"C = {c}, H = {h}, W = {w}, M = {m}, kh = {k}",
        "a : [[[float]C]W]H; f : [[[[float]C]kh]kh]M",
        f"kernel convolution = {nest}",
    )


def _stencils(random: Random) -> str:
    h, w, k = random.choice((6, 7, 8)), random.choice((6, 8)), random.choice((2, 3))
    first = "map#first_row(r => map#first(x => mul(x, 2.0), r), a)"
    if random.random() < 0.4:
        pairs = "map#both(z => zip(z.0, z.1), zip(a, b))"
        first = f"map#first_row(r => map#first(x => add(x.0, x.1), r), {pairs})"
    edge = random.random() < 0.3
    source = "pad(1, 1, 0.0, one)" if edge else "one"
    windows = f"map#swap(s => transpose(s), slide(k, 1, map#cut(r => slide(k, 1, r), {source})))"
    total = "reduce((acc, q) => add(acc, q), 0.0, join(win))"
    return _program(
        f"H = {h}, W = {w}, k = {k}",
        "a : [[float]W]H; b : [[float]W]H",
        f"kernel one = {first}\n"
        f"kernel two = map#row(line => join(map#column(win => {total}, line)), {windows})",
    )


def _pool(random: Random) -> str:
    n, k = random.choice((6, 8, 12)), random.choice((2, 3))
    step = random.choice((1, k))
    op, start = random.choice((("max", "-1000.0"), ("add", "0.0"), ("min", "1000.0")))
    total = f"reduce((acc, q) => {op}(acc, q), {start}, win)"
    return _program(
        f"N = {n}, k = {k}, R = 3",
        "a : [[float]N]R",
        f"kernel pool = map#row(r => join(map#cell(win => {total}, slide(k, {step}, r))), a)",
    )


def _sums(random: Random) -> str:
    n, r = random.choice((4, 6, 8)), random.choice((2, 3))
    op = random.choice(("add", "max", "sub"))
    return _program(
        f"N = {n}, R = {r}",
        "a : [[float]N]R",
        f"kernel sums = join(map#row(x => reduce((acc, q) => {op}(acc, q), 0.0, x), a))",
    )


def _pointwise(random: Random) -> str:
    n, m = random.choice((4, 6)), random.choice((2, 3, 4))
    body = random.choice(("id(x)", "mul(x, x)", "add(x, 1.0)", "bent(x, 1.0)"))
    return _program(
        f"N = {n}, M = {m}",
        "a : [[float]N]M",
        "fun bent(v, w) = select(abs(v) <= w, v, 2.0 * v - w)\n"
        f"kernel moved = transpose(map#row(r => map#column(x => {body}, r), a))",
    )


def _in_rows(random: Random) -> str:
    """Windows along places whose channels lie in rows of ``r``."""
    n, k, r = random.choice((5, 6, 8)), random.choice((1, 2, 3)), random.choice((2, 3))
    c, pad = r * random.choice((1, 2, 3)), random.choice((0, 1))
    line = f"slide(k, 1, pad({pad}, {pad}, 0.0, c))"
    windows = f"transpose(map#cut(c => {line}, join(map#row(b => transpose(b), a))))"
    total = "reduce((acc, q) => fma(q.0, q.1, acc), 0.0, zip(join(win), join(f)))"
    return _program(
        f"C = {c}, N = {n}, k = {k}",
        f"a : [[[float]{r}]N](C/{r}); f : [[float]k]C",
        f"kernel rows = join(map#place(win => {total}, {windows}))",
    )


_KINDS = (_product, _convolution, _convolution, _stencils, _pool, _sums, _pointwise, _spaced)
