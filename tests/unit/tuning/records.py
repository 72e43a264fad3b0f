"""Records and layers for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mapper.layer_spec import LayerSpec
from mapper.tuning_records import TuningRecord

SMALL = LayerSpec(4, 6, 6, 8, pad_top=1, pad_left=1, pad_bottom=1, pad_right=1, name="small")


def record(**changes: Any) -> TuningRecord:
    """A record of the small layer."""
    plain = TuningRecord(
        layer=SMALL,
        variant="direct",
        choices={"mapping": {"1": 20}, "parameters": {"th": 2}, "local_sizes": {"k": [2, 1, 1]}},
        time_ms=2.0,
        spread=0.01,
        trials=30,
        tflops=0.5,
        extra_bytes=64,
        prepared_bytes=0,
        relative_error=1e-7,
        source_hash="a",
        device="Some GPU",
        driver="1.0",
        target="",
        commit="0" * 12,
        date="2026-11-21",
    )
    return replace(plain, **changes)
