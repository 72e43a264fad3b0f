"""Arrays are read from files within what is expected of them, whatever the files claim."""

from __future__ import annotations

import io
import json
import os
import resource
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mapper.errors import InputError
from worker import run_plan
from worker.executor.jobs import MeasureJob
from worker.measuring.array_files import MAX_ARCHIVE_BYTES, array_of, load_array, load_arrays

FLOAT = np.dtype(np.float32)
WANTED = {"image": ((4, 4), FLOAT)}
IMAGE = np.arange(16, dtype=FLOAT).reshape(4, 4)


def content_of(array: np.ndarray[Any, Any], **more: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **more)
    return file.getvalue()


def claiming(header: str, numbers: bytes = b"\0" * 64, version: bytes = b"\1\0") -> bytes:
    """An .npy file with a header of its own."""
    text = header.encode("latin1") + b"\n"
    length = len(text).to_bytes(2 if version == b"\1\0" else 4, "little")
    return b"\x93NUMPY" + version + length + text + numbers


def header(shape: str, kind: str = "'<f4'", order: str = "False") -> str:
    return f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}"


@pytest.fixture(autouse=True)
def within_bounds() -> Iterator[None]:
    """No test takes 200 MiB more than there were."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - most < 200 * 1024


CONTENTS = {
    "nothing": b"",
    "no array": b"x" * 400,
    "an archive": b"PK\5\6" + b"\0" * 18,
    "cut short": content_of(IMAGE)[:-1],
    "cut in the header": content_of(IMAGE)[:20],
    "terabytes": claiming(header("(1099511627776,)")),
    "more than 64 bits": claiming(header("(4611686018427387904, 4611686018427387904)")),
    "negative": claiming(header("(-1,)")),
    "truth": claiming(header("(True, 1e9)")),
    "other names": claiming("{'shape': (1,)}"),
    "deep": claiming("(" * 9_000),
    "code": claiming(header("().__class__")),
    "header of 4 GiB": b"\x93NUMPY\2\0\xff\xff\xff\xff" + b" " * 1000,
    "version": b"\x93NUMPY\x09\0" + content_of(IMAGE)[8:],
    "objects": content_of(np.array([{}], dtype=object), allow_pickle=True),
    "objects by name": claiming(header("(1,)", "'|O'")),
    "pickle": b"cos\nsystem\n(S'false'\ntR.",
    "type": claiming(header("(1,)", "'<f4' * 10 ** 9")),
}


@pytest.mark.parametrize("what", CONTENTS)
def test_what_is_no_array_is_refused(what: str, tmp_path: Path):
    with pytest.raises(InputError, match="it: is no array"):
        array_of(CONTENTS[what], "it")
    (tmp_path / "it").write_bytes(CONTENTS[what])
    with pytest.raises(InputError, match=r"is no array|more than"):
        load_array(tmp_path / "it", 64)


def test_files_are_regular_and_no_longer_than_they_may_be(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "huge").open("wb") as file:
        file.write(content_of(IMAGE))
        file.truncate(2**40)
    for path in (tmp_path / "pipe", tmp_path / "huge", Path("/dev/zero")):
        with pytest.raises(InputError):
            load_array(path, 64)
    (tmp_path / "image").write_bytes(content_of(IMAGE))
    assert np.array_equal(load_array(tmp_path / "image", 64), IMAGE)


def archive_of(path: Path, *members: tuple[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def test_an_archive_has_what_is_wanted(tmp_path: Path):
    path = archive_of(tmp_path / "a.npz", ("image.npy", content_of(IMAGE)), ("../b", b"x"))
    assert np.array_equal(load_arrays(path, WANTED)["image"], IMAGE)


@pytest.mark.parametrize(
    "content",
    [b"\0" * 100_000_000, claiming(header("(10**10,)")), content_of(IMAGE.astype(np.float64)),
     content_of(IMAGE.T.copy()[:2]), content_of(np.array([[{}]], dtype=object), allow_pickle=True),
     b"\x93NUMPY\2\0\xff\xff\xff\xff" + b" " * 50_000_000],
)  # fmt: skip
def test_a_member_expands_to_what_is_wanted_of_it_at_most(content: bytes, tmp_path: Path):
    path = archive_of(tmp_path / "a.npz", ("image.npy", content))
    with pytest.raises(InputError):
        load_arrays(path, WANTED)


def test_archives_are_bounded(tmp_path: Path):
    path = archive_of(tmp_path / "a.npz", *((f"{n}", b"") for n in range(2_000)))
    with pytest.raises(InputError, match="more than"):
        load_arrays(path, WANTED)
    huge = {"image": ((MAX_ARCHIVE_BYTES,), FLOAT)}
    with pytest.raises(InputError, match="would be too large"):
        load_arrays(path, huge)
    whole = archive_of(path, ("image.npy", content_of(IMAGE))).read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match="is no archive"):
            load_arrays(path, WANTED)


def test_a_plan_s_inputs_are_read_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    buffer = {"name": "image", "role": "input", "bytes": 64, "shape": [4, 4], "first_use": 0,
              "last_use": 0}  # fmt: skip
    (tmp_path / "plan").write_text(json.dumps({"source": "", "buffers": [buffer], "launches": []}))
    archive_of(tmp_path / "a.npz", ("image.npy", b"\0" * 50_000_000))
    arguments = [str(tmp_path / name) for name in ("plan", "a.npz", "out")]
    assert run_plan.main(arguments) == 1
    assert "image: is too long" in capsys.readouterr().err
    assert run_plan.main(["/dev/zero", *arguments[1:]]) == 1
    assert "not a regular file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "changes",
    [{"timeout_s": 10**400}, {"timeout_s": 1e999}, {"timeout_s": "nan"}, {"timeout_s": None},
     {"protocol": {"warmup": 10**400}}, {"protocol": {"fill_ms": 1e308}},
     {"protocol": {"budget_ms": float("nan")}}, {"protocol": {"max_repetitions": 2**62}},
     {"workload": {"tolerance": {"factor": 10**400}}}],
)  # fmt: skip
def test_a_job_with_odd_numbers_is_refused(changes: dict[str, Any], tmp_path: Path):
    (tmp_path / "a").write_bytes(b"")
    plan = {"source": "", "buffers": [], "launches": []}
    array = {"artifact": "a", "dtype": "float32", "shape": [1]}
    workload = {"inputs": {}, "expected": array, "tolerance": {}}
    payload: dict[str, Any] = {
        "schema": "nestmap/measure-job/1", "candidate": "c", "plan": plan, "workload": workload,
        "protocol": {}, "timeout_s": 1.0,
    }  # fmt: skip
    assert MeasureJob.of(payload, {"a": str(tmp_path / "a")}, 60.0).timeout_s == 1.0
    changes = {**changes}
    workload |= changes.pop("workload", {})
    with pytest.raises(InputError) as caught:
        MeasureJob.of({**payload, **changes}, {"a": str(tmp_path / "a")}, 60.0)
    assert len(str(caught.value)) < 500


def test_a_job_has_at_most_a_few_hours(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"")
    array = {"artifact": "a", "dtype": "float32", "shape": [1]}
    payload = {
        "schema": "nestmap/measure-job/1", "candidate": "c", "protocol": {}, "timeout_s": 1e308,
        "plan": {"source": "", "buffers": [], "launches": []},
        "workload": {"inputs": {}, "expected": array, "tolerance": {}},
    }  # fmt: skip
    job = MeasureJob.of(payload, {"a": str(tmp_path / "a")}, float("inf"))
    assert job.timeout_s == 6 * 3600
