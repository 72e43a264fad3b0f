"""When two plans are the same program for a machine: thread ids that can only be 0 are 0.

A local map with one thread, a work-group map with one group and a sequential map are written
differently and are one thing. Two plans with the same text here run the same instructions in
the same work-items.
"""

from __future__ import annotations

import re
from math import prod

from mapper.ast_model.text_form import parse_expr
from mapper.host_plan import HostPlan, Launch

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_ID = re.compile(r"get_(local|group|global)_id\((\d)\)")
_BARRIER = re.compile(r"barrier\([A-Z_| ]+\); ?")
# Trip counts are said in sizes and tuning parameters, which are constants above the kernels.
_CONSTANTS = re.compile(r"enum \{([^}]*)\};")
_TRIP = re.compile(r"(for \(index_t (\w+) = 0; \2 < )([^;]*\bc_[^;]*);")
_ALWAYS = re.compile(r"if \(\(index_t\)0 < \d+\) \{")
_ROUNDS = re.compile(
    r"for \(index_t (n_(\w+)) = 0; \1 < (\d+); \+\+\1\) \{ "
    r"const index_t \2 = (?:\(index_t\))?0 \+ \1\*1;"
)


def normal_form(plan: HostPlan) -> str:
    """Text and launch sizes of a plan, without what makes no difference to any work-item.

    Dimensions are numbered as the kernel first asks for them.
    """
    source = _with_numbers(_COMMENT.sub("", plan.source))
    kernels = source.split("__attribute__((reqd_work_group_size")[1:]
    parts: list[str] = []
    for text, launch in zip(kernels, plan.launches, strict=True):
        _, _, body = text.partition("__kernel")
        plain = _plain(body, launch)
        order = list(dict.fromkeys(int(found.group(2)) for found in _ID.finditer(plain)))
        # Dimensions that no id is asked of, the largest first.
        rest = [d for d in range(3) if d not in order]
        order += sorted(rest, key=lambda d: (-launch.global_size[d], -launch.local_size[d]))
        sizes = [(launch.global_size[d], launch.local_size[d]) for d in order]
        parts.append(f"{sizes}{_renumbered(plain, order)}")
    return "\n".join(parts)


def _with_numbers(source: str) -> str:
    """The source with every trip count as a number."""
    values = {
        name: int(value)
        for block in _CONSTANTS.findall(source)
        for name, value in (pair.split(" = ") for pair in block.replace("\n", " ").split(", "))
        for name in (name.strip(),)
    }

    def number(match: re.Match[str]) -> str:
        trip = parse_expr(match.group(3).replace("/", "//")).evaluate(values)
        return f"{match.group(1)}{trip};"

    return _TRIP.sub(number, source)


def _renumbered(text: str, order: list[int]) -> str:
    return _ID.sub(lambda m: f"get_{m.group(1)}_id({order.index(int(m.group(2)))})", text)


def exact_form(plan: HostPlan) -> str:
    """Text without comments, and launch sizes: equal plans need judging once."""
    sizes = [(launch.global_size, launch.local_size) for launch in plan.launches]
    return f"{sizes}{_squeezed(plan.source)}"


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", _COMMENT.sub("", text))


def _plain(text: str, launch: Launch) -> str:
    def thread_id(match: re.Match[str]) -> str:
        kind, dimension = match.group(1), int(match.group(2))
        local = launch.local_size[dimension]
        groups = launch.global_size[dimension] // local
        if kind == "global":
            kind = "group" if local == 1 else "local" if groups == 1 else "global"
        if (kind == "local" and local == 1) or (kind == "group" and groups == 1):
            return "0"
        return f"get_{kind}_id({dimension})"

    text = _ID.sub(thread_id, _squeezed(text))
    if prod(launch.local_size) == 1:
        # Nobody to wait for.
        text = _BARRIER.sub("", text)
    text = _ALWAYS.sub("{", text)
    # One thread makes its rounds one iteration at a time: a loop like any other.
    return _ROUNDS.sub(r"for (index_t \2 = 0; \2 < \3; ++\2) {", text)
