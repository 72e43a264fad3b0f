"""Schedule codes: what becomes of one map. They are defined here and nowhere else.

Encoding of "Mapping Parallelism in a Functional IR through Constraint Satisfaction" (CC'22),
section 4.1, Table 2; for parallel codes the tens are the level and the last digit is the
OpenCL dimension. Vectorised is an addition of ours: Table 1 writes it V, but Table 2 has no
code for it, so a map vectorised with width v has the code v. Whether a code is parallel is
therefore asked of the sets below and never computed as ``code / 10``.
"""

from __future__ import annotations

from enum import Enum, IntEnum

from mapper.errors import InputError, Problem

DIMENSIONS = (0, 1, 2)


class Level(Enum):
    """A kind of schedule; the three parallel ones have OpenCL dimensions."""

    SEQUENTIAL = "S"
    FUSED = "F"
    VECTOR = "V"
    LOCAL = "L"
    WORK_GROUP = "W"
    GLOBAL = "G"


class ScheduleCode(IntEnum):
    """The schedule of one map."""

    SEQUENTIAL = 0
    FUSED = 1
    VECTOR_2 = 2
    VECTOR_4 = 4
    VECTOR_8 = 8
    LOCAL_0 = 10
    LOCAL_1 = 11
    LOCAL_2 = 12
    VECTOR_16 = 16
    WORK_GROUP_0 = 20
    WORK_GROUP_1 = 21
    WORK_GROUP_2 = 22
    GLOBAL_0 = 30
    GLOBAL_1 = 31
    GLOBAL_2 = 32

    @property
    def level(self) -> Level:
        """The kind of schedule."""
        match self:
            case ScheduleCode.SEQUENTIAL:
                return Level.SEQUENTIAL
            case ScheduleCode.FUSED:
                return Level.FUSED
            case _ if self in VECTOR_CODES:
                return Level.VECTOR
            case _ if self < 20:
                return Level.LOCAL
            case _ if self < 30:
                return Level.WORK_GROUP
            case _:
                return Level.GLOBAL

    @property
    def is_parallel(self) -> bool:
        """True for local, work-group and global codes."""
        return self in PARALLEL_CODES

    @property
    def dimension(self) -> int | None:
        """The OpenCL dimension of a parallel code."""
        return self % 10 if self.is_parallel else None

    @property
    def vector_width(self) -> int | None:
        """The number of lanes of a vector code."""
        return int(self) if self in VECTOR_CODES else None

    @property
    def short_name(self) -> str:
        """S, F, V4, L0, W1, G2: the notation of CC'22, Table 1, with F for fused."""
        match self.level:
            case Level.SEQUENTIAL | Level.FUSED as level:
                return level.value
            case Level.VECTOR as level:
                return f"{level.value}{int(self)}"
            case Level.LOCAL | Level.WORK_GROUP | Level.GLOBAL as level:
                return f"{level.value}{self % 10}"


VECTOR_CODES = frozenset(
    {
        ScheduleCode.VECTOR_2,
        ScheduleCode.VECTOR_4,
        ScheduleCode.VECTOR_8,
        ScheduleCode.VECTOR_16,
    }
)
LOCAL_CODES = frozenset({ScheduleCode.LOCAL_0, ScheduleCode.LOCAL_1, ScheduleCode.LOCAL_2})
WORK_GROUP_CODES = frozenset(
    {ScheduleCode.WORK_GROUP_0, ScheduleCode.WORK_GROUP_1, ScheduleCode.WORK_GROUP_2}
)
GLOBAL_CODES = frozenset({ScheduleCode.GLOBAL_0, ScheduleCode.GLOBAL_1, ScheduleCode.GLOBAL_2})
PARALLEL_CODES = LOCAL_CODES | WORK_GROUP_CODES | GLOBAL_CODES
# Run by one thread from start to end, on their own account (a fused map follows its owner).
SERIAL_CODES = frozenset({ScheduleCode.SEQUENTIAL}) | VECTOR_CODES

PAPER_CODES: tuple[ScheduleCode, ...] = tuple(
    code for code in ScheduleCode if code not in VECTOR_CODES
)
"""The 11 codes of CC'22, Table 2."""

_BY_NAME = {code.short_name: code for code in ScheduleCode}
_BY_VALUE = {int(code): code for code in ScheduleCode}
_BASE = {Level.LOCAL: 10, Level.WORK_GROUP: 20, Level.GLOBAL: 30}


def parallel_code(level: Level, dimension: int) -> ScheduleCode:
    """The code of a parallel level in a dimension; InputError for other levels."""
    if level not in _BASE or dimension not in DIMENSIONS:
        raise InputError(f"no schedule code for level {level.name} in dimension {dimension}")
    return ScheduleCode(_BASE[level] + dimension)


def vector_code(width: int) -> ScheduleCode:
    """The code of a map vectorised with this width; InputError if there is none."""
    for code in VECTOR_CODES:
        if code == width:
            return code
    raise InputError(Problem("", "no schedule for this vector width", str(width), "2, 4, 8, 16"))


def parse_code(value: int | str) -> ScheduleCode:
    """A code from its number (20, "20") or its short name ("W0", any case)."""
    text = str(int(value)) if isinstance(value, int) else value.strip().upper()
    if text in _BY_NAME:
        return _BY_NAME[text]
    if text.isascii() and text.isdigit() and int(text) in _BY_VALUE:
        return _BY_VALUE[int(text)]
    allowed = ", ".join(f"{code.short_name} ({int(code)})" for code in ScheduleCode)
    raise InputError(Problem("", "not a schedule code", repr(value), allowed))


def code_name(value: int) -> str:
    """The short name of a code, or the number itself where it is no code."""
    code = _BY_VALUE.get(value)
    return str(value) if code is None else code.short_name
