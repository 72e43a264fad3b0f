"""The layers of an automaton: the sweep of :mod:`sweep`, with states packed in words.

All states of a level move at once. Values that no chain tells apart move together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.constraint_rules.predicate import Variable
from mapper.errors import LimitError, Problem
from mapper.solver.diagram.automaton import Automaton, Bit, LevelProgram, Move
from mapper.solver.diagram.grouping import group_words
from mapper.solver.diagram.layers import Layer
from mapper.solver.diagram.order import bits
from mapper.solver.limits import Watch

# Of states and classes that are looked at together.
_BLOCK = 1 << 14
_ALL = (1 << 64) - 1

Words = NDArray[np.uint64]
Array = NDArray[Any]


def bit_sweep(
    automaton: Automaton,
    order: Sequence[Variable],
    domains: Sequence[tuple[int, ...]],
    allowed: Sequence[int],
    watch: Watch,
    most_states: int | None = None,
) -> tuple[list[Layer], Words]:
    """The layers, dead ends included, and the words of the states at the end.

    LimitError if a level would have more than ``most_states``.
    """
    state = np.array([automaton.start], np.uint64).T
    layers: list[Layer] = []
    for level, (variable, domain) in enumerate(zip(order, domains, strict=True)):
        watch.tick(level / len(domains))
        program = automaton.levels[level]
        classes = _classes(program.moves, allowed[level])
        states = state.shape[1]
        moved, source, chosen = _move(automaton, program, state, classes)
        first, target = group_words(moved)
        if most_states is not None and len(first) > most_states:
            raise too_many_classes(len(first), most_states)
        state = moved[:, first]
        source, value, target = _spread(source, chosen, target, classes)
        layer = Layer(variable, domain, states, len(first), source, value, target)
        watch.hold(layer.n_bytes, "the decision diagram")
        layers.append(layer)
    return layers, state


def too_many_classes(found: int, allowed: int) -> LimitError:
    """What is said of codes that leave too many different demands."""
    return LimitError(
        Problem("", "the schedules are tied to too many conditions to be counted",
                f"{found} classes of them", f"{allowed}", "pin or forbid schedules")
    )  # fmt: skip


def _classes(moves: Sequence[Move], allowed: int) -> list[list[int]]:
    """The allowed values, those together that every move treats alike."""
    parts: list[int] = [allowed] if allowed else []
    for mask in {move.mask for move in moves}:
        refined: list[int] = []
        for part in parts:
            inside = part & mask
            if inside and inside != part:
                refined += [inside, part ^ inside]
            else:
                refined.append(part)
        parts = refined
    return [bits(part) for part in sorted(parts)]


def _move(
    automaton: Automaton, program: LevelProgram, state: Words, classes: list[list[int]]
) -> tuple[Words, Array, Array]:
    """Every state with every class: new states as columns, with the state and class of each."""
    words, states = state.shape
    kinds = len(classes)
    firsts = [values[0] for values in classes]
    constants = [[0] * kinds for _ in range(words)]
    kills = [[0] * kinds for _ in range(words)]
    barred = 0
    # Bits of one word that move equally far for the same values move together.
    moving: dict[int, dict[tuple[int, int, int], int]] = {}
    for move in program.moves:
        if move.target is not None and move.bit is not None:
            together = moving.setdefault(move.target.word, {})
            key = move.bit.word, move.target.position - move.bit.position, move.mask
            together[key] = together.get(key, 0) | 1 << move.bit.position
        elif move.target is not None:
            _set(constants[move.target.word], move.target.position, move.mask, firsts)
        elif move.bit is not None:
            _set(kills[move.bit.word], move.bit.position, move.mask, firsts)
        else:
            barred |= move.mask
    constant, killing = np.array(constants, np.uint64), np.array(kills, np.uint64)
    kept = state & np.array(program.keep, np.uint64)[:, None]

    def moved_word(word: int, rows: Array, kind: Array) -> Words:
        if word not in moving:
            return kept[word][rows] | constant[word][kind]
        steps = [
            (source, shift, np.uint64(taken), _hits(mask, firsts)[:, None])
            for (source, shift, mask), taken in moving[word].items()
        ]
        new = np.empty(len(rows), np.uint64)
        # Block by block every state with every class, whether it is alive or not: looking up
        # each extension on its own takes longer.
        size = max(1, _BLOCK // max(kinds, 1))
        for begin in range(0, states, size):
            block = state[:, begin : begin + size]
            low, high = np.searchsorted(rows, (begin, begin + size))
            if low == high:
                continue
            table = kept[word, begin : begin + size] | constant[word][:, None]
            for source, shift, taken, hit in steps:
                moved = block[source] & taken
                moved = moved << np.uint64(shift) if shift >= 0 else moved >> np.uint64(-shift)
                table |= moved & hit
            new[low:high] = table[kind[low:high], rows[low:high] - begin]
        return new

    dead = np.empty((states, kinds), np.bool_)
    dead[:] = [bool(barred >> first & 1) for first in firsts]
    for word in range(words):
        if killing[word].any():
            dead = dead | ((state[word][:, None] & killing[word][None, :]) != 0)
    # Arms and flags first: what they break need not be moved any further.
    rows, kind = np.divmod(np.flatnonzero(~dead), kinds)
    early: dict[int, Words] = {}
    for pair in range(automaton.pairs):
        arms, flags = (moved_word(2 * pair + side, rows, kind) for side in (0, 1))
        early[2 * pair], early[2 * pair + 1] = arms, flags
        alive = np.flatnonzero((arms & flags) == 0)
        if len(alive) < len(rows):
            rows, kind = rows[alive], kind[alive]
            early = {word: column[alive] for word, column in early.items()}
    moved = np.empty((words, len(rows)), np.uint64)
    for word in range(words):
        moved[word] = early[word] if word in early else moved_word(word, rows, kind)
    return _finish(automaton, program, moved, rows, kind)


def _hits(mask: int, firsts: Sequence[int]) -> Words:
    """All bits for each class whose values a mask has, none for the others."""
    return np.array([_ALL if mask >> first & 1 else 0 for first in firsts], np.uint64)


def _set(row: list[int], position: int, mask: int, firsts: Sequence[int]) -> None:
    """Set a bit for each class whose values a mask has."""
    for kind, first in enumerate(firsts):
        row[kind] |= (mask >> first & 1) << position


def _finish(
    automaton: Automaton, program: LevelProgram, moved: Words, source: Array, chosen: Array
) -> tuple[Words, Array, Array]:
    """Flags that armed conjunctions wait for, and bits that do not matter any more."""
    if program.triggers:
        dead = np.zeros(moved.shape[1], np.bool_)
        for trigger in program.triggers:
            fires = _truth(moved, trigger.arm) if trigger.arm else np.ones(1, np.uint64)
            for bit in trigger.set_:
                fires = fires & _truth(moved, bit)
            for bit in trigger.unset:
                fires = fires & ~_truth(moved, bit) & np.uint64(1)
            if trigger.outcome is None:
                dead |= fires != 0
            else:
                moved[trigger.outcome.word] |= fires << np.uint64(trigger.outcome.position)
        for pair in range(automaton.pairs):
            dead |= (moved[2 * pair] & moved[2 * pair + 1]) != 0
        if dead.any():
            moved, source, chosen = moved[:, ~dead], source[~dead], chosen[~dead]
    for bit, mask in program.settled:
        done = _truth(moved, bit) - np.uint64(1)  # all ones where the goal is not set
        for word, covered in enumerate(mask):
            if covered:
                moved[word] &= done | np.uint64(~covered & (1 << 64) - 1)
    moved &= np.array(program.after, np.uint64)[:, None]
    return moved, source, chosen


def _truth(state: Words, bit: Bit) -> Words:
    """A bit of every state, as 0 or 1."""
    return (state[bit.word] >> np.uint64(bit.position)) & np.uint64(1)


def _spread(
    source: Array, chosen: Array, target: Array, classes: list[list[int]]
) -> tuple[Array, Array, Array]:
    """Arcs of classes as arcs of their values."""
    if all(len(values) == 1 for values in classes):
        first = np.array([values[0] for values in classes])
        return source, first[chosen], target
    sizes = np.array([len(values) for values in classes])
    members = np.array([value for values in classes for value in values])
    begins = np.cumsum(sizes) - sizes
    own = sizes[chosen]
    ends = np.cumsum(own)
    arc = np.repeat(np.arange(len(chosen)), own)
    offset = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - own, own)
    return source[arc], members[begins[chosen][arc] + offset], target[arc]
