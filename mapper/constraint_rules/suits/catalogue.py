"""All rules of suitability in one order, and what they say of a program on a device."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from mapper.ast_model.loop_nest import LoopProgram
from mapper.constraint_rules.rule import Constraint
from mapper.constraint_rules.suits.dimensions import DIMENSIONS_IN_ORDER, ONE_LINE
from mapper.constraint_rules.suits.memory import (
    LANES_ALONG,
    SUMS_IN_REGISTERS,
    WHOLE_VECTORS,
    WHOLE_WARPS,
)
from mapper.constraint_rules.suits.sharing import (
    COPIES_IN_LINE,
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
    WHOLE_VECTORS,
    LANES_ALONG,
    WHOLE_WARPS,
    SUMS_IN_REGISTERS,
)
#: The ids of all rules: what ``RuleOptions.suits`` may name.
ALL_SUITS = frozenset(suit.id for suit in SUITS)


def produce(
    loops: LoopProgram, device: DeviceProfile, wanted: Collection[str]
) -> Iterator[Constraint]:
    """What suits a device, of the wanted rules; InputError names those that there are not."""
    if unknown := sorted(set(wanted) - ALL_SUITS):
        allowed = ", ".join(suit.id for suit in SUITS)
        raise InputError(
            [Problem("suits", "no rule of suitability has this id", u, allowed) for u in unknown]
        )
    for suit in SUITS:
        if suit.id in wanted:
            for kernel in loops.kernels:
                yield from suit.constraints(kernel, device)
