"""What is installed is what was locked: versions with hashes, one version everywhere, an SBOM.

Known vulnerabilities are looked up by ``make audit``, which needs PyPI's service.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
LOCKS = ["requirements.lock", "requirements-dev.lock", "requirements-farm.lock",
         "requirements-linker.lock"]  # fmt: skip
_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^ ;\\]+)")


def pins(name: str) -> dict[str, set[str]]:
    """The versions of each package of a lock: several where markers tell platforms apart."""
    found: dict[str, set[str]] = {}
    for line in (ROOT / name).read_text().splitlines():
        match = _PIN.match(line)
        if match:
            found.setdefault(canonicalize_name(match[1]), set()).add(match[2])
    return found


def direct(extras: tuple[str, ...] = ()) -> list[Requirement]:
    """What the project itself asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [*project["dependencies"]]
    for extra in extras:
        listed += project["optional-dependencies"][extra]
    return [Requirement(text) for text in listed]


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_package_has_hashes_and_nothing_else_is_listed(name: str):
    blocks = re.split(r"\n(?=[A-Za-z0-9])", (ROOT / name).read_text())
    packages = [block for block in blocks if not block.lstrip().startswith("#")]
    assert packages
    for block in packages:
        assert _PIN.match(block), block.splitlines()[0]
        assert "--hash=sha256:" in block, block.splitlines()[0]
        assert not re.search(r"https?://|git\+|--index|--find-links", block.split("#")[0])


@pytest.mark.parametrize(
    ("name", "extras"), [("requirements.lock", ()), ("requirements-farm.lock", ("cluster",))]
)
def test_locks_have_what_the_project_asks_for(name: str, extras: tuple[str, ...]):
    locked = pins(name)
    for requirement in direct(extras):
        versions = locked.get(canonicalize_name(requirement.name), set())
        if requirement.marker is None or requirement.marker.evaluate():
            assert versions, f"{requirement.name} is not in {name}: make lock"
            assert all(requirement.specifier.contains(version) for version in versions)


@pytest.mark.parametrize("name", LOCKS[1:3])
def test_tests_and_images_have_the_versions_of_the_product(name: str):
    product, other = pins(LOCKS[0]), pins(name)
    assert {package: other.get(package) for package in product} == product


def test_the_bill_of_materials_lists_every_locked_package(tmp_path: Path):
    out = tmp_path / "sbom.json"
    tool = Path(sys.executable).with_name("cyclonedx-py")
    subprocess.run(
        [tool, "requirements", ROOT / "requirements-farm.lock", "-o", out],
        check=True, capture_output=True,
    )  # fmt: skip
    components = json.loads(out.read_text())["components"]
    listed = {(canonicalize_name(c["name"]), c["version"]) for c in components}
    locked = {
        (name, v) for name, versions in pins("requirements-farm.lock").items() for v in versions
    }
    assert listed >= locked
    assert all(c.get("hashes") or c.get("externalReferences") for c in components)
