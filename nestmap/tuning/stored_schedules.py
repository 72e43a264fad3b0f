"""What a store holds of programs under schedules."""

from __future__ import annotations

import json

from db.records import Study
from db.store import Store
from mapper.pipeline import Subject
from nestmap.subjects import subject_of_document


def stored_subject(store: Store, study: Study) -> Subject:
    """A study's program as it was tuned."""
    return subject_of_document(json.loads(store.program(study.program_hash).json_text))
