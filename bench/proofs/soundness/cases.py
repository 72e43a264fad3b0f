"""A case: one random program, one assignment that strict mode returned for it, its kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from math import prod
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.proofs.soundness.choices import Chooser, Source
from bench.proofs.soundness.elements import of_element
from bench.proofs.soundness.programs import random_program
from mapper.ast_model.codec import program_to_json
from mapper.ast_model.elaborate import elaborate
from mapper.ast_model.interpreter import interpret
from mapper.ast_model.nodes import Program
from mapper.constraint_rules.predicate import CodeVariable, Variable
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.device_profile import DeviceProfile
from mapper.elements import Element, Kind
from mapper.errors import InputError, LimitError, UnsatisfiableError
from mapper.host_plan import BufferRole, HostPlan
from mapper.pipeline import (
    Subject,
    assignment_to_json,
    choices_of,
    derive_space,
    generate_kernels,
    subject_of_program,
)
from mapper.schedule import Level, ScheduleCode
from mapper.solver.sampling import complete, sample
from mapper.solver.space import Space
from worker.measuring import Tolerance

_INPUT_SEED = 11
_WISHES = (None, Level.LOCAL, Level.LOCAL, Level.VECTOR)
_DRAWN_FOR_ONE = 3
#: Of programs: three of ten are of 32-bit floats.
_ELEMENTS = (Element.FLOAT32, Element.FLOAT32, *Element)


@dataclass(frozen=True, slots=True)
class Draft:
    """A random program with what decides which of its mappings is tried.

    ``wish`` asks for a map with a code of this level, where there is such a mapping; with
    LOCAL, of several mappings drawn those with the most work-items in a work-group are kept.
    In a draw over all mappings, vectors are rare and most work-groups have one work-item.
    """

    program: Program
    options: RuleOptions
    seed: int
    wish: Level | None


@dataclass(frozen=True, slots=True)
class Case:
    """All that the judges need; ``expected`` has the shape of the plan's output."""

    draft: Draft
    assignment: Mapping[Variable, int]
    plan: HostPlan
    inputs: Mapping[str, NDArray[Any]]
    expected: NDArray[np.float64]

    @property
    def tolerance(self) -> Tolerance:
        """Integers have to be the same; so are 16-bit floats, which are rounded alike."""
        output = next(b for b in self.plan.buffers if b.role is BufferRole.OUTPUT)
        return Tolerance(dtype=output.dtype) if output.dtype.is_integer else Tolerance()


@dataclass(frozen=True, slots=True)
class Discarded:
    """A draft that makes no case: nothing was promised for it. ``reason`` is a short kind."""

    reason: str


class BrokenPromise(Exception):
    """A draft for which strict mode failed before anything ran: nothing to judge, a fault."""

    def __init__(self, kind: str, message: str, value: dict[str, Any]) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message
        self.value = value


class _Infinite(Exception):
    """Halves that are out of range: there is nothing to compare with."""


def draw_draft(source: Source) -> Draft:
    """A draft from random choices."""
    choose = Chooser(source)
    seed = choose.number(0, 2**16 - 1)
    options = RuleOptions(sequential_fusion=choose.chance(40), replicate_private=choose.chance(35))
    wish = choose.pick(_WISHES)
    program = random_program(choose)
    return Draft(of_element(program, choose.pick(_ELEMENTS)), options, seed, wish)


def draft_to_json(draft: Draft) -> dict[str, Any]:
    """The program and the options, to run the draft again."""
    options = {
        "sequential_fusion": draft.options.sequential_fusion,
        "replicate_private": draft.options.replicate_private,
    }
    return {"program": program_to_json(draft.program), "options": options}


def case_to_json(case: Case) -> dict[str, Any]:
    """The draft with the assignment."""
    return {**draft_to_json(case.draft), "assignment": assignment_to_json(case.assignment)}


