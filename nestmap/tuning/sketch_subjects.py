"""A program as the subjects of one search: under each of its sketches, and as it is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice

from mapper.ast_model.nodes import Program
from mapper.constraint_rules.rule import RuleOptions
from mapper.constraint_rules.suits.catalogue import ALL_SUITS
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, Problem
from mapper.pipeline import Subject, subject_of_program, subject_of_scheduled
from mapper.schedules.scheduled import Scheduled
from mapper.schedules.sketches.derivation import AS_IS, each_sketch
from mapper.schedules.sketches.draft import Sketch

#: By how much the best of a sketch is likely to be slower than that of the one before it, which
#: its maker holds to be better.
_EACH_LATER = 0.1
#: A program as it is written promises little where it has sketches.
_AS_IS_PROMISE = 8.0


class _Sketches:
    """The sketches of a program, derived as far as somebody has looked."""

    def __init__(self, program: Program, device: DeviceProfile) -> None:
        self._found: list[Sketch] = []
        self._others = each_sketch(program, device)

    def __iter__(self) -> Iterator[Sketch]:
        place = 0
        while True:
            if place == len(self._found):
                try:
                    self._found.append(next(self._others))
                except StopIteration:
                    return
                except BaseException:
                    # What goes on behind an error would look like the end.
                    _sketches.cache_clear()
                    raise
            yield self._found[place]
            place += 1


@lru_cache(maxsize=1)
def _sketches(program: Program, device: DeviceProfile) -> _Sketches:
    """Kept for the next question, which is mostly about another sketch of the same program."""
    return _Sketches(program, device)


def sketched_subjects(
    subject: Subject,
    device: DeviceProfile,
    names: Sequence[str] | None = None,
    most: int | None = None,
) -> tuple[Subject, ...]:
    """A program under each of its sketches for a device, what is expected to be fastest first, and
    as it is last; only the sketches of these ``names`` where some are given, else the first, so
    that these are ``most`` in all.

    What is no program to be rewritten (or has a schedule already) is left alone. InputError names
    sketches that there are not.
    """
    if subject.program is None or subject.scheduled is not None or subject.layer is not None:
        if names:
            what = "a program with its schedule"
            if subject.program is None:
                what = "a tuning space" if subject.tuning_space is not None else "a nest tree"
            raise InputError(
                Problem("variant", f"{what} has no variants, only a layer or a program has",
                        ", ".join(names), "no variant")
            )  # fmt: skip
        return (subject,)
    program = subject.program
    by_name: dict[str, Sketch] = {}
    for sketch in islice(_sketches(program, device), None if names else most):
        by_name[sketch.name] = sketch
        if names and all(name in by_name for name in names):
            break
    if wrong := [name for name in names or () if name not in by_name]:
        raise InputError(
            Problem("variant", "the program has no sketch of this name on the device",
                    ", ".join(wrong), ", ".join(by_name))
        )  # fmt: skip
    wanted = dict.fromkeys(names or [*(name for name in by_name if name != AS_IS), AS_IS])
    return tuple(
        subject
        if name == AS_IS
        else subject_of_scheduled(
            Scheduled(program, by_name[name].schedule), subject.label, by_name[name].program
        )
        for name in wanted
    )


def in_variant(subject: Subject, name: str, device: DeviceProfile) -> Subject:
    """A program under the sketch of this name; InputError lists those that there are."""
    if subject.scheduled is not None and subject.variant == name:
        return subject
    return sketched_subjects(subject, device, [name])[0]


def promise_of(subject: Subject, place: int) -> float:
    """By how much the best of the subject at this place among those of a program is likely to be
    slower than the best of all."""
    return _AS_IS_PROMISE if subject.scheduled is None else 1.0 + _EACH_LATER * place


def with_suits(subject: Subject, options: RuleOptions) -> RuleOptions:
    """What a search of a subject asks for: of a sketch also all that suits the device, for it was
    made for that."""
    return options if subject.scheduled is None else replace(options, suits=ALL_SUITS)


def as_written(subject: Subject) -> Subject:
    """The subject without its schedule."""
    if subject.scheduled is None:
        return subject
    return subject_of_program(subject.scheduled.program, subject.label)
