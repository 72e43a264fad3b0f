"""Conjunctions as one automaton over the variables in order, its states packed in bits.

Each conjunction is a chain: the part of it that is still to come is a node, alive once all
before it held. Conjunctions with the same rest share its node, so that states are equal
whenever the rests are. A chain that ends breaks a constraint, sets a flag, or arms a
conjunction that waits for flags.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush

from mapper.solver.diagram.events import Conjunction, Events

#: What a chain leads to: a node, or one of these.
KILL = -1
WORD = 63


@dataclass(slots=True)
class Chain:
    """The rest of conjunctions from a level on: a literal, and what follows if it is true."""

    place: int
    mask: int
    follows: int
    goal: int
    head: bool = False
    first: int = 1 << 60


@dataclass(slots=True)
class Goal:
    """What a conjunction sets when its literals hold: a flag, or an arm that waits for flags.

    ``first`` and ``last`` are the levels at which it can be set, ``end`` the last one at which
    anybody asks.
    """

    set_: tuple[int, ...] = ()
    unset: tuple[int, ...] = ()
    outcome: int = KILL
    is_flag: bool = False
    first: int = 1 << 60
    last: int = -1
    end: int = -1
    from_start: bool = False


@dataclass(frozen=True, slots=True)
class Bit:
    """Where a truth stands in a state."""

    word: int
    position: int


@dataclass(frozen=True, slots=True)
class Move:
    """At a level: if the node's bit is set (always, for None), these values set a bit."""

    bit: Bit | None
    mask: int
    target: Bit | None


@dataclass(frozen=True, slots=True)
class Trigger:
    """An armed conjunction: with these flags set and those unset it has this outcome."""

    arm: Bit | None
    set_: tuple[Bit, ...]
    unset: tuple[Bit, ...]
    outcome: Bit | None


@dataclass(slots=True)
class LevelProgram:
    """What happens to a state when a variable is decided.

    A move without a target breaks a constraint. ``keep`` and ``after`` are the bits that
    outlive the decision and the checks behind it; ``settled`` lists goals with the bits that
    do not matter any more once they are set.
    """

    moves: list[Move] = field(default_factory=list[Move])
    triggers: list[Trigger] = field(default_factory=list[Trigger])
    keep: list[int] = field(default_factory=list[int])
    after: list[int] = field(default_factory=list[int])
    settled: list[tuple[Bit, list[int]]] = field(default_factory=list[tuple[Bit, list[int]]])


@dataclass(slots=True)
class Automaton:
    """Programs by level. Words ``2k`` and ``2k + 1`` for ``k < pairs`` hold arms and flags in
    matching places: a bit in both breaks a constraint. ``chains`` and ``goals`` are what the
    bits stand for."""

    words: int
    pairs: int
    start: list[int]
    levels: list[LevelProgram]
    chains: list[Chain] = field(default_factory=list[Chain])
    goals: list[Goal] = field(default_factory=list[Goal])
    chain_bits: dict[int, Bit] = field(default_factory=dict[int, Bit])
    goal_bits: dict[int, Bit] = field(default_factory=dict[int, Bit])