def cases_of(draft: Draft, device: DeviceProfile, count: int) -> tuple[Case, ...] | Discarded:
    """Up to ``count`` cases of a draft; 16-bit floats are stored on every device.

    Raises BrokenPromise where an assignment cannot be drawn, generated or interpreted, for
    another reason than that the program is refused or has no mapping.
    """
    device = replace(device, half_storage=True)
    try:
        subject = subject_of_program(draft.program)
        space = derive_space(subject, Mode.STRICT, device, draft.options)
    except InputError as error:
        return Discarded(_refusal(error))
    except Exception as error:
        raise _broken("reading", error, draft_to_json(draft)) from error
    cases: list[Case] = []
    try:
        for assignment in _assignments(draft, space, count):
            cases.append(_case(draft, subject, assignment))
    except UnsatisfiableError:
        return Discarded("no mapping")
    except LimitError:
        return tuple(cases) or Discarded("limit")
    except _Infinite:
        return Discarded("infinite")
    except BrokenPromise:
        raise
    except Exception as error:
        raise _broken("sampling", error, draft_to_json(draft)) from error
    return tuple(cases)


def _assignments(draft: Draft, space: Space, count: int) -> Iterator[Mapping[Variable, int]]:
    wished = [
        (variable, value)
        for variable, values in space.variables
        if isinstance(variable, CodeVariable)
        for value in values
        if draft.wish is not None and ScheduleCode(value).level is draft.wish
    ]
    pins: dict[Variable, int] = {}
    if wished:
        # Few maps may have a wide vector; so first the code, then the map.
        random = Random(draft.seed)
        value = random.choice(sorted({value for _, value in wished}))
        variable = random.choice([v for v, other in wished if other == value])
        with suppress(UnsatisfiableError):
            complete(space, {variable: value})
            pins = {variable: value}
    if not pins:
        # One solve; the sampler tries long before it takes a space for empty.
        complete(space)
    many = _DRAWN_FOR_ONE if draft.wish is Level.LOCAL and pins else 1
    drawn = list(islice(sample(space, many * count, draft.seed, pins), many * count))
    if many > 1:
        drawn.sort(key=_work_items, reverse=True)
    yield from drawn[:count]


def _work_items(assignment: Mapping[Variable, int]) -> int:
    return max(prod(size) for size in choices_of(assignment).local_sizes.values())


def _case(draft: Draft, subject: Subject, assignment: Mapping[Variable, int]) -> Case:
    value = {**draft_to_json(draft), "assignment": assignment_to_json(assignment)}
    try:
        plan = generate_kernels(subject, assignment)
    except Exception as error:
        raise _broken("generation", error, value) from error
    inputs = inputs_of(draft.program)
    try:
        result = interpret(draft.program, dict(choices_of(assignment).parameters), inputs)
    except Exception as error:
        raise _broken("interpreter", error, value) from error
    shape = next(b.shape for b in plan.buffers if b.role is BufferRole.OUTPUT)
    expected = np.asarray(result, dtype=np.float64).reshape(shape)
    if not np.isfinite(expected).all():
        raise _Infinite
    return Case(draft, assignment, plan, inputs, expected)


def inputs_of(program: Program) -> dict[str, NDArray[Any]]:
    """Small integers, so that sums are exact; few are equal, so that mistakes show."""
    generator = np.random.default_rng(_INPUT_SEED)
    found: dict[str, NDArray[Any]] = {}
    for buffer in elaborate(program).inputs:
        shape = [length.constant or 0 for length in buffer.dimensions]
        numbers = generator.integers(-99, 100, shape)
        if buffer.dtype.kind is Kind.UNSIGNED:
            numbers = np.abs(numbers)
        if buffer.dtype is Element.FLOAT16:
            numbers = numbers / 16  # sums stay below the largest half
        found[buffer.name] = numbers.astype(buffer.dtype.value)
    return found


def _refusal(error: InputError) -> str:
    """A kind of refusal: the rule where one is named, else the first words."""
    message = error.problems[0].message
    head, colon, _ = message.partition(":")
    return f"refused: {head}" if colon and " " not in head else f"refused: {message[:50]}"


def _broken(kind: str, error: BaseException, value: dict[str, Any]) -> BrokenPromise:
    return BrokenPromise(kind, f"{type(error).__name__}: {error}", value)
