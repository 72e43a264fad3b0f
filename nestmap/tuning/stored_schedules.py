"""Which programs of a store are some program under a schedule."""

from __future__ import annotations

import json

from db.canonical import canonical_json, content_hash
from db.store import Store
from mapper.schedules.scheduled import SCHEDULED_SCHEMA


def scheduled_in(store: Store, program_hash: str) -> frozenset[str]:
    """The hashes of what a store holds of a program (by its hash) under schedules."""
    found: set[str] = set()
    for stored in store.programs(SCHEDULED_SCHEMA):
        written = json.loads(stored.json_text)["program"]
        if content_hash(canonical_json(written)) == program_hash:
            found.add(stored.hash)
    return frozenset(found)
