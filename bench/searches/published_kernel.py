"""What is known of the published convolution's configurations without running them.

A layer's candidates come with their plans, which the analytic model reads; a published space is
parameters and constraints alone. Of this one the kernel is public: van Werkhoven, Maassen, Bal and
Seinstra, "Optimizing convolution operations on GPUs using adaptive tiling", Future Generation
Computer Systems 30, 2014, sections 3 and 4. A work-item makes ``tile_size_x`` x ``tile_size_y``
pixels, ``block_size_x`` and ``block_size_y`` apart, all loops over the filter unrolled; a group
stages its pixels with their halo in local memory if ``use_shmem``, with columns between rows
against bank conflicts if ``use_padding``. Devices are as their makers' papers describe them
(NVIDIA's on the A100 and on the GA102 family, AMD's on CDNA 2). No recorded time enters; which
counts are taken was chosen on the A100's recording (docs/benchmarks.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bench.searches.recording import Recording

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SPACE = "hub_convolution"
#: Pixels of a side of the recorded image.
IMAGE = 4096
#: Work-items whose accesses a compute unit serves at once: 128 bytes a cycle, of 32 banks.
SERVED = 32
#: Instructions of 32 work-items that a compute unit issues in a cycle.
ISSUED = 4
#: Work-items that hide what arithmetic waits for.
ENOUGH = 512
#: Registers of a work-item beside its sums, and of each sum with its address.
_REGISTERS, _REGISTERS_OF_A_SUM = 32, 2


@dataclass(frozen=True, slots=True)
class Gpu:
    """Of a compute unit: fp32 ``lanes`` (multiplications with addition a cycle), work-items and
    groups that it holds, bytes of local memory, registers of 4 bytes; ``wave`` work-items run
    together."""

    units: int
    lanes: int
    work_items: int
    groups: int
    local_bytes: int
    registers: int
    wave: int


_PARAMETERS = {
    "block_size_x", "block_size_y", "tile_size_x", "tile_size_y", "use_padding", "use_shmem",
    "filter_width", "filter_height",
}  # fmt: skip
#: By the recordings' names of devices. An MI250X is two devices; one of them was recorded.
GPUS: Mapping[str, Gpu] = {
    "NVIDIA A100-PCIE-40GB": Gpu(108, 64, 2048, 32, 164 * 1024, 65536, 32),
    "NVIDIA RTX A4000": Gpu(48, 128, 1536, 16, 100 * 1024, 65536, 32),
    "AMD Instinct MI250X": Gpu(110, 64, 2048, 32, 64 * 1024, 131072, 64),
}


def is_known(recording: Recording) -> bool:
    """Whether its space and its device are described here."""
    names = {name for name, _ in recording.variables}
    return (
        recording.device in GPUS
        and recording.document.get("name") == SPACE
        and names >= _PARAMETERS
    )


def known_of(recording: Recording) -> Floats | None:
    """Two columns (rows x 2), as logarithms: the predicted time, and cycles a multiplication takes;
    None where nothing is known."""
    if not is_known(recording):
        return None
    names = [name for name, _ in recording.variables]
    parameters = dict(zip(names, recording.values.T, strict=True))
    return predicted(parameters, GPUS[recording.device])


def predicted(parameters: Mapping[str, Integers], gpu: Gpu) -> Floats:
    """Of n configurations (each parameter n values) the columns of :func:`known_of`.

    A multiplication takes as long as whatever limits it: arithmetic, the access of its pixel, or
    issuing both. That is multiplied by what is done in vain: pixels beyond the image, lanes of a
    wave that a group leaves idle, compute units idle in the last round of groups; and by what
    too few work-items leave unhidden.
    """
    width, height = parameters["block_size_x"], parameters["block_size_y"]
    wide, high = parameters["tile_size_x"], parameters["tile_size_y"]
    staged = parameters["use_shmem"] == 1
    halo_x, halo_y = parameters["filter_width"] - 1, parameters["filter_height"] - 1
    group, tile = width * height, wide * high
    columns, rows = width * wide + halo_x, height * high + halo_y

    loads = _rows_read(height, high, halo_y + 1) / (high * (halo_y + 1))
    padded = parameters["use_padding"] == 1
    conflicts = np.where(padded, 1.0, _conflicts(width, height, columns))
    accesses = loads * np.where(staged, conflicts, _lines(width))
    limits = SERVED / gpu.lanes, accesses, (1 + loads) / ISSUED
    cycles = np.maximum(np.maximum(limits[0], limits[1]), limits[2])

    lanes = -(-group // gpu.wave) * gpu.wave
    local = np.where(staged, 4 * columns * rows, 0)
    registers = lanes * (_REGISTERS + _REGISTERS_OF_A_SUM * tile)
    resident = np.minimum(gpu.groups, gpu.work_items // lanes)
    resident = np.minimum(resident, gpu.local_bytes // np.maximum(local, 1))
    resident = np.maximum(np.minimum(resident, gpu.registers // registers), 1)
    groups = -(-IMAGE // (width * wide)) * -(-IMAGE // (height * high))
    rounds = groups / (gpu.units * resident)
    vain = groups * lanes * tile / IMAGE**2 * np.ceil(rounds) / rounds
    unhidden = np.maximum(1.0, ENOUGH / (resident * lanes))
    return np.log2(np.stack([vain * unhidden * cycles, cycles], axis=1))


def _rows_read(apart: Integers, tiles: Integers, taps: int | Integers) -> Floats:
    """Rows that a work-item reads for its ``tiles`` pixels of a column, ``apart`` rows from each
    other: taps of one pixel are taps of another, and are loaded once."""
    taps = np.broadcast_to(taps, apart.shape)
    found = [
        len({tap + tile * step for tap in range(size) for tile in range(count)})
        for step, count, size in zip(apart.tolist(), tiles.tolist(), taps.tolist(), strict=True)
    ]
    return np.array(found, np.float64)


def _lines(width: Integers) -> Floats:
    """Lines of 128 bytes that 32 work-items touch, rows of ``width`` of them; they start
    anywhere."""
    row = np.minimum(width, SERVED)
    return (1 + (row - 1) / SERVED) * np.maximum(1, SERVED // row)


def _conflicts(width: Integers, height: Integers, columns: Integers) -> Floats:
    """Cycles that 32 work-items of a group (``width`` x ``height``) take for one access each of
    local memory with rows of so many ``columns``, in the mean of the group."""
    of_groups = zip(width.tolist(), height.tolist(), columns.tolist(), strict=True)
    return np.array([_conflicts_of(*of_group) for of_group in of_groups])


@lru_cache(maxsize=4096)
def _conflicts_of(width: int, height: int, columns: int) -> float:
    items = np.arange(width * height)
    places = items // width * columns + items % width
    cycles = [
        int(np.bincount(np.unique(places[first : first + SERVED]) % SERVED).max())
        for first in range(0, len(items), SERVED)
    ]
    return sum(cycles) / len(cycles)
