"""Nests of maps as trees: of a candidate with its schedules, or of a layer without any."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from api.dashboard.views.schedules import Schedule, schedule
from mapper.errors import InputError
from mapper.schedule import parse_code


@dataclass(slots=True)
class TreeNode:
    """A map or reduce with what is inside it.

    ``trip`` is the trip count in sizes and parameters, ``iterations`` the number where it is
    known. A reduce has no schedule; neither has a map that nothing was chosen for.
    """

    name: str
    is_reduce: bool
    schedule: Schedule | None
    trip: str
    iterations: int | None
    reads: tuple[str, ...]
    writes: str
    nested: list[TreeNode] = field(default_factory=list["TreeNode"])

    @property
    def size(self) -> int:
        """Maps and reduces inside it."""
        return sum(1 + node.size for node in self.nested)


@dataclass(frozen=True, slots=True)
class KernelTree:
    """A kernel with its outermost maps."""

    name: str
    roots: tuple[TreeNode, ...]
    local_size: tuple[int, ...] | None = None
    global_size: tuple[int, ...] | None = None

    def nodes(self) -> Iterator[tuple[int, TreeNode]]:
        """Every node with its depth, outer before inner."""
        stack = [(0, node) for node in reversed(self.roots)]
        while stack:
            depth, node = stack.pop()
            yield depth, node
            stack += [(depth + 1, inner) for inner in reversed(node.nested)]


def tree_of_candidate(kernel: Mapping[str, Any]) -> KernelTree:
    """Of a kernel of a ``portrait``, whose loops are listed with their depths."""
    roots: list[TreeNode] = []
    open_nodes: list[TreeNode] = []
    for loop in kernel["loops"]:
        name = str(loop["name"])
        is_reduce = name.startswith("reduce ")
        node = TreeNode(
            name.removeprefix("reduce ") if is_reduce else name,
            is_reduce,
            schedule(int(parse_code(loop["schedule"]))) if loop["schedule"] else None,
            loop["trip"],
            loop["iterations"],
            tuple(loop["reads"]),
            loop["writes"],
        )
        del open_nodes[loop["depth"] :]
        (open_nodes[-1].nested if open_nodes else roots).append(node)
        open_nodes.append(node)
    return KernelTree(
        kernel["name"], tuple(roots), tuple(kernel["local_size"]), tuple(kernel["global_size"])
    )


def trees_of_layer(
    kernels: Sequence[Mapping[str, Any]], codes: Mapping[str, Any] | None = None
) -> tuple[KernelTree, ...]:
    """Of the kernels of a ``describe``; ``codes`` are by map, as numbers or names."""
    return tuple(
        KernelTree(kernel["name"], tuple(_described(item, codes or {}) for item in kernel["maps"]))
        for kernel in kernels
    )


def _described(item: Mapping[str, Any], codes: Mapping[str, Any]) -> TreeNode:
    name = str(item["id"])
    return TreeNode(
        name,
        False,
        _chosen(codes.get(name)),
        item["trip"],
        int(item["trip"]) if str(item["trip"]).isdigit() else None,
        tuple(item["reads"]),
        item["writes"],
        [_described(inner, codes) for inner in item["nested"]],
    )


def _chosen(code: Any) -> Schedule | None:
    if code is None:
        return None
    try:
        return schedule(int(parse_code(code)))
    except InputError:
        return None
