"""A board without hardware: it claims measure jobs and ends them with outcomes by candidate."""

from __future__ import annotations

import hashlib
import threading
from typing import Any

from db.farm.farm import Farm
from db.farm.run_records import NewRun, Run
from mapper.measurement import Outcome, Timed
from nestmap.farm.embedded import WORK

FACTS = {"device.name": "recorded", "device.kind": "recorded", "driver.version": "1"}
#: Small enough that its space is there in a fraction of a second.
LAYER = {
    "schema": "nestmap/layer/2",
    "name": "small",
    "channels": 4, "height": 6, "width": 6, "filters": 4,
    "kernel_height": 3, "kernel_width": 3, "stride_y": 1, "stride_x": 1,
    "pad_top": 0, "pad_bottom": 0, "pad_left": 0, "pad_right": 0,
}  # fmt: skip


def recorded(candidate: str) -> Outcome:
    """What was once measured of a candidate, so to say."""
    base = 1_000_000 + int.from_bytes(hashlib.sha256(candidate.encode()).digest()[:4]) % 10**7
    return Timed((base, base + 10, base + 20), 0.0, 1.0, FACTS)


def new_run(
    farm: Farm,
    *,
    candidates: int,
    name: str = "board",
    profile: str | None = "pocl",
    facts: dict[str, str] = FACTS,
    **request: Any,
) -> Run:
    """A run of the small layer on a board of its own."""
    board = farm.boards.add(name, profile=profile, facts=facts).board
    value = {"subject": {"document": LAYER}, "variants": ["high-level"], "seed": 1, **request}
    new = NewRun(
        board.id, "small", "test", value, budget_candidates=candidates, low_water=2,
        most_open=1_000, most_candidates=1_000_000, most_bytes=2**40,
    )  # fmt: skip
    return farm.runs.create(new).value


class SimulatedBoard:
    """Measures in a thread until it is told to stop; ``measured`` in the order of the queue."""

    def __init__(self, farm: Farm, board_id: str) -> None:
        self._farm = farm
        self._board_id = board_id
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._measure, daemon=True)
        self.measured: list[str] = []
        self.payloads: list[Any] = []

    def __enter__(self) -> SimulatedBoard:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _measure(self) -> None:
        while not self._stopping.is_set():
            claim = self._farm.jobs.claim_for_board(self._board_id, lease_s=30)
            if claim is None:
                self._stopping.wait(0.02)
                continue
            candidate = claim.job.candidate_id or ""
            self.measured.append(candidate)
            self.payloads.append(claim.job.payload)
            self._farm.results.finish_measure(claim.lease, recorded(candidate), facts=FACTS)


def open_work(farm: Farm) -> int:
    """Propose and solve jobs that have not ended."""
    return sum(number for (kind, _), number in farm.jobs.counts().items() if kind in WORK)
