"""A device by name, with the target of its compiler behind it."""

from __future__ import annotations

import pytest

from mapper.device_profile import NO_TARGET, device_name
from mapper.errors import DeviceError
from nestmap.device_limits import limits_of_device
from worker.devices.pocl_target import LIBRARIES, TARGETS


@pytest.mark.parametrize(
    ("text", "plain", "target", "half"),
    [
        ("pocl", "pocl", "", False),
        ("pocl@haswell+half", "pocl", "haswell", True),
        ("pocl@Haswell", "pocl", "haswell", False),
        ("pocl@", "pocl", NO_TARGET, False),
        ("pocl@+half", "pocl", NO_TARGET, True),
        ("pocl@avx512 on my machine", "pocl", "avx512 on my machine", False),
        ("opencl:Intel/Xeon(R) CPU @ 2.20GHz", "opencl:Intel/Xeon(R) CPU @ 2.20GHz", "", False),
        ("opencl:/Xeon CPU @ 2.20GHz@penryn", "opencl:/Xeon CPU @ 2.20GHz", "penryn", False),
    ],
)
def test_a_name_is_taken_apart(text: str, plain: str, target: str, half: bool) -> None:
    found = device_name(text)
    assert (found.plain, found.target, found.half) == (plain, target, half)


@pytest.mark.parametrize("target", ["znver5", "skx", "cascadelake", "avx512 on my machine", ""])
def test_a_profile_takes_the_targets_that_a_device_takes_and_no_other(target: str) -> None:
    with pytest.raises(DeviceError, match="pocl has no such target") as caught:
        limits_of_device(f"pocl@{target}")
    (problem,) = caught.value.problems
    assert problem.allowed.startswith("native, skylake-avx512, haswell, ")
    # Beside what there is, what can be tried here.
    assert "this processor executes" in problem.found


def test_every_target_of_a_device_is_one_of_the_profile() -> None:
    assert {library.target for library in LIBRARIES} == set(TARGETS)
    for target in TARGETS:
        assert limits_of_device(f"pocl@{target.title()}").target == target
    assert limits_of_device("pocl@native") == limits_of_device("pocl")
    assert max(limits_of_device("pocl@Haswell").vector_widths) == 8


def test_only_pocl_has_targets() -> None:
    with pytest.raises(DeviceError, match="none: only PoCL lets choose"):
        limits_of_device("mali-g72@haswell")