class _Builder:
    def __init__(self, events: Events, levels: int) -> None:
        self.levels = levels
        self.chains: list[Chain] = []
        self._known: dict[tuple[int, int, int, int], int] = {}
        self.goals: list[Goal] = [Goal(is_flag=True) for _ in events.flags]
        self._arms: dict[tuple[tuple[int, ...], tuple[int, ...], int], int] = {}
        self.impossible = False
        for flag, alternatives in enumerate(events.flags):
            for conjunction in alternatives:
                self._enter(conjunction, flag)
        for conjunction in events.kills:
            self._enter(conjunction, KILL)
        self._date()

    def _enter(self, conjunction: Conjunction, outcome: int) -> None:
        literals, on, off = conjunction
        goal = outcome
        if on or off:
            key = (on, off, outcome)
            known = self._arms.get(key)
            if known is None:
                known = self._arms[key] = len(self.goals)
                self.goals.append(Goal(on, off, outcome))
            goal = known
        if not literals:
            if goal == KILL:
                self.impossible = True
            else:
                self.goals[goal].from_start = True
                self.goals[goal].first = -1
            return
        follows = KILL
        levels = self.chains
        for place, mask in reversed(literals):
            key4 = (place, mask, follows, goal)
            known = self._known.get(key4)
            if known is None:
                known = self._known[key4] = len(levels)
                levels.append(Chain(place, mask, follows, goal))
            if follows != KILL:
                chain = levels[follows]
                chain.first = min(chain.first, place)
            follows = known
        levels[follows].head = True

    def _date(self) -> None:
        """When goals can be set, and until when they matter. Flags come before their users."""
        goals = self.goals
        for chain in self.chains:
            if chain.follows == KILL and chain.goal != KILL:
                goal = goals[chain.goal]
                goal.first = min(goal.first, chain.place)
                goal.last = max(goal.last, chain.place)
        flags = [goal for goal in goals if goal.is_flag]
        arms = [goal for goal in goals if not goal.is_flag]
        # A flag's users were entered after the flags within it were complete.
        for arm in sorted(arms, key=lambda arm: max((*arm.set_, *arm.unset))):
            arm.end = max(arm.last, *(flags[f].last for f in (*arm.set_, *arm.unset)))
            if arm.outcome != KILL:
                outcome = flags[arm.outcome]
                outcome.first = min(outcome.first, max(arm.first, 0))
                outcome.last = max(outcome.last, arm.end)
        for arm in arms:
            for used in (*arm.set_, *arm.unset):
                flags[used].end = max(flags[used].end, arm.end)


