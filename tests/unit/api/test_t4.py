"""Exports in the T4 format are what its published schema allows."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import jsonschema
import pytest

from api.t4 import SCHEMA_VERSION, configuration, t4_result
from mapper.measurement import CompileError, Crash, ResourceError, Timed, Timeout, Wrong

PEERS = Path(__file__).parents[3] / ".venv-peers"
AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
OUTCOMES = {
    "correct": Timed((2_000_000, 1_000_000, 3_000_000), 1e-6, 12.5, {"clock": "1 GHz"}),
    "correctness": Wrong(0.5, (0, 1), "wrong"),
    "compile": CompileError("no"),
    "runtime": ResourceError("too much"),
    "timeout": Timeout(2.0),
}


def results(*outcomes):
    chosen = ({"theta": 4}, {"row": 20}, {"conv": [8, 1, 1]})
    return {
        "schema_version": SCHEMA_VERSION,
        "results": [t4_result(outcome, 4096, AT, *chosen) for outcome in outcomes],
    }


def test_choices_are_flat_as_kernel_tuners_are():
    assert configuration({"theta": 4}, {"row": 20}, {"conv": [8, 1, 1]}) == {
        "theta": 4, "map_row": 20, "local_conv_0": 8, "local_conv_1": 1, "local_conv_2": 1,
    }  # fmt: skip


@pytest.mark.parametrize("word", OUTCOMES)
def test_each_outcome_has_its_word(word):
    assert results(OUTCOMES[word])["results"][0]["invalidity"] == word


def test_a_crash_is_a_failure_at_run_time():
    assert results(Crash(-11, "died"))["results"][0]["invalidity"] == "runtime"


def test_times_are_milliseconds_and_memory_is_bytes():
    result = results(OUTCOMES["correct"])["results"][0]
    assert result["times"]["runtimes"] == [2.0, 1.0, 3.0]
    assert {m["name"]: (m["value"], m["unit"]) for m in result["measurements"]} == {
        "time": (2.0, "ms"), "memory": (4096, "bytes"), "max_relative_error": (1e-6, ""),
    }  # fmt: skip


@pytest.mark.needs(str(PEERS / "bin" / "python"), install="run `make peers`")
def test_the_published_schema_accepts_every_outcome():
    (path,) = PEERS.glob("lib/python3*/site-packages/kernel_tuner/schema/T4/*/results-schema.json")
    assert path.parent.name == SCHEMA_VERSION
    schema = json.loads(path.read_text())
    validator = jsonschema.Draft202012Validator(schema)
    document = results(*OUTCOMES.values(), Crash(1, "x"))
    assert list(validator.iter_errors(json.loads(json.dumps(document)))) == []
    # The schema can say no.
    document["results"][0]["invalidity"] = "fine"
    assert list(validator.iter_errors(document))
