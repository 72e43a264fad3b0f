"""Loops drawn as boxes in boxes (SVG): a program before and after its schedule."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from mapper.ast_model.nodes import Program
from mapper.schedules.loops import Loop, loops_of

LINE = 18
PAD = 6
GAP = 24
CHARACTER = 6.7
_FILL = {"map": "#dbe9f6", "reduce": "#fde3c8", "buffer": "#dcefdc", "kernel": "#f4f4f4"}
_STROKE = {"map": "#4878a8", "reduce": "#c07830", "buffer": "#4f8f4f", "kernel": "#888888"}


def loops_svg(programs: Sequence[tuple[str, Program]]) -> str:
    """Programs with their titles side by side: maps blue, reduces orange, buffers green."""
    columns = [
        (title, [Loop("kernel", k.name, "", k.loops) for k in loops_of(program)])
        for title, program in programs
    ]
    parts: list[str] = []
    x, height = float(PAD), 0.0
    for title, kernels in columns:
        parts.append(_text(x, LINE - 4, title, bold=True))
        y, width = float(LINE + PAD), CHARACTER * len(title)
        for kernel in kernels:
            width = max(width, _width(kernel))
        for kernel in kernels:
            y = _draw(parts, kernel, x, y, width) + PAD
        x, height = x + width + GAP, max(height, y)
    size = f"{x - GAP + PAD:.0f} {height:.0f}"
    wide, high = size.split()
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" '
        f'viewBox="0 0 {size}" font-family="monospace" font-size="11" role="img">'
    )
    background = f'<rect width="{wide}" height="{high}" fill="#ffffff"/>'
    return "\n".join((head, background, *parts, "</svg>", ""))


def _label(loop: Loop) -> str:
    match loop.kind:
        case "kernel":
            return f"kernel {loop.name}"
        case "buffer":
            return f"{loop.name} in {loop.length} memory"
        case _:
            return f"{loop.kind} {loop.name} × {loop.length}"


def _width(loop: Loop) -> float:
    inner = max((_width(one) for one in loop.inner), default=0.0)
    return 2 * PAD + max(CHARACTER * len(_label(loop)), inner)


def _height(loop: Loop) -> float:
    return LINE + sum(_height(one) + PAD / 2 for one in loop.inner) + (PAD / 2 if loop.inner else 0)


def _draw(parts: list[str], loop: Loop, x: float, y: float, width: float) -> float:
    """Add a box and what is in it; where it ends."""
    high = _height(loop)
    parts.append(
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{high:.1f}" rx="3" '
        f'fill="{_FILL[loop.kind]}" stroke="{_STROKE[loop.kind]}"/>'
    )
    parts.append(_text(x + PAD, y + LINE - 6, _label(loop)))
    below = y + LINE
    for one in loop.inner:
        below = _draw(parts, one, x + PAD, below, width - 2 * PAD) + PAD / 2
    return y + high


def _text(x: float, y: float, text: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="#222222"{weight}>{escape(text)}</text>'