class _Slots:
    """Places for bits that live from one level to another, used again afterwards."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._busy: list[tuple[int, int]] = []
        self.used = 0

    def take(self, first: int, end: int) -> int:
        """A place that nobody holds from ``first`` on; calls come in the order of ``first``."""
        while self._busy and self._busy[0][0] <= first:
            heappush(self._free, heappop(self._busy)[1])
        if self._free:
            place = heappop(self._free)
        else:
            place, self.used = self.used, self.used + 1
        heappush(self._busy, (end, place))
        return place


def build_automaton(events: Events, levels: int) -> Automaton | None:
    """The automaton over ``levels`` variables; None if a constraint cannot hold at all."""
    builder = _Builder(events, levels)
    if builder.impossible:
        return None
    goals, chains = builder.goals, builder.chains
    paired: dict[int, int] = {}
    for index, goal in enumerate(goals):
        if not goal.is_flag and goal.outcome == KILL and len(goal.set_) == 1 and not goal.unset:
            paired[index] = goal.set_[0]
    pair_slots, bit_slots = _Slots(), _Slots()
    pair_of: dict[int, int] = {}
    wanted = sorted(
        (min(goals[arm].first, goals[flag].first), max(goals[arm].end, goals[flag].end), arm, flag)
        for arm, flag in paired.items()
    )
    for first, end, arm, flag in wanted:
        pair_of[arm] = pair_of[flag] = pair_slots.take(first, end + 1)
    requests: list[tuple[int, int, int, bool]] = []
    for index, chain in enumerate(chains):
        if not chain.head:
            requests.append((chain.first, chain.place, index, True))
    for index, goal in enumerate(goals):
        if index not in pair_of and goal.end >= 0:
            requests.append((goal.first, goal.end + 1, index, False))
    pairs = -(-pair_slots.used // WORD)
    goal_bits: dict[int, Bit] = {}
    chain_bits: dict[int, Bit] = {}
    for arm, flag in paired.items():
        word, position = divmod(pair_of[arm], WORD)
        goal_bits[arm] = Bit(2 * word, position)
        goal_bits[flag] = Bit(2 * word + 1, position)
    for first, end, index, is_chain in sorted(requests):
        word, position = divmod(bit_slots.take(first, end), WORD)
        bit = Bit(2 * pairs + word, position)
        (chain_bits if is_chain else goal_bits)[index] = bit
    words = 2 * pairs + -(-bit_slots.used // WORD)
    automaton = Automaton(
        words,
        pairs,
        [0] * words,
        [LevelProgram() for _ in range(levels)],
        chains,
        goals,
        chain_bits,
        goal_bits,
    )
    for index, goal in enumerate(goals):
        if goal.from_start and goal.end >= 0:
            _set(automaton.start, goal_bits[index])
    _fill(automaton, builder, chain_bits, goal_bits, set(paired))
    return automaton


def _fill(
    automaton: Automaton,
    builder: _Builder,
    chain_bits: dict[int, Bit],
    goal_bits: dict[int, Bit],
    paired: set[int],
) -> None:
    goals, chains, levels = builder.goals, builder.chains, automaton.levels
    lives = _Lives(automaton.words, len(levels))
    for index, chain in enumerate(chains):
        bit = None if chain.head else chain_bits[index]
        if bit is not None:
            lives.add(bit, chain.first, chain.place)
            lives.consumed[chain.place][bit.word] |= 1 << bit.position
        if chain.follows != KILL:
            if chains[chain.follows].head:
                continue
            target = chain_bits[chain.follows]
        elif chain.goal == KILL:
            target = None
        elif goals[chain.goal].end >= 0:
            target = goal_bits[chain.goal]
        else:
            continue
        levels[chain.place].moves.append(Move(bit, chain.mask, target))
    for index, goal in enumerate(goals):
        if goal.end < 0:
            continue
        lives.add(goal_bits[index], goal.first, goal.end)
        if goal.is_flag or index in paired:
            continue
        if goal.outcome != KILL and goals[goal.outcome].end < 0:
            # A flag that no conjunction uses has no bit.
            continue
        on = tuple(goal_bits[f] for f in goal.set_)
        off = tuple(goal_bits[f] for f in goal.unset)
        outcome = None if goal.outcome == KILL else goal_bits[goal.outcome]
        trigger = Trigger(goal_bits[index], on, off, outcome)
        begin = goal.end if goal.unset else goal.first
        for level in range(max(begin, 0), goal.end + 1):
            levels[level].triggers.append(trigger)
    alive = lives.by_level()
    for level, program in enumerate(levels):
        program.keep = [
            bits & ~gone for bits, gone in zip(alive[level], lives.consumed[level], strict=True)
        ]
        program.after = alive[level + 1]
    _settle(automaton, builder, chain_bits, goal_bits)


class _Lives:
    """Which bits matter between levels; entry ``i`` is before level ``i``."""

    def __init__(self, words: int, levels: int) -> None:
        self._words = words
        self._on = [[0] * words for _ in range(levels + 1)]
        self._off = [[0] * words for _ in range(levels + 2)]
        self.consumed = [[0] * words for _ in range(levels)]

    def add(self, bit: Bit, first: int, end: int) -> None:
        """The bit can be set at level ``first`` and is last read at level ``end``."""
        if first < end:
            self._on[first + 1][bit.word] |= 1 << bit.position
            self._off[end + 1][bit.word] |= 1 << bit.position

    def by_level(self) -> list[list[int]]:
        """The bits that matter before each level, and at the end."""
        current = [0] * self._words
        found: list[list[int]] = []
        for on, off in zip(self._on, self._off, strict=False):
            current = [
                (bits & ~gone) | new for bits, gone, new in zip(current, off, on, strict=True)
            ]
            found.append(current)
        return found


def _settle(
    automaton: Automaton,
    builder: _Builder,
    chain_bits: dict[int, Bit],
    goal_bits: dict[int, Bit],
) -> None:
    """Once a goal is set, the chains that lead to it do not matter."""
    masks: dict[tuple[int, int], list[int]] = {}
    for index, chain in enumerate(builder.chains):
        if chain.goal == KILL or chain.head or builder.goals[chain.goal].end < 0:
            continue
        bit = chain_bits[index]
        goal = builder.goals[chain.goal]
        for level in range(max(chain.first, goal.first), min(chain.place, goal.end)):
            mask = masks.get((level, chain.goal))
            if mask is None:
                mask = masks[level, chain.goal] = [0] * automaton.words
            mask[bit.word] |= 1 << bit.position
    for (level, goal_index), mask in masks.items():
        automaton.levels[level].settled.append((goal_bits[goal_index], mask))


def _set(words: list[int], bit: Bit) -> None:
    words[bit.word] |= 1 << bit.position
