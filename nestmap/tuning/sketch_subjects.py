"""A program as the subjects of one search: under each of its sketches, and as it is written."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf

from mapper.ast_model.nodes import Program
from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.constraint_rules.suits.catalogue import ALL_SUITS
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, LimitError, Problem
from mapper.layer_spec import LayerSpec
from mapper.pipeline import (
    Subject,
    derive_space,
    subject_of_layer,
    subject_of_program,
    subject_of_scheduled,
)
from mapper.schedules.scheduled import Scheduled
from mapper.schedules.sketches.derivation import (
    AS_IS,
    Combination,
    Combinations,
    possible_names,
)
from mapper.schedules.sketches.draft import Sketch
from mapper.solver.factored.suited import SuitedSpace
from mapper.solver.limits import within_processor_seconds
from mapper.variants import LAST_RESORT, VARIANTS, variants_of
from nestmap.tuning.drawing import cheapest_ms
from nestmap.tuning.kernel_parts import KernelPart, PartKey, kernel_parts

#: By how much the best of a sketch is likely to be slower than that of the one before it, which
#: its maker holds to be better.
_EACH_LATER = 0.1
#: A program as it is written promises little where it has sketches.
_AS_IS_PROMISE = 8.0
#: Combinations of several kernels' structures that are tuned, and solutions of a kernel that tell
#: which, with the seconds for its space.
MOST_SUBJECTS = 24
_LOOKED_AT = 32
_MOST_EXPECTED = 6
_SOLVING_S = 1.0


@lru_cache(maxsize=1)
def _combinations(program: Program, device: DeviceProfile) -> Combinations:
    """Kept for the next question, which is mostly about another sketch of the same program."""
    return Combinations(program, device)


def sketched_subjects(
    subject: Subject,
    device: DeviceProfile,
    names: Sequence[str] | None = None,
    most: int = MOST_SUBJECTS,
) -> tuple[Subject, ...]:
    """A program under each of its sketches for a device, what is expected to be fastest first, and
    as it is last; only the sketches of these ``names`` where some are given, else ``most`` in all.

    Of a layer its ``high-level`` program. What is no program to be rewritten (or has a schedule
    already) is left alone. InputError names sketches that there are not.
    """
    layer = subject.layer
    if subject.program is None or _is_left_alone(subject):
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
    combinations = _combinations(program, device)
    if names:
        chosen = {name: combinations.named(name) for name in names}
        if wrong := [name for name, found in chosen.items() if found is None and name != AS_IS]:
            choices = combinations.neighbours(combinations.first)
            known = [AS_IS, *(combinations.name(choice) for choice in choices)]
            several = " or several of them, joined by +" if len(combinations.options) > 1 else ""
            what = "the program has no sketch of this name on the device"
            if layer is not None:
                what = "the layer has no variant, nor a sketch on the device, of this name"
                known = [*variants_of(layer), *known]
            raise InputError(Problem("variant", what, ", ".join(wrong), ", ".join(known) + several))
    else:
        kept = _kept(subject, combinations, device)[: most - 1]
        chosen = {combinations.name(choice): choice for choice in kept} | {AS_IS: None}
    found = (
        (name, None if choice is None else combinations.sketch(choice))
        for name, choice in chosen.items()
    )
    return tuple(
        subject if sketch is None else _under(subject, program, sketch)
        for name, sketch in found
        if sketch is not None or name == AS_IS
    )


def _is_left_alone(subject: Subject) -> bool:
    """Whether a program is rewritten already: it has a schedule, or is a layer's own variant."""
    is_variant = subject.layer is not None and subject.variant != LAST_RESORT
    return subject.scheduled is not None or is_variant


@dataclass(frozen=True, slots=True)
class PossibleSketch:
    """A sketch that a program may have, known by its name: deriving it takes up to a second.

    ``written`` is the program without a schedule, or a layer in its ``high-level`` form.
    """

    written: Subject
    variant: str
    device: DeviceProfile

    @property
    def label(self) -> str:
        """Whose sketch it is."""
        return self.written.label

    @property
    def layer(self) -> LayerSpec | None:
        """The layer, where it is of one."""
        return self.written.layer

    def derive(self) -> Subject | None:
        """The program under the sketch; None where that does not apply."""
        program = self.written.require_program()
        alone = Combinations(program, self.device, self.variant)
        choice = alone.named(self.variant)
        sketch = None if choice is None else alone.sketch(choice)
        return None if sketch is None else _under(self.written, program, sketch)


#: What is tuned, derived or not.
Tuned = Subject | PossibleSketch


def possible_subjects(subject: Subject, device: DeviceProfile) -> tuple[Tuned, ...]:
    """As :func:`sketched_subjects` without names, where sketches of a program of one kernel are
    not derived yet."""
    program = subject.program
    if program is None or _is_left_alone(subject):
        return (subject,)
    names = possible_names(program, device)
    if names is None:
        return sketched_subjects(subject, device)
    kept = names[: MOST_SUBJECTS - 1]
    return (*(PossibleSketch(subject, name, device) for name in kept), subject)


