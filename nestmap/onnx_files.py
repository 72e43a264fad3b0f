"""ONNX models from files that anybody may have written: without weights, within bounds.

A file's fields are counted before any object is made of them: two bytes of a file may become a
node of a hundred bytes. Layout of the bytes: https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapper.errors import InputError, LimitError, Problem
from mapper.plain_files import NotPlainFile, read_plain_file

if TYPE_CHECKING:
    import onnx

MAX_BYTES = 512 * 2**20
#: Fields of a model, values of lists included and those of tensors not: about 100 000 nodes.
MAX_FIELDS = 500_000
#: Bytes of a model without the values of tensors.
MAX_KEPT_BYTES = 64 * 2**20
#: A tensor's values are kept up to so many bytes: shapes are such tensors, weights are none.
_KEPT_VALUES_BYTES = 8 * 2**10
_TENSOR_VALUES = frozenset(
    f"{kind}_data" for kind in ("float", "int32", "string", "int64", "double", "uint64", "raw")
)
#: protobuf itself reads no deeper messages.
_MOST_LEVELS = 100
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5

INFERENCE_CPU_S = 10
INFERENCE_BYTES = 640 * 2**20
_INFERENCE_WALL_S = 60.0
_INFERENCE = Path(__file__).with_name("onnx_inference.py")

#: By field number: its name, and the message that it is, None where it is none.
_Fields = Mapping[int, tuple[str, Any]]


def onnx_package() -> Any:
    """The package; InputError where it is not installed."""
    try:
        import onnx
    except ModuleNotFoundError:
        raise InputError(
            Problem("onnx", "the package is not installed", "", "", "pip install 'nestmap[onnx]'")
        ) from None
    return onnx


def shown(text: str, longest: int = 80) -> str:
    """A model's text as a message may carry it: short, and harmless on a terminal."""
    cut = text if len(text) <= longest else f"{text[:longest]}…"
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut)


def load_model(path: Path, max_bytes: int = MAX_BYTES) -> onnx.ModelProto:
    """A model from a file, without what takes room in it: values of tensors that are more than
    8 KiB. Tensors that it keeps in other files are not read.

    Raises InputError for a file that is absent, no regular one or no model, LimitError for one
    that is too long or has too many fields.
    """
    package = onnx_package()
    from google.protobuf.message import DecodeError

    try:
        content = read_plain_file(path, max_bytes)
    except NotPlainFile as error:
        if "more than" in str(error):
            raise LimitError(
                Problem(str(path), "is too long", f"more than {max_bytes} bytes",
                        f"{max_bytes} bytes")
            ) from None  # fmt: skip
        raise InputError(Problem(str(path), str(error), "", "an ONNX model")) from None
    except OSError as error:
        raise InputError(
            Problem(str(path), f"cannot be read: {error.strerror}", "", "an ONNX model")
        ) from None
    try:
        model = package.load_model_from_string(without_weights(content, str(path)))
    except (DecodeError, ValueError) as error:
        raise _no_model(str(path), str(error)) from None
    if not model.HasField("graph"):
        raise _no_model(str(path), "no graph")
    return model


def without_weights(content: bytes, path: str = "model") -> bytes:
    """A model's bytes without large tensors' values; ``path`` names it in errors.

    Raises InputError for what is no model, LimitError beyond MAX_FIELDS and MAX_KEPT_BYTES.
    """
    kind = onnx_package().ModelProto.DESCRIPTOR
    return bytes(_Copy(content, path).message(0, len(content), kind, 0))


def inferred(model: onnx.ModelProto) -> Any:
    """A graph whose ``value_info`` says what convolutions read, as ``onnx.shape_inference``
    infers it; None where the model contradicts itself.

    In a process of its own: a short model may take endless time and memory to infer. LimitError
    where this one took more than INFERENCE_CPU_S or INFERENCE_BYTES, or died.
    """
    content = without_weights(model.SerializeToString())
    limits = json.dumps({"bytes": INFERENCE_BYTES, "seconds": INFERENCE_CPU_S,
                         "answer": MAX_KEPT_BYTES})  # fmt: skip
    try:
        answer = subprocess.run(
            [sys.executable, "-P", str(_INFERENCE), limits],
            input=content,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            timeout=_INFERENCE_WALL_S,
        )
    except subprocess.TimeoutExpired:
        raise _too_costly(f"more than {_INFERENCE_WALL_S:g} s") from None
    if answer.returncode:
        raise _too_costly(f"its process ended with {answer.returncode}")
    if not answer.stdout:
        return None
    graph = onnx_package().GraphProto()
    graph.ParseFromString(answer.stdout)
    return graph


