"""Programs in which no name is bound twice, so that substitution captures nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from string import ascii_lowercase

from mapper.ast_model.builders import said_name
from mapper.ast_model.nodes import Kernel, Let, Map, Node, Program, Reduce, Ref
from mapper.schedules.facts import Facts, bound_names, facts_of, union
from mapper.schedules.tree import all_nodes, is_view, rebuilt, substituted, with_child


class Names:
    """Fresh names for one program: of values and of maps."""

    def __init__(self, program: Program) -> None:
        self._taken = {i.name for i in program.inputs} | {k.name for k in program.kernels}
        self._ids: set[str] = set()
        for kernel in program.kernels:
            facts = facts_of(kernel.body)
            self._taken |= facts.bound
            self._ids |= facts.computing | facts.layouts
        self._numbers: dict[str, int] = {}

    def value(self, stem: str) -> str:
        """A name for a value: the stem itself if it is free, else with a number behind."""
        return self._fresh(stem.rstrip("0123456789") or stem, self._taken, "")

    def map_id(self, stem: str) -> str:
        """An id for a map."""
        return self._fresh(stem, self._ids, "_")

    def _fresh(self, stem: str, taken: set[str], between: str) -> str:
        name, number = stem, self._numbers.get(stem, 1)
        while name in taken:
            number += 1
            name = f"{stem}{between}{number}"
        self._numbers[stem] = number
        taken.add(name)
        return name


def with_unique_names(program: Program) -> Program:
    """Names that are bound a second time get a number, and so do ids of maps that only lay out.

    Maps that compute keep their ids; two of one id are the type checker's business.
    """
    names = {i.name for i in program.inputs} | {k.name for k in program.kernels}
    names |= {p.name for p in program.parameters} | {name for name, _ in program.sizes}
    facts = [facts_of(k.body) for k in program.kernels]
    computing = set(union(f.computing for f in facts))
    bound, layouts = union(f.bound for f in facts), union(f.layouts for f in facts)
    if (
        len(bound) == sum(f.bindings for f in facts)
        and len(layouts) == sum(f.layout_maps for f in facts)
        and bound.isdisjoint(names)
        and layouts.isdisjoint(computing)
    ):
        return program
    walk = _Walk(names, computing)
    kernels = tuple(replace(k, body=walk.renamed(k.body, {})) for k in program.kernels)
    return replace(program, kernels=kernels)


def with_named_steps(program: Program) -> Program:
    """The program with unique names in which each reduce's step has a name that says which it is:
    its own where no other says the same, else ``<kernel>_<name>`` or ``<kernel>_step``.

    Numbers behind names change when a program is rewritten, so that they say nothing.
    """
    reduces = [n for n in all_nodes(program) if isinstance(n, Reduce)]
    said = Counter(said_name(node.parameter) for node in reduces)
    taken = set(said)
    kernels: list[Kernel] = []
    for kernel in program.kernels:

        def named(node: Node, of: str = kernel.name) -> Node:
            node = rebuilt(node, named)
            if not isinstance(node, Reduce):
                return node
            own = said_name(node.parameter)
            if own and said[own] == 1:
                return node
            stem = f"{of}_{own or 'step'}"
            name = next(n for n in (stem, *(f"{stem}_{c}" for c in _LETTERS)) if n not in taken)
            taken.add(name)
            body = substituted(node.body, {node.parameter: Ref(name)})
            return replace(node, parameter=name, body=body)

        kernels.append(replace(kernel, body=named(kernel.body)))
    return with_unique_names(replace(program, kernels=tuple(kernels)))


#: Of the reduces of one kernel whose steps are called alike, beside the first.
_LETTERS = tuple(f"{a}{b}" for a in ascii_lowercase for b in ascii_lowercase)


class _Walk:
    def __init__(self, names: set[str], ids: set[str]) -> None:
        self._names, self._ids = names, ids
        self._numbers: dict[str, int] = {}

    def renamed(self, node: Node, values: Mapping[str, str]) -> Node:
        """The node with new names for those that are taken; itself where none is."""
        facts = facts_of(node)
        if self._is_unique(facts) and facts.free.isdisjoint(values):
            self._names |= facts.bound
            self._ids |= facts.layouts
            return node
        if isinstance(node, Ref):
            return Ref(values.get(node.name, node.name))
        bound = bound_names(node)
        if not bound:
            return rebuilt(node, lambda child: self.renamed(child, values))
        fresh = {name: self._fresh(name, self._names) for name in bound}
        inner = {**values, **fresh}
        match node:
            case Map():
                new = replace(node, parameter=fresh[node.parameter])
                if is_view(node.body):
                    new = replace(new, id=self._id(str(node.id)) if self._taken(node) else node.id)
                    self._ids.add(str(new.id))
                argument = self.renamed(node.argument, values)
                return replace(new, argument=argument, body=self.renamed(node.body, inner))
            case Reduce():
                return replace(
                    node,
                    accumulator=fresh[node.accumulator],
                    parameter=fresh[node.parameter],
                    initial=self.renamed(node.initial, values),
                    argument=self.renamed(node.argument, values),
                    body=self.renamed(node.body, inner),
                )
            case Let():
                value = self.renamed(node.value, values)
                new = replace(node, name=fresh[node.name], value=value)
                return with_child(new, "body", self.renamed(node.body, inner))
            case _:
                raise AssertionError(node)

    def _is_unique(self, facts: Facts) -> bool:
        return (
            len(facts.bound) == facts.bindings
            and len(facts.layouts) == facts.layout_maps
            and facts.bound.isdisjoint(self._names)
            and facts.layouts.isdisjoint(self._ids)
        )

    def _taken(self, node: Map) -> bool:
        return str(node.id) in self._ids

    def _id(self, text: str) -> str:
        stem = text if text.startswith("layout") else "layout"
        return self._fresh(f"{stem.rstrip('0123456789')}", self._ids)

    def _fresh(self, name: str, taken: set[str]) -> str:
        if name in taken:
            stem = name.rstrip("0123456789")
            said = said_name(name) or stem
            number = self._numbers.get(said, 1)
            while f"{said}{number}" in taken:
                number += 1
            self._numbers[said] = number
            name = f"{said}{number}"
        taken.add(name)
        return name
