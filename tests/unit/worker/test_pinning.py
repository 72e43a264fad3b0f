"""PoCL's threads are pinned where this process has the whole machine, and nobody decided it."""

from __future__ import annotations

import os
import threading

import pytest

from worker.devices.opencl import list_devices
from worker.devices.pinning import Loosened, pin_pocl_threads


@pytest.fixture(autouse=True)
def undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    # Set first, so that what the code sets is undone too.
    monkeypatch.setenv("POCL_AFFINITY", "")
    monkeypatch.delenv("POCL_AFFINITY")
    monkeypatch.setattr(os, "cpu_count", lambda: 4)


def test_threads_are_pinned_where_all_cores_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    pin_pocl_threads()
    assert os.environ["POCL_AFFINITY"] == "1"


def test_threads_are_pinned_before_any_driver_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    cl = pytest.importorskip("pyopencl")
    seen: list[str | None] = []

    def get_platforms() -> list[object]:
        seen.append(os.environ.get("POCL_AFFINITY"))
        return []

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(cl, "get_platforms", get_platforms)
    assert list_devices() == ()
    assert seen == ["1"]


def test_a_process_that_may_use_some_cores_only_keeps_to_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3})
    pin_pocl_threads()
    assert "POCL_AFFINITY" not in os.environ


def test_what_the_user_decided_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setenv("POCL_AFFINITY", "0")
    pin_pocl_threads()
    assert os.environ["POCL_AFFINITY"] == "0"


def test_systems_without_affinities_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    pin_pocl_threads()
    assert "POCL_AFFINITY" not in os.environ


def test_threads_that_are_pinned_go_anywhere_and_back_again() -> None:
    everywhere = os.sched_getaffinity(0)
    core, done, ready = {min(everywhere)}, threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: (ready.set(), done.wait(20)))
    thread.start()
    assert ready.wait(20) and thread.native_id is not None
    try:
        os.sched_setaffinity(thread.native_id, core)
        loosened = Loosened()
        assert os.sched_getaffinity(thread.native_id) == everywhere
        loosened.pinned_again()
        assert os.sched_getaffinity(thread.native_id) == core
        assert os.sched_getaffinity(0) == everywhere
    finally:
        done.set()
        thread.join(20)
