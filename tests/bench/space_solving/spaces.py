"""Spaces small enough for every test."""

from dataclasses import replace

from mapper.tuning_space.document import TuningConstraint, TuningParameter, TuningSpace

TINY = TuningSpace(
    "tiny",
    (
        TuningParameter("tile", (4, 1, 2, 8)),
        TuningParameter("unroll", (1, 2, 3, 4)),
        TuningParameter("vector", (1, 2, 4)),
        TuningParameter("cache", (0, 1)),
    ),
    (
        TuningConstraint("tile % unroll == 0"),
        TuningConstraint("cache == 0 or 4 <= tile * vector <= 16"),
        TuningConstraint("not (vector == 4 and unroll in (2, 4))"),
        TuningConstraint("min(tile, 4) / vector >= 1 if cache == 1 else vector != 2 or tile > 1"),
    ),
    expected_count=36,
)
MIXED = TuningSpace(
    "mixed",
    (
        TuningParameter("layout", ("row", "column", "tiled")),
        TuningParameter("padded", (True, False)),
        TuningParameter("width", (3, 1, 2)),
    ),
    (
        TuningConstraint("layout != 'tiled' or width > 1"),
        TuningConstraint("padded or layout == 'row'"),
    ),
)
EMPTY = replace(TINY, name="empty", constraints=(TuningConstraint("tile > 8"),), expected_count=0)
