"""A tiny layer, end to end, on PoCL: sampled, generated, verified, timed, stored, written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from db.store import Store
from mapper.host_plan import HostPlan
from mapper.layer_spec import LayerSpec
from mapper.measurement import Timed, launch_ms
from mapper.pipeline import subject_of_layer, subject_of_program
from mapper.profiles import load_profile
from nestmap.tuning.baselines import compare_with_baselines
from nestmap.tuning.output import write_best
from nestmap.tuning.policy import INPUT_SEED
from nestmap.tuning.reference import make_workload
from nestmap.tuning.run import Budget, tune
from nestmap.tuning.sketch_subjects import sketched_subjects
from tests.several_kernels import SOFTMAX
from worker.measuring import MeasuringChild

pytestmark = pytest.mark.kernels

LAYER = LayerSpec(8, 7, 7, 8, pad_top=1, pad_left=1, pad_bottom=1, pad_right=1, name="small")
SUBJECTS = tuple(subject_of_layer(LAYER, variant) for variant in ("partial", "direct"))


def test_tune_compare_and_run_the_best_file(tmp_path: Path):
    workload = make_workload(SUBJECTS[0], INPUT_SEED, {})
    with MeasuringChild() as child, Store.open(tmp_path / "store.sqlite3") as store:
        result = tune(SUBJECTS, child, store, seed=2, budget=Budget(candidates=6))
        assert result.refused == ()
        assert {kind for kind, count in result.state.outcomes.items() if count} == {"timed"}
        assert result.state.tried == 6
        best = result.front[0]
        again = tune(SUBJECTS, child, store, seed=2, budget=Budget(candidates=6))
        assert [e.candidate for e in again.front] == [e.candidate for e in result.front]

        source, plan_file = write_best(best, tmp_path / "out")
        plan = HostPlan.from_json(json.loads(plan_file.read_text()))
        assert source.read_text() == plan.source
        child.upload_workload("again", workload.inputs, workload.expected)
        outcome = child.measure(plan, workload="again", tolerance=workload.tolerance)
        assert isinstance(outcome, Timed)

        contestants = compare_with_baselines(LAYER, workload, child, best.plan, rounds=1)
    assert {c.name: c.note for c in contestants if c.time_ms is None} == {}
    assert [c.name for c in contestants][:2] == ["tuned", "sequential loops"]
    assert contestants[0].time_over_tuned == 1.0


def test_programs_of_several_kernels_are_timed_launch_by_launch(tmp_path: Path):
    subject = subject_of_program(SOFTMAX)
    subjects = sketched_subjects(subject, load_profile("pocl"))
    with MeasuringChild() as child, Store.open(tmp_path / "store.sqlite3") as store:
        result = tune(subjects, child, store, seed=2, budget=Budget(candidates=4))
        assert result.refused == () and result.state.tried == 4
        assert {kind for kind, count in result.state.outcomes.items() if count} == {"timed"}
        for study in store.studies():
            for measured in store.measurements(study):
                assert isinstance(measured.outcome, Timed)
                launches = [
                    launch_ms(measured.outcome, f"k_{name}")
                    for name in ("largest", "powers", "totals", "softmax")
                ]
                assert all(time_ms is not None and time_ms > 0 for time_ms in launches)
