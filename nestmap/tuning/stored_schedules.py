"""What a store holds of programs under schedules."""

from __future__ import annotations

import json

from db.canonical import canonical_json, content_hash
from db.records import Study
from db.store import Store
from mapper.pipeline import Subject
from mapper.schedules.scheduled import SCHEDULED_SCHEMA
from nestmap.subjects import subject_of_document


def scheduled_in(store: Store, program_hash: str) -> frozenset[str]:
    """The hashes of what a store holds of a program (by its hash) under schedules."""
    found: set[str] = set()
    for stored in store.programs(SCHEDULED_SCHEMA):
        written = json.loads(stored.json_text)["program"]
        if content_hash(canonical_json(written)) == program_hash:
            found.add(stored.hash)
    return frozenset(found)


def stored_subject(store: Store, study: Study) -> Subject:
    """A study's program as it was tuned."""
    return subject_of_document(json.loads(store.program(study.program_hash).json_text))
