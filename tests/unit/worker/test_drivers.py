"""GPUs whose driver is mounted but not registered are found, or the remedy is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mapper.errors import DeviceError
from worker.devices import drivers
from worker.devices.opencl import select_device


def library(folder: Path, name: str = drivers.NVIDIA) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(b"\x7fELF")
    return path


def register(root: Path, name: str, text: str) -> None:
    folder = root / "etc/OpenCL/vendors"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text + "\n")


@pytest.mark.parametrize("own_loader", [True, False])
def test_a_mounted_library_without_a_file_is_found(own_loader: bool, tmp_path: Path) -> None:
    assert drivers.wanted_drivers(tmp_path, own_loader, {}) == {}
    found = library(tmp_path / "usr/local/nvidia/lib64")
    wanted = drivers.wanted_drivers(tmp_path, own_loader, {})
    assert wanted == {"nvidia.icd": str(found)}


def test_a_library_on_the_linker_s_path_is_found(tmp_path: Path) -> None:
    found = library(tmp_path / "own")
    environment = {"LD_LIBRARY_PATH": f"/nowhere:{tmp_path / 'own'}"}
    assert drivers.nvidia_library(tmp_path / "root", environment) == str(found)
    cache = f"1 libs found\n\t{drivers.NVIDIA} (libc6,x86-64) => {found}\n"
    assert drivers.nvidia_library(tmp_path / "root", {}, lambda: cache) == str(found)


def test_what_is_registered_is_kept_but_for_compilers_for_the_processor(tmp_path: Path) -> None:
    register(tmp_path, "nvidia.icd", drivers.NVIDIA)
    register(tmp_path, "pocl.icd", "libpocl.so.2")
    register(tmp_path, "mali.icd", "/usr/lib/libmali.so")
    library(tmp_path / "usr/lib64")
    # The system's loader reads that by itself.
    assert drivers.wanted_drivers(tmp_path, False, {}) == {}
    wanted = drivers.wanted_drivers(tmp_path, True, {})
    assert wanted == {"mali.icd": "/usr/lib/libmali.so", "nvidia.icd": drivers.NVIDIA}


def test_the_loader_is_pointed_at_a_folder_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENCL_VENDOR_PATH", drivers.SETTING):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(drivers, "cache_folder", lambda: tmp_path / "cache")
    found = library(tmp_path / "usr/local/nvidia/lib64")
    drivers.provide_drivers(tmp_path)
    (file,) = Path(os.environ[drivers.SETTING]).iterdir()
    assert file.suffix == ".icd" and file.read_text().strip() == str(found)
    monkeypatch.setenv(drivers.SETTING, "/mine")
    drivers.provide_drivers(tmp_path)
    assert os.environ[drivers.SETTING] == "/mine"


def test_a_container_without_the_compute_libraries_is_told_what_to_say(tmp_path: Path) -> None:
    assert drivers.SETTING in drivers.remedy(tmp_path)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch()
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in drivers.remedy(tmp_path)
    library(tmp_path / "usr/lib64")
    assert "NVIDIA_DRIVER_CAPABILITIES" not in drivers.remedy(tmp_path)


def test_a_profile_whose_device_is_not_here_is_refused_with_what_is_here() -> None:
    with pytest.raises(DeviceError) as caught:
        select_device("h200", ())
    (problem,) = caught.value.problems
    assert "there is a profile of this name" in problem.message
    assert problem.found == "no device"
    assert "mali-g72" in problem.allowed and "nestmap devices" in problem.remedy
