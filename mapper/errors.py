"""Errors that nestmap raises on purpose.

    NestmapError
     +-- InputError          a program, layer, tree, mapping or option is not acceptable
     |    +-- TypeErrors     a program that does not type-check; carries every problem found
     +-- DeviceError         a device or profile is not there or refuses to work
     +-- StoreError          the database cannot be opened, read or written
     +-- UnsatisfiableError  no mapping satisfies the constraints
     +-- LimitError          a bound on time, size or memory was reached

Every error carries one or more :class:`Problem`, each of which says where, what was
found, what is allowed and, where there is one, a remedy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with an input.

    ``path`` points at the node or field (``kernels/0/body/arg`` or ``layer.stride``);
    ``found`` and ``allowed`` are short texts; ``remedy`` may be empty. A remedy of several lines is
    commands, each on a line of its own, as it is to be pasted.
    """

    path: str
    message: str
    found: str = ""
    allowed: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{self.path}: {self.message}" if self.path else self.message
        if self.found:
            text += f"; found {self.found}"
        if self.allowed:
            text += f"; allowed: {self.allowed}"
        if "\n" in self.remedy:
            text += f"; try:\n{self.remedy}"
        elif self.remedy:
            text += f" (try: {self.remedy})"
        return text


class NestmapError(Exception):
    """Base of all errors that nestmap raises on purpose."""

    def __init__(self, problems: str | Problem | Iterable[Problem]) -> None:
        if isinstance(problems, str):
            problems = (Problem("", problems),)
        elif isinstance(problems, Problem):
            problems = (problems,)
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class InputError(NestmapError):
    """A program, layer, tree, mapping or option is not acceptable."""


class TypeErrors(InputError):
    """A program does not type-check; every problem found is carried."""


class DeviceError(NestmapError):
    """A device or profile is not there or refuses to work."""


class StoreError(NestmapError):
    """The database cannot be opened, read or written."""


class UnsatisfiableError(NestmapError):
    """No mapping satisfies the constraints."""


class LimitError(NestmapError):
    """A bound on time, size or memory was reached."""
