"""A program as the subjects of one search: under each of its sketches, and as it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mapper.constraint_rules.rule import RuleOptions
from mapper.constraint_rules.suits.catalogue import ALL_SUITS
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, Problem
from mapper.pipeline import Subject, subject_of_program, subject_of_scheduled
from mapper.schedules.scheduled import Scheduled
from mapper.schedules.sketches.derivation import AS_IS, sketches_of

#: By how much the best of a sketch is likely to be slower than that of the one before it, which
#: its maker holds to be better.
_EACH_LATER = 0.1
#: A program as it is written promises little where it has sketches.
_AS_IS_PROMISE = 8.0


def sketched_subjects(
    subject: Subject, device: DeviceProfile, names: Sequence[str] | None = None
) -> tuple[Subject, ...]:
    """A program under each of its sketches for a device, what is expected to be fastest first, and
    as it is last; only the sketches of these ``names`` where some are given.

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
    found = sketches_of(program, device)
    known = [sketch.name for sketch in found]
    if wrong := [name for name in names or () if name not in known]:
        raise InputError(
            Problem("variant", "the program has no sketch of this name on the device",
                    ", ".join(wrong), ", ".join(known))
        )  # fmt: skip
    wanted = dict.fromkeys(names or [*(name for name in known if name != AS_IS), AS_IS])
    by_name = {sketch.name: sketch for sketch in found}
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
