"""All rules of suitability in one order, and what they say of a program on a device."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from mapper.ast_model.loop_nest import LoopProgram
from mapper.constraint_rules.rule import Constraint
from mapper.constraint_rules.suits.dimensions import DIMENSIONS_IN_ORDER, ONE_LINE
from mapper.constraint_rules.suits.memory import (
    LANES_ALONG,
    NOTHING_STAGED,
    WHOLE_VECTORS,
    WHOLE_WARPS,
)
from mapper.constraint_rules.suits.registers import OPERANDS_IN_REGISTERS, SUMS_IN_REGISTERS
from mapper.constraint_rules.suits.sharing import (
    COPIES_IN_LINE,
    COPIES_SHARED_OUT,
    GROUPS_OUTSIDE,
    ITEMS_INSIDE,
    LONE_ITEMS,
    NOTHING_SHARED,
)
from mapper.constraint_rules.suits.suit import Suit
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, Problem

SUITS: tuple[Suit, ...] = (
    ONE_LINE,
    DIMENSIONS_IN_ORDER,
    GROUPS_OUTSIDE,
    ITEMS_INSIDE,
    NOTHING_SHARED,
    LONE_ITEMS,
    COPIES_IN_LINE,
    COPIES_SHARED_OUT,
    WHOLE_VECTORS,
    LANES_ALONG,
    WHOLE_WARPS,
    NOTHING_STAGED,
    SUMS_IN_REGISTERS,
    OPERANDS_IN_REGISTERS,
)
#: The ids of all rules: what ``RuleOptions.suits`` may name.
ALL_SUITS = frozenset(suit.id for suit in SUITS)


#: Stands for all of them where ids are asked for by name.
EVERY = "all"


def wanted_suits(texts: Sequence[str]) -> frozenset[str]:
    """The ids that texts such as ``all,-suits-whole-warps`` name, each adding or taking away.

    InputError names those that there are not.
    """
    found: set[str] = set()
    for name in (name.strip() for text in texts for name in text.split(",")):
        plain = name.removeprefix("-")
        ids = ALL_SUITS if plain == EVERY else {plain}
        _refuse_unknown(ids)
        found = found - ids if name.startswith("-") else found | ids
    return frozenset(found)


def _refuse_unknown(ids: Collection[str]) -> None:
    allowed = ", ".join((EVERY, *(suit.id for suit in SUITS)))
    problems = [
        Problem("suits", "no rule of suitability has this id", name[:80], allowed)
        for name in sorted(set(ids) - ALL_SUITS)
    ]
    if problems:
        raise InputError(problems)


def produce(
    loops: LoopProgram, device: DeviceProfile, wanted: Collection[str]
) -> Iterator[Constraint]:
    """What suits a device, of the wanted rules; InputError names those that there are not."""
    _refuse_unknown(wanted)
    for suit in SUITS:
        if suit.id in wanted:
            for kernel in loops.kernels:
                yield from suit.constraints(kernel, device)
