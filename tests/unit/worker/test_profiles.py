"""Device profiles shipped as TOML: readable, and precise about what is wrong."""

from __future__ import annotations

from importlib.resources import files

import pytest

from mapper.errors import DeviceError
from mapper.profiles import load_profile, parse_profile, profile_names


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
