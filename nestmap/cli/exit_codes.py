"""Exit codes, as documented in docs/cli.md."""

from __future__ import annotations

from enum import IntEnum

from mapper.errors import DeviceError, LimitError, NestmapError, StoreError, UnsatisfiableError
from nestmap.client.errors import ServiceError


class ExitCode(IntEnum):
    """How a command ended."""

    OK = 0
    NEGATIVE = 1
    BAD_INPUT = 2
    DEVICE = 3
    STORE = 4
    LIMIT = 5
    SERVICE = 6
    UNEXPECTED = 70
    INTERRUPTED = 130


def exit_code_of(error: NestmapError) -> ExitCode:
    """The exit code of an error that nestmap raised on purpose."""
    match error:
        case DeviceError():
            return ExitCode.DEVICE
        case StoreError():
            return ExitCode.STORE
        case UnsatisfiableError() | LimitError():
            return ExitCode.LIMIT
        case ServiceError():
            return ExitCode.SERVICE
        case _:
            return ExitCode.BAD_INPUT


def kind_of_error(error: NestmapError) -> str:
    """What sort of error it is, for programs."""
    match exit_code_of(error):
        case ExitCode.DEVICE:
            return "device"
        case ExitCode.STORE:
            return "store"
        case ExitCode.LIMIT:
            return "unsatisfiable" if isinstance(error, UnsatisfiableError) else "limit"
        case ExitCode.SERVICE:
            return "service"
        case _:
            return "input"
