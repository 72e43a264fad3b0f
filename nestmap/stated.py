"""What a user states of a space beside its subject, device and mode: options of the rules, what
suits the device, and constraints of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.constraint_rules.suits.catalogue import wanted_suits
from mapper.errors import InputError, Problem
from mapper.pipeline import Subject

#: The fields of a request over HTTP, and the keywords of :class:`Stated`'s options.
STATED = ("suits", "sequential_fusion", "replicate_private", "free_grid", "where")


@dataclass(frozen=True, slots=True)
class Stated:
    """``where`` are expressions (:mod:`mapper.tuning_space.where`) that are to hold, too."""

    options: RuleOptions = field(default=DEFAULT_OPTIONS)
    where: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The fields of a request, those alone that say something."""
        plain = NOTHING_STATED._fields()
        return {name: value for name, value in self._fields().items() if value != plain[name]}

    def _fields(self) -> dict[str, Any]:
        options = self.options
        return {
            "suits": sorted(options.suits),
            "sequential_fusion": options.sequential_fusion,
            "replicate_private": options.replicate_private,
            "free_grid": options.free_grid,
            "where": list(self.where),
        }


NOTHING_STATED = Stated()


def stated(
    suits: Sequence[str] = (),
    sequential_fusion: bool = True,
    replicate_private: bool = False,
    free_grid: bool = False,
    where: Sequence[str] = (),
) -> Stated:
    """What options say; InputError names rules of suitability that there are not."""
    options = RuleOptions(
        sequential_fusion=sequential_fusion,
        replicate_private=replicate_private,
        free_grid=free_grid,
        suits=wanted_suits(suits),
    )
    return Stated(options, tuple(where))


def refuse_meaningless(wanted: Stated, subject: Subject, mode: Mode, mode_field: str) -> None:
    """InputError for options that say nothing of the subject in this mode.

    Fields are named as ``mode_field`` is: as options, as JSON pointers or plainly.
    """
    problems: list[Problem] = []
    options = wanted.options
    dashes = mode_field.startswith("--")

    def refuse(name: str, why: str, allowed: str) -> None:
        shown = name.replace("_", "-") if dashes else name
        problems.append(Problem(mode_field.replace("mode", shown), why, "", allowed))

    if options.suits and (subject.program is None or mode is Mode.PAPER):
        refuse("suits", "is said of the loops of a program, and in strict mode",
               "a layer or a program, without mode paper")  # fmt: skip
    if options.free_grid and mode is Mode.PAPER:
        refuse("free_grid", "the printed rules have no such option", "strict mode")
    if subject.tuning_space is not None:
        for name in ("sequential_fusion", "replicate_private", "free_grid"):
            if getattr(options, name) != getattr(DEFAULT_OPTIONS, name):
                refuse(name, "a tuning space states its constraints itself, so no rules are read",
                       "nothing")  # fmt: skip
    if problems:
        raise InputError(problems)
