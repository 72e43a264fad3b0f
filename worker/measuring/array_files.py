"""Arrays of files that somebody else may have written: never more than they are said to be."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from mapper.errors import InputError, Problem
from mapper.plain_files import NotPlainFile, read_plain_file

Array = np.ndarray[Any, Any]

#: Bytes of an .npy file before its numbers: NumPy's own bound of a header, and its first bytes.
HEADER_BYTES = 10_000 + 12
#: Bytes of all arrays that are read from one archive.
MAX_ARCHIVE_BYTES = 2**30
#: Of an archive beside its arrays, for each of them: names, places, a header.
_BESIDE_BYTES = 4 * HEADER_BYTES


def array_of(content: bytes, path: str) -> Array:
    """An array of the bytes of an .npy file; InputError for anything else, objects included."""
    try:
        found = np.load(io.BytesIO(content), allow_pickle=False)
    except Exception as error:  # of whatever kind: their parsers differ by what they are given
        raise _refused(path, "is no array", repr(error)[:120], "an .npy file of numbers") from None
    if not isinstance(found, np.ndarray):
        raise _refused(path, "is no array", type(found).__name__, "an .npy file of numbers")
    return found


def load_array(path: Path, most_bytes: int) -> Array:
    """The array of a regular file of at most so many bytes of numbers; InputError otherwise."""
    return array_of(_read(path, most_bytes + HEADER_BYTES), str(path))


def load_arrays(
    path: Path, wanted: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
) -> dict[str, Array]:
    """The arrays of an .npz archive by name, each of the shape and type that are ``wanted``.

    What a member expands to is bounded by what is wanted of it. InputError for all else.
    """
    sizes = {name: prod(shape) * dtype.itemsize for name, (shape, dtype) in wanted.items()}
    whole = sum(sizes.values())
    if whole > MAX_ARCHIVE_BYTES:
        raise _refused(str(path), "would be too large", f"{whole} bytes", f"{MAX_ARCHIVE_BYTES}")
    content = _read(path, whole + (len(sizes) + 1) * _BESIDE_BYTES)
    found: dict[str, Array] = {}
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except Exception as error:
        raise _refused(str(path), "is no archive", repr(error)[:120], "an .npz file") from None
    for name, (shape, dtype) in wanted.items():
        place, most = f"{path}/{name}", sizes[name] + HEADER_BYTES
        try:
            with archive.open(f"{name}.npy") as member:
                data = member.read(most + 1)
        except Exception as error:
            raise _refused(place, "cannot be read", repr(error)[:120], "an array") from None
        if len(data) > most:
            raise _refused(place, "is too long", f"more than {most} bytes", f"{most} bytes")
        array = array_of(data, place)
        if array.shape != shape or array.dtype != dtype:
            raise _refused(
                place, "is another array", f"{array.dtype} {array.shape}"[:120], f"{dtype} {shape}"
            )
        found[name] = array
    return found


def _read(path: Path, most_bytes: int) -> bytes:
    try:
        return read_plain_file(path, most_bytes)
    except NotPlainFile as error:
        raise _refused(str(path), str(error), "", f"a file of {most_bytes} bytes") from None


def _refused(path: str, message: str, found: str, allowed: str) -> InputError:
    return InputError(Problem(path, message, found, allowed))
