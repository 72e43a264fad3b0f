"""Features by which what was measured of some layers tells of the candidates of another.

Layers differ in size more than their candidates do, so most features are taken relative to their
medians over random candidates of one layer, variant and device (*siblings*). Tuning parameters are
taken as they are, by their names: programs that share a name share what it means, as sketches do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from mapper.cost.analytic import Counts
from mapper.device_profile import DeviceProfile
from nestmap.tuning.descriptions import Description

#: Places in a row, behind the numbers of the plan.
_PREDICTED, _PROXY = 6, 7
_COUNTS = slice(8, 8 + len(fields(Counts)))
#: Columns that describe the device, before those of the parameters.
_OF_DEVICE = 3
#: Stands for what a program does not have, below everything that one has.
_MISSING = -99.0

Floats = NDArray[np.float64]


def transfer_row(description: Description, device: DeviceProfile) -> tuple[float, ...]:
    """The plan, the analytic model's prediction, the proxy and the model's counts; sizes of the
    device; and logarithms of the tuning parameters, in the order of
    :meth:`Description.parameter_names`."""
    counts = np.log2(1 + description.counts.row())
    sizes = (device.compute_units, device.local_bytes, device.max_work_group_size)
    known = (*description.plan, description.predicted(), description.proxy, *counts.tolist())
    parameters = np.log2(1.0 + np.array([value for _, value in description.parameters]))
    return (
        *known,
        *np.log2(1 + np.array(sizes)).tolist(),
        *parameters.tolist(),
    )


def estimates_of_rows(rows: Floats) -> tuple[Floats, Floats, tuple[Counts, ...]]:
    """Of n rows the logarithms of the proxy and of the analytic model's time, and its counts."""
    counts = 2.0 ** rows[:, _COUNTS] - 1
    return rows[:, _PROXY], rows[:, _PREDICTED], tuple(Counts(*row) for row in counts.tolist())


def aligned(rows: Floats, parameters: Sequence[str], wanted: Sequence[str]) -> Floats:
    """Rows of a program with these ``parameters`` as rows of one with those ``wanted``."""
    own = rows.shape[1] - len(parameters)
    columns = [rows[:, :own]]
    for name in wanted:
        column = np.full((len(rows), 1), _MISSING)
        if name in parameters:
            column = rows[:, [own + list(parameters).index(name)]]
        columns.append(column)
    return np.hstack(columns)


def relative(rows: Floats, siblings: Floats, parameters: int = 0) -> Floats:
    """Rows less the medians of their siblings, but for what is said of the device and for the
    last columns, which are of so many ``parameters``; nothing is NaN any more."""
    medians = np.zeros(rows.shape[1])
    shifted = rows.shape[1] - parameters - _OF_DEVICE
    there = ~np.isnan(siblings[:, :shifted]).any(axis=0)
    medians[:shifted][there] = np.median(siblings[:, :shifted][:, there], axis=0)
    return np.nan_to_num(rows - medians, nan=_MISSING)
