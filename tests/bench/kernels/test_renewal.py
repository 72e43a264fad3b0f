"""Layers tuned anew beside earlier kernels: the archive, where searches begin, and the journal."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.kernels.earlier import (
    SCHEMA,
    EarlierKernel,
    fastest_of,
    layers_of,
    read_archive,
)
from bench.kernels.earlier_sizes import is_of_the_template, starts_of
from bench.kernels.gpu import Rounds
from bench.kernels.renewal import Renewal, read_journal, renew, summary
from bench.kernels.tuning_stage import Tuning
from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.rule import Mode
from mapper.errors import InputError
from mapper.layer_spec import Layout
from mapper.pipeline import (
    assignment_from_json,
    assignment_to_json,
    derive_space,
    generate_kernels,
    subject_of_layer,
)
from mapper.profiles import load_profile
from mapper.solver.sampling import sample
from mapper.variants import VARIANTS
from nestmap.tuning.opening import open_measuring
from nestmap.tuning.run import Budget
from nestmap.tuning.sketch_subjects import layer_in
from tests.unit.tuning.records import SMALL, record
from worker.measuring.loaded_plan import open_session


def earlier(time_ms: float = 2.0, folder: str = "pocl") -> EarlierKernel:
    subject = subject_of_layer(SMALL, "direct")
    space = derive_space(subject, Mode.STRICT, load_profile("pocl"), DEFAULT_OPTIONS)
    (assignment,) = sample(space, 1, 0)
    choices = assignment_to_json(assignment)
    plan = generate_kernels(subject, assignment)
    return EarlierKernel(folder, record(choices=choices, time_ms=time_ms), plan)


def test_an_archive_is_read_as_it_was_written(tmp_path: Path):
    path, kernel = tmp_path / "a.json.gz", earlier()
    item = {"folder": kernel.folder, "record": kernel.record.to_json(),
            "plan": kernel.plan.to_json()}  # fmt: skip
    archive = {"schema": SCHEMA, "kernels": [item]}
    path.write_bytes(gzip.compress(json.dumps(archive).encode()))
    assert read_archive(path) == (kernel,)


def test_the_fastest_kernel_of_a_layer_is_that_of_the_fastest_record():
    slow, fast = earlier(2.0), earlier(1.0)
    assert fastest_of([slow, fast], SMALL, "") is fast
    assert fastest_of([slow, fast], replace(SMALL, filters=16), "") is None
    assert layers_of([slow, fast], "pocl", ["small"]) == (SMALL,)
    with pytest.raises(InputError, match="no earlier kernel"):
        layers_of([slow], "h200", ["small"])


def test_the_archive_has_kernels_of_both_kinds_of_devices():
    found = read_archive()
    assert len({kernel.folder for kernel in found}) == 2
    assert all(kernel.plan.launches for kernel in found)


@pytest.mark.parametrize(("device", "name"), [("h200", "resnet50/5"), ("pocl", "resnet50/17")])
def test_a_search_begins_with_solutions_of_sketches_that_have_a_record_s_sizes(
    device: str, name: str
):
    profile = load_profile(device)
    kernel = next(
        k for k in read_archive()
        if k.folder == device and k.record.layer.name == name and is_of_the_template(k.record)
        and k.record.layer.layout is not Layout.NCHW16C
    )  # fmt: skip
    sizes = kernel.record.choices["parameters"]
    found = list(starts_of(kernel.record.layer, kernel.record, profile))
    assert found
    for start in found[:3]:
        subject = layer_in(start.layer, start.variant, profile)
        space = derive_space(subject, Mode.STRICT, profile, DEFAULT_OPTIONS)
        assignment_from_json(space, dict(start.choices))
        own = start.choices["parameters"]
        assert own["chunk_convolution"] == sizes["bc"]
        assert own.get("tile_filter", own.get("own_filter")) == sizes["bm"]


@pytest.mark.kernels(alone=True)
def test_a_renewal_goes_on_behind_the_last_line_of_its_journal(tmp_path: Path):
    other = replace(SMALL, filters=4, name="other")
    said: list[str] = []
    tuning = Tuning((), Budget(candidates=4), tmp_path / "store.sqlite3", sketches=True)
    plan = Renewal(
        tuning, tmp_path / "records", tmp_path / "journal.jsonl", [earlier()], Rounds(1, 2, 1)
    )
    with open_measuring("host") as device:
        session = open_session("host")
        (first,) = renew([SMALL], device, session, plan, said.append)
        assert first["earlier"]["times_ms"] and first["found"]["times_ms"]
        assert first["found"]["details"]["variant"] not in VARIANTS
        assert first["ratio"] > 0
        # A layer without an earlier kernel has nothing to be held against.
        lines = renew([SMALL, other], device, session, plan, said.append)
    assert lines[0] == first and len(lines) == 2
    assert lines[1]["ratio"] is None and "earlier" not in lines[1]
    assert read_journal(plan.journal) == lines
    assert summary(lines)["compared"] == 1
    (tmp_path / "other.jsonl").write_text('{"schema": "nestmap/record/2"}\n')
    with pytest.raises(InputError, match="no journal"):
        read_journal(tmp_path / "other.jsonl")