def _too_costly(found: str) -> LimitError:
    return LimitError(
        Problem("model", "inferring its shapes takes too much", found,
                f"{INFERENCE_CPU_S} s and {INFERENCE_BYTES >> 20} MiB",
                "state the shapes of what convolutions read")
    )  # fmt: skip


def _no_model(path: str, found: str) -> InputError:
    return InputError(Problem(path, "is no ONNX model", shown(found), "an ONNX model"))


class _Copy:
    """Copies a message and those within it, counting fields and bytes."""

    def __init__(self, content: bytes, path: str) -> None:
        self._content = content
        self._path = path
        self._fields = 0
        self._bytes = 0
        self._known: dict[str, _Fields] = {}

    def message(self, start: int, end: int, kind: Any, level: int) -> bytearray:
        """The message between two places of the content."""
        if level > _MOST_LEVELS:
            raise LimitError(
                Problem(self._path, "messages are too deep", "", f"{_MOST_LEVELS} levels")
            )
        known = self._fields_of(kind)
        copied = bytearray()
        for number, wire, begin, value, after in self._walk(start, end):
            if number not in known:
                continue
            name, inner = known[number]
            size = after - value
            if inner is not None and wire == _LENGTH:
                piece = self.message(value, after, inner, level + 1)
                copied += _key_and_length(number, len(piece))
                copied += piece
                continue
            if name in _TENSOR_VALUES:
                if size > _KEPT_VALUES_BYTES:
                    continue
            elif inner is None and wire == _LENGTH and name in ("ints", "floats", "dims"):
                self._count(size // 4 if name == "floats" else size, 0)
            self._count(0, after - begin)
            copied += self._content[begin:after]
        return copied

    def _walk(self, start: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
        """Fields: number, kind of coding, where it begins, its value begins and it ends."""
        place = start
        while place < end:
            self._count(1, 0)
            begin = place
            key, place = self._varint(place, end)
            number, wire = key >> 3, key & 7
            value = place
            if wire == _VARINT:
                _, place = self._varint(place, end)
            elif wire == _LENGTH:
                size, value = self._varint(place, end)
                place = value + size
            elif wire == _FOUR_BYTES:
                place += 4
            elif wire == _EIGHT_BYTES:
                place += 8
            else:
                raise _no_model(self._path, f"coding {wire} at byte {begin}")
            if place > end or not number:
                raise _no_model(self._path, f"a field that does not end at byte {begin}")
            yield number, wire, begin, value, place

    def _varint(self, place: int, end: int) -> tuple[int, int]:
        value = shift = 0
        while place < end and shift < 70:
            byte = self._content[place]
            place += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, place
            shift += 7
        raise _no_model(self._path, f"a number that does not end at byte {place}")

    def _count(self, fields: int, size: int) -> None:
        self._fields += fields
        self._bytes += size
        if self._fields > MAX_FIELDS:
            raise LimitError(
                Problem(self._path, "has too many nodes, attributes and sizes",
                        f"more than {MAX_FIELDS} fields", f"{MAX_FIELDS} fields")
            )  # fmt: skip
        if self._bytes > MAX_KEPT_BYTES:
            raise LimitError(
                Problem(self._path, "is too long without its weights",
                        f"more than {MAX_KEPT_BYTES} bytes", f"{MAX_KEPT_BYTES} bytes")
            )  # fmt: skip

    def _fields_of(self, descriptor: Any) -> _Fields:
        name: str = descriptor.full_name
        if name not in self._known:
            self._known[name] = {f.number: (f.name, f.message_type) for f in descriptor.fields}
        return self._known[name]


def _key_and_length(number: int, length: int) -> bytes:
    coded = bytearray()
    for value in (number << 3 | _LENGTH, length):
        while value > 0x7F:
            coded.append(value & 0x7F | 0x80)
            value >>= 7
        coded.append(value)
    return bytes(coded)
