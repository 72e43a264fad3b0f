"""Schedule codes: numbers, names, levels."""

from __future__ import annotations

import pytest

from mapper.errors import InputError
from mapper.schedule import (
    PAPER_CODES,
    PARALLEL_CODES,
    Level,
    ScheduleCode,
    parallel_code,
    parse_code,
    vector_code,
)


def test_table_2():
    assert [int(code) for code in PAPER_CODES] == [0, 1, 10, 11, 12, 20, 21, 22, 30, 31, 32]


@pytest.mark.parametrize("code", ScheduleCode)
def test_names_and_numbers_come_back(code: ScheduleCode):
    assert parse_code(code.short_name) is code
    assert parse_code(code.short_name.lower()) is code
    assert parse_code(int(code)) is code and parse_code(str(int(code))) is code


def test_sixteen_lanes_are_no_local_map():
    assert vector_code(16).level is Level.VECTOR and not vector_code(16).is_parallel
    assert vector_code(16).dimension is None and vector_code(16).vector_width == 16


def test_parallel_codes():
    assert parallel_code(Level.WORK_GROUP, 2) == 22
    assert {code.dimension for code in PARALLEL_CODES} == {0, 1, 2}
    with pytest.raises(InputError):
        parallel_code(Level.VECTOR, 0)
    with pytest.raises(InputError):
        vector_code(3)


@pytest.mark.parametrize("text", ["", "W3", "X", "13", "-1", "²", 5])
def test_nonsense_is_refused(text: int | str):
    with pytest.raises(InputError, match="not a schedule code"):
        parse_code(text)
