"""The wheel alone serves, tunes and solves: nothing of the checkout or of bench is needed."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import httpx
import pytest

from tests.integration.test_serve import service

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NESTMAP_", "PYTHON"))}
    return subprocess.run(command, cwd=cwd, env=kept, capture_output=True, text=True, timeout=60)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `pip install .` builds it."""
    folder = tmp_path_factory.mktemp("wheel")
    built = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    assert built.returncode == 0, built.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel, and else what the lock has."""
    folder = tmp_path_factory.mktemp("fresh")
    libraries = folder / "libraries"
    libraries.mkdir()
    for place in site.getsitepackages():
        for entry in Path(place).iterdir():
            if "nestmap" not in entry.name and entry.suffix != ".pth":
                (libraries / entry.name).symlink_to(entry)
    venv.create(folder / "venv", symlinks=True)
    programs = folder / "venv" / "bin"
    installed = run(
        sys.executable, "-m", "pip", "--python", programs / "python", "install", "--no-index",
        "--no-deps", "--no-compile", "--disable-pip-version-check", wheel, cwd=folder,
    )  # fmt: skip
    assert installed.returncode == 0, installed.stderr
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (packages / "libraries.pth").write_text(f"{libraries}\n")
    return programs


def test_it_has_the_product_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        top = {name.partition("/")[0] for name in archive.namelist()}
    assert {name for name in top if not name.endswith(".dist-info")} == {
        "api", "db", "mapper", "nestmap", "worker",
    }  # fmt: skip


def test_it_solves_and_tunes(fresh: Path, tmp_path: Path) -> None:
    listed = run(fresh / "nestmap", "--help", cwd=tmp_path)
    assert listed.returncode == 0 and "bench" not in listed.stdout
    solved = run(
        fresh / "nestmap", "solve", "vgg16/24", "--sample", "1", "--device", "h200", "--json",
        cwd=tmp_path,
    )  # fmt: skip
    assert solved.returncode == 0, solved.stderr
    assert json.loads(solved.stdout)
    tuned = run(
        fresh / "nestmap", "tune", "vgg16/24", "--device", "null", "--candidates", "2",
        "--strategy", "random", "--variant", "high-level", "--no-baselines", "--finalists", "0",
        cwd=tmp_path,
    )  # fmt: skip
    assert tuned.returncode == 0, tuned.stderr


def test_bench_says_how_it_is_installed(fresh: Path, tmp_path: Path) -> None:
    refused = run(fresh / "nestmap", "bench", "gpu", cwd=tmp_path)
    assert refused.returncode == 2
    assert "pip install -e bench" in refused.stderr
    alone = run(fresh / "python", "-c", "import bench", cwd=tmp_path)
    assert "No module named 'bench'" in alone.stderr


def test_it_serves(fresh: Path, tmp_path: Path) -> None:
    with service(tmp_path, "--no-worker", python=str(fresh / "python")) as served:
        url = served.event("listening")["url"]
        assert httpx.get(f"{url}/healthz", timeout=10).status_code == 200
        assert served.stop() == 0
