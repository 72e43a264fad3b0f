"""PoCL finds a linker, or the user is told what to install: it would abort the process."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
from pathlib import Path

import pytest

from mapper.errors import DeviceError
from worker.devices import linker


def test_a_linker_that_is_there_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linker.shutil, "which", lambda _: "/usr/bin/ld")
    before = os.environ["PATH"]
    assert linker.provide_linker()
    assert os.environ["PATH"] == before


def test_without_any_linker_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linker.shutil, "which", lambda _: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(DeviceError, match="pip install ziglang"):
        linker.require_linker()


def test_the_packaged_linker_gets_the_objects_and_not_the_compiler_s_libraries(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    zig = tmp_path / "ziglang" / "zig"
    zig.parent.mkdir()
    zig.write_text('#!/bin/sh\necho "$@" > "$(dirname "$0")/arguments"\n')
    zig.chmod(0o755)
    spec = importlib.machinery.ModuleSpec("ziglang", None, origin=str(zig.parent / "__init__.py"))
    monkeypatch.setattr(linker.shutil, "which", lambda _: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert linker.provide_linker()
    folder = os.environ["PATH"].split(os.pathsep)[0]
    os.spawnv(os.P_WAIT, f"{folder}/ld", ["ld", "-shared", "-o", "k.so", "k.o", "-lgcc", "-L/x",
                                          "--as-needed", "-lc"])  # fmt: skip
    assert (zig.parent / "arguments").read_text().split() == [
        "ld.lld",
        "-shared",
        "-o",
        "k.so",
        "k.o",
    ]
