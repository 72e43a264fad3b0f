"""What a state still demands of variables that come after all codes.

Conditions over these variables are atoms: truths that the automaton would read after the codes.
A state at the end of the codes is turned back into predicates over the atoms.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.constraint_rules.predicate import FALSE, Predicate, any_of, negate
from mapper.solver.diagram.automaton import KILL, Automaton, Bit

Words = NDArray[np.uint64]
#: Literals that all hold, by number: numbers have the same order in every process.
Conjunction = frozenset[int]
Residual = tuple[Predicate, ...]
_ALWAYS: Conjunction = frozenset()


class ResidualReader:
    """Reads the states of an automaton whose levels from ``codes`` on are atoms."""

    def __init__(self, automaton: Automaton, codes: int, atoms: Sequence[Predicate]) -> None:
        self._automaton = automaton
        self._codes = codes
        self._atoms = atoms
        chains = automaton.chains
        # A chain or goal that only atoms can bring about is not there yet; its bit may still
        # be another's.
        self._late = [
            index
            for index, chain in enumerate(chains)
            if chain.place >= codes and (chain.head or chain.first < codes)
        ]
        self._conjunctions: dict[int, Conjunction] = {}
        self._literals: list[Predicate] = []
        self._numbers: dict[Predicate, int] = {}
        self._denials: dict[Conjunction, Predicate] = {}
        # Which conjunctions can still be completed by atoms, by what they lead to.
        self._arms = [
            (index, goal)
            for index, goal in enumerate(automaton.goals)
            if not goal.is_flag and goal.end >= codes
        ]

    def read(self, states: Words) -> list[Residual]:
        """For each state, given as a column of words, all that must hold, in one order."""
        automaton = self._automaton
        columns = int(states.shape[1])
        alive: list[NDArray[np.bool_]] = []
        for index in self._late:
            chain = automaton.chains[index]
            if chain.head:
                alive.append(np.ones(columns, np.bool_))
            else:
                alive.append(_truth(states, automaton.chain_bits[index]))
        table = np.array(alive, np.bool_).reshape(len(self._late), states.shape[1])
        return [self._one(states[:, column], table[:, column]) for column in range(states.shape[1])]

    def _one(self, state: NDArray[Any], alive: NDArray[Any]) -> Residual:
        automaton = self._automaton
        broken: dict[Conjunction, None] = {}
        leading: dict[int, list[Conjunction]] = {}
        for place in np.flatnonzero(alive):
            index = self._late[int(place)]
            goal = automaton.chains[index].goal
            if goal == KILL:
                broken[self._conjunction(index)] = None
            else:
                leading.setdefault(goal, []).append(self._conjunction(index))
        known: dict[int, list[Conjunction]] = {}

        def ways(index: int) -> list[Conjunction]:
            """In which ways a goal is set in the end."""
            found = known.get(index)
            if found is None:
                early = automaton.goals[index].first < self._codes
                bit = automaton.goal_bits.get(index) if early else None
                if bit is not None and int(state[bit.word]) >> bit.position & 1:
                    found = [_ALWAYS]
                else:
                    found = leading.get(index, [])
                    for place, arm in self._arms:
                        if arm.outcome == index:
                            found = found + firings(place)
                    found = shortest(found)
                known[index] = found
            return found

        def firings(index: int) -> list[Conjunction]:
            goal = automaton.goals[index]
            found = ways(index)
            for flag in goal.set_:
                found = [one | other for one in found for other in ways(flag)]
            for flag in goal.unset:
                if found:
                    against = [self._denial(way) for way in ways(flag)]
                    denied = frozenset(self._number(predicate) for predicate in against)
                    found = [one | denied for one in found] if FALSE not in against else []
            return shortest(found)

        for index, arm in self._arms:
            if arm.outcome == KILL:
                broken |= dict.fromkeys(firings(index))
        return tuple(self._denial(way) for way in shortest(broken))

    def _number(self, literal: Predicate) -> int:
        known = self._numbers.get(literal)
        if known is None:
            known = self._numbers[literal] = len(self._literals)
            self._literals.append(literal)
        return known

    def _denial(self, conjunction: Conjunction) -> Predicate:
        """That some literal does not hold."""
        found = self._denials.get(conjunction)
        if found is None:
            parts = [negate(self._literals[number]) for number in sorted(conjunction)]
            found = self._denials[conjunction] = any_of(*parts)
        return found

    def _conjunction(self, index: int) -> Conjunction:
        """What a chain still needs; all of it is atoms."""
        found = self._conjunctions.get(index)
        if found is None:
            chain = self._automaton.chains[index]
            atom = self._atoms[chain.place - self._codes]
            literal = frozenset({self._number(atom if chain.mask == 2 else negate(atom))})
            rest = _ALWAYS if chain.follows == KILL else self._conjunction(chain.follows)
            found = self._conjunctions[index] = literal | rest
        return found


def shortest(conjunctions: Iterable[Conjunction]) -> list[Conjunction]:
    """Without those that another, shorter one entails."""
    kept: list[Conjunction] = []
    for conjunction in sorted(set(conjunctions), key=lambda one: (len(one), sorted(one))):
        if not any(short <= conjunction for short in kept):
            kept.append(conjunction)
    return kept


def _truth(states: Words, bit: Bit) -> NDArray[np.bool_]:
    return (states[bit.word] >> np.uint64(bit.position)) & np.uint64(1) != 0