def derived(subjects: Sequence[Tuned]) -> tuple[Subject, ...]:
    """All of these, those that apply, each once."""
    found: dict[Hashable, Subject] = {}
    for one in subjects:
        subject = one.derive() if isinstance(one, PossibleSketch) else one
        if subject is not None:
            found.setdefault(what_is_done(subject), subject)
    return tuple(found.values())


def what_is_done(subject: Subject) -> Hashable:
    """The same for two subjects of one program whose kernels are the same, whatever their sketches
    are called."""
    return subject.variant if subject.scheduled is None else subject.scheduled.schedule.uses


def _under(subject: Subject, program: Program, sketch: Sketch) -> Subject:
    scheduled = Scheduled(program, sketch.schedule)
    made = subject_of_scheduled(scheduled, subject.label, sketch.program)
    return replace(made, layer=subject.layer)


def _kept(subject: Subject, combinations: Combinations, device: DeviceProfile) -> list[Combination]:
    """The combinations to be tuned, most promising first: all of one kernel; of several one that is
    expected to be fastest, what differs from it in a kernel, and some that differ in two."""
    choices = list(combinations.neighbours(combinations.first))
    if len(combinations.options) < 2:
        return choices
    behind = _behind(subject, combinations, choices, device)
    best = tuple(min(range(len(own)), key=own.__getitem__) for own in behind)
    around = list(combinations.neighbours(best))
    further = {c for one in around for c in combinations.neighbours(one)}.difference(around)

    def cost(choice: Combination) -> tuple[float, Combination]:
        return sum(own[k] for own, k in zip(behind, choice, strict=True)), choice

    others = [*sorted(around[1:], key=cost), *sorted(further, key=cost)]
    return [best, *sorted(others[: MOST_SUBJECTS - 1], key=cost)]


def _behind(
    subject: Subject,
    combinations: Combinations,
    choices: Sequence[Combination],
    device: DeviceProfile,
) -> list[list[float]]:
    """Of each kernel what its structures are expected to take beside the first of each, by their
    loops; by their places where kernels are so many that it would take minutes."""
    if len(combinations.options) > _MOST_EXPECTED:
        return [[float(k) for k in range(len(names))] for _, names in combinations.options]
    known: dict[PartKey, float] = {}
    assert subject.program is not None
    expected: dict[Combination, float] = {}
    for choice in choices:
        sketch = combinations.sketch(choice)
        made = None if sketch is None else _under(subject, subject.program, sketch)
        expected[choice] = inf if made is None else _expected_ms(made, device, known)
    found: list[list[float]] = []
    for place, (_, names) in enumerate(combinations.options):
        first = combinations.first
        own = [(*first[:place], k, *first[place + 1 :]) for k in range(len(names))]
        found.append([expected[choice] for choice in own])
    return found


def _expected_ms(subject: Subject, device: DeviceProfile, known: dict[PartKey, float]) -> float:
    """What the fastest of some random solutions of each part take by their costs, together."""
    program = subject.require_program()
    options = with_suits(subject, DEFAULT_OPTIONS)
    space = derive_space(subject, Mode.STRICT, device, options)
    total = 0.0
    for part in kernel_parts(program, space):
        key = part.key
        if key not in known:
            known[key] = _least_cost(part, device)
        total += known[key]
    return total


def _least_cost(part: KernelPart, device: DeviceProfile) -> float:
    try:
        space = SuitedSpace(part.space, within_processor_seconds(_SOLVING_S))
        return cheapest_ms(space, part.cost(device), _LOOKED_AT)
    except LimitError:
        return inf


def layer_in(layer: LayerSpec, variant: str, device: DeviceProfile) -> Subject:
    """A layer in one of its variants, or under the sketch of this name of its program; InputError
    lists the sketches that there are."""
    if variant in VARIANTS:
        return subject_of_layer(layer, variant)
    subject = subject_of_layer(layer, LAST_RESORT)
    # The others are not derived, which takes seconds.
    found = PossibleSketch(subject, variant, device).derive()
    return in_variant(subject, variant, device) if found is None else found


def in_variant(subject: Subject, name: str, device: DeviceProfile) -> Subject:
    """A program under the sketch of this name; InputError lists those that there are."""
    if subject.scheduled is not None and subject.variant == name:
        return subject
    return sketched_subjects(subject, device, [name])[0]


def promise_of(subject: Tuned, place: int) -> float:
    """By how much the best of the subject at this place among those of a program is likely to be
    slower than the best of all."""
    return 1.0 + _EACH_LATER * place if is_sketch(subject) else _AS_IS_PROMISE


def is_sketch(subject: Tuned) -> bool:
    """Whether a program is under one of its sketches."""
    return isinstance(subject, PossibleSketch) or subject.scheduled is not None


def with_suits(subject: Subject, options: RuleOptions) -> RuleOptions:
    """What a search of a subject asks for: of a sketch all that suits the device, for it was made
    for that, unless rules are named."""
    named = subject.scheduled is None or options.suits
    return options if named else replace(options, suits=ALL_SUITS)


def as_written(subject: Subject) -> Subject:
    """The subject without its schedule."""
    if subject.scheduled is None:
        return subject
    if subject.layer is not None:
        return subject_of_layer(subject.layer, LAST_RESORT)
    return subject_of_program(subject.scheduled.program, subject.label)
