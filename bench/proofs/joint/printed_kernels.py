"""What the text of generated kernels says of memory, work-groups and barriers.

Read from the OpenCL source alone, so that neither the solver, nor the rules, nor the
generator's own accounts are taken at their word. Only our own printer's layout is understood:
a statement or a brace a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

FLOAT_BYTES = 4

_GROUP = re.compile(r"__attribute__\(\(reqd_work_group_size\((\d+), (\d+), (\d+)\)\)\)")
_KERNEL = re.compile(r"__kernel void (\w+)\(")
# 16-bit floats are declared by their bits.
_LOCAL = re.compile(
    r"__local (float|ushort) \w+\[(\d+)\](?: __attribute__\(\(aligned\(\d+\)\)\))?;"
)
_BYTES = {"float": 4, "ushort": 2}
# Private buffers begin with p_; temporaries of an expression do not count as memory.
_PRIVATE = re.compile(r"float(\d*) (p_\w+(?:\[\d+\])?(?:, p_\w+)*);")
_INDEX = re.compile(r"const index_t (\w+) = (?:\(index_t\))?get_(\w+)_id\(\d\).*;")
_SKIP = re.compile(r"if \((\w+) >= \d+\) continue;")
_SERIAL = re.compile(r"for \(index_t (\w+) = 0; \1 < [^;]+; \+\+\1\) \{")
_SOME_GROUPS = re.compile(r"if \(\(index_t\)get_group_id\(\d\)(?: \+ \d+)? < \d+\) \{")


@dataclass(slots=True)
class PrintedKernel:
    """One kernel. Bytes: of local memory a work-group, of private buffers a work-item at once.

    ``stacked_bytes``: of all private buffers, what fits into registers eight times.

    ``divergent`` holds what keeps some work-items of a group from a barrier: heads of blocks
    around it that not all run equally often, and guards before it in such a block.
    """

    name: str
    work_group: tuple[int, int, int]
    local_bytes: int = 0
    private_bytes: int = 0
    stacked_bytes: int = 0
    barriers: int = 0
    divergent: list[str] = field(default_factory=list[str])


def read_kernels(source: str) -> Iterator[PrintedKernel]:
    """The kernels of a source in order; ValueError for text that is not the printer's."""
    group: tuple[int, int, int] | None = None
    lines = iter(source.splitlines())
    for line in lines:
        if found := _GROUP.match(line):
            group = (int(found[1]), int(found[2]), int(found[3]))
        elif found := _KERNEL.match(line):
            if group is None:
                raise ValueError(f"kernel {found[1]} states no work-group size")
            yield _read_body(PrintedKernel(found[1], group), lines)
            group = None


def _read_body(kernel: PrintedKernel, lines: Iterator[str]) -> PrintedKernel:
    heads: list[str] = []
    live: list[int] = []
    # For each open block the guards behind which not all work-items come.
    guards: list[list[str]] = []
    levels: dict[str, str] = {}
    stacked: dict[str, int] = {}
    for text in lines:
        line = text.split("/*", 1)[0].strip()
        if found := _LOCAL.fullmatch(line):
            kernel.local_bytes += _BYTES[found[1]] * int(found[2])
        elif found := _PRIVATE.fullmatch(line):
            elements = int(found[1] or 1) * _elements(found[2])
            live[-1] += FLOAT_BYTES * elements
            # Copies of a loop that was unrolled declare the same names again.
            stacked[line] = FLOAT_BYTES * elements * (8 if elements <= 256 else 1)
            kernel.private_bytes = max(kernel.private_bytes, sum(live))
        elif line.startswith("barrier("):
            kernel.barriers += 1
            for head, inside in zip(heads[1:], guards[1:], strict=True):
                kernel.divergent += [head] if not _is_uniform(head) else []
                kernel.divergent += inside
        elif found := _INDEX.fullmatch(line):
            levels[found[1]] = found[2]
        elif found := _SKIP.fullmatch(line):
            if levels.get(found[1]) != "group":
                guards[-1].append(line)
        elif line.endswith("{"):
            heads.append(line)
            live.append(0)
            guards.append([])
        elif line == "}":
            heads.pop()
            live.pop()
            guards.pop()
            if not heads:
                kernel.stacked_bytes = sum(stacked.values())
                return kernel
    raise ValueError(f"kernel {kernel.name} does not end")


def _elements(names: str) -> int:
    """``p_a, p_b`` are two, ``p_a[9]`` is nine."""
    return sum(int(name.partition("[")[2].rstrip("]") or 1) for name in names.split(", "))


def _is_uniform(head: str) -> bool:
    """True if all work-items of a group run the block equally often."""
    return head == "{" or any(kind.fullmatch(head) for kind in (_SERIAL, _SOME_GROUPS))
