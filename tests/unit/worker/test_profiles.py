"""Device profiles shipped as TOML: readable, and precise about what is wrong."""

from __future__ import annotations

from importlib.resources import files

import pytest

from mapper.errors import DeviceError
from mapper.profiles import (
    load_profile,
    parse_profile,
    profile_from_json,
    profile_names,
    profile_to_json,
)
from nestmap.device_limits import limits_of_device


def text_of(name: str) -> str:
    return files("mapper.profiles").joinpath(f"{name}.toml").read_text()


def test_shipped_profiles_load() -> None:
    assert profile_names() == ("h200", "mali-g72", "pocl")
    for name in profile_names():
        profile = load_profile(name)
        assert profile.name == name
        assert profile.max_alloc_bytes <= profile.global_bytes
        assert max(profile.max_work_item_sizes) <= profile.max_work_group_size


def test_mali_has_its_published_limits() -> None:
    mali = load_profile("mali-g72")
    assert (mali.max_work_group_size, mali.compute_units) == (384, 12)
    assert (mali.local_bytes, mali.private_bytes) == (32 * 1024, 256)


def test_what_suits_a_device_is_known_of_each() -> None:
    facts = {
        name: (p.lanes, p.vector_registers, p.vector_bytes, p.local_memory)
        for name in ("h200", "mali-g72", "pocl", "pocl@haswell", "pocl@x86-64")
        for p in (limits_of_device(name),)
    }
    assert facts == {
        "h200": (32, 255, 4, "own"),
        "mali-g72": (4, 64, 4, "ordinary"),
        "pocl": (1, 32, 64, "ordinary"),
        "pocl@haswell": (1, 16, 32, "ordinary"),
        "pocl@x86-64": (1, 16, 16, "ordinary"),
    }
    # What a work-item may hold is what its registers hold.
    for name in ("h200", "mali-g72"):
        profile = load_profile(name)
        assert (profile.vector_registers or 0) * 4 == profile.private_bytes


def test_profiles_from_before_are_read_with_the_registers_of_their_target() -> None:
    fields = profile_to_json(load_profile("pocl"))
    new = ("lanes", "vector_registers", "vector_bytes", "local_memory")
    old = {name: value for name, value in fields.items() if name not in new}
    assert profile_from_json(old) == load_profile("pocl")
    haswell = profile_from_json({**old, "target": "haswell"})
    assert (haswell.vector_registers, haswell.vector_bytes) == (16, 32)
    gpu = profile_to_json(load_profile("h200"))
    read = profile_from_json({name: value for name, value in gpu.items() if name not in new})
    assert (read.lanes, read.vector_registers, read.local_memory) == (None, None, "")
    assert profile_from_json(gpu) == load_profile("h200")


def test_unknown_name_lists_the_known() -> None:
    with pytest.raises(DeviceError, match="h200, mali-g72, pocl"):
        load_profile("../pocl")


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("max_work_group_size = 384", "", "max_work_group_size: missing"),
        ("max_work_group_size = 384", "max_work_group_size = 0", "max_work_group_size: malformed"),
        ("compute_units = 12", "compute_units = true", "compute_units: malformed"),
        ("compute_units = 12", "compute_units = '12'", "compute_units: malformed"),
        ("[384, 384, 384]", "[384, 384]", "max_work_item_sizes: malformed"),
        ("[1, 2, 4]", "[1, 3]", "vector_widths: malformed"),
        ("half_precision = true", "half_precision = 1", "half_precision: malformed"),
        ("compute_units = 12", "compute_units = 12\ncores = 12", "cores: unknown field"),
        ("lanes = 4", "lanes = 0", "lanes: malformed"),
        ('local_memory = "ordinary"', 'local_memory = "fast"', "local_memory: malformed"),
        ('name = "mali-g72"', 'name = "mali"', "name: not the file's name"),
        ("compute_units = 12", "compute_units = ", "is not TOML"),
    ],
)
def test_malformed_field_is_named(old: str, new: str, named: str) -> None:
    text = text_of("mali-g72")
    assert old in text
    with pytest.raises(DeviceError, match=named):
        parse_profile("mali-g72", text.replace(old, new))


def test_all_malformed_fields_are_named_at_once() -> None:
    with pytest.raises(DeviceError) as caught:
        parse_profile("x", 'name = "x"\nsource = ""\nlocal_bytes = -1\n')
    assert len(caught.value.problems) >= 6
