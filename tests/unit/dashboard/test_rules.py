"""Every rule of the product has a sentence that a reader of a page understands."""

from __future__ import annotations

import re
from pathlib import Path

import mapper.constraint_rules
import mapper.tuning_space.lowering
import mapper.tuning_space.where
from api.dashboard.views.rules import RULE_TEXTS, by_rule
from mapper.constraint_rules.preferences import PREFERENCES

VALUE = {
    "id": "no-mixing/k", "rule": "no-mixing", "subjects": list(range(12)), "buffer": None,
    "sentence": "s", "remedy": "r", "provenance": "p", "holds": False,
}  # fmt: skip


def test_every_rule_id_of_the_sources_has_a_title_and_a_demand():
    folder = Path(mapper.constraint_rules.__path__[0])
    ids = set()
    for path in folder.glob("*.py"):
        ids |= set(re.findall(r'^\w*RULE\w* = "([a-z-]+)"', path.read_text(), re.MULTILINE))
    ids |= {mapper.tuning_space.lowering.RULE, mapper.tuning_space.where.RULE, *PREFERENCES}
    assert len(ids) >= 15
    assert ids <= set(RULE_TEXTS)
    assert all(title and demand.endswith(".") for title, demand in RULE_TEXTS.values())


def test_constraints_stand_by_rule_with_the_schedules_of_their_maps():
    other = {**VALUE, "id": "local-hierarchy/1", "rule": "local-hierarchy", "subjects": [3],
             "holds": True}  # fmt: skip
    first, second = by_rule([VALUE, other], {"3": 20})
    assert (first.rule, second.rule) == ("no-mixing", "local-hierarchy")
    assert first.broken and first.instances[0].more_subjects == 4
    shown = second.instances[0].subjects[0].schedule
    assert shown is not None and shown.name == "W0"
    assert not second.broken
    unknown = by_rule([{**VALUE, "rule": "a-new-rule"}])[0]
    assert unknown.title == "a-new-rule"
