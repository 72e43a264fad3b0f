"""Which rules keep no wrong program out: a mapping that breaks only these is valid, and runs."""

from __future__ import annotations

from mapper.constraint_rules import limits, sequential_fusion
from mapper.constraint_rules.suits.catalogue import ALL_SUITS

#: Ids of rules that only cut the search, or say what is likely to be fast.
PREFERENCES = frozenset({sequential_fusion.RULE_ID, limits.IDLE}) | ALL_SUITS
