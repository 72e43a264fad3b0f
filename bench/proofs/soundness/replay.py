"""A case that once failed, tried again: what strict mode says now, and what the judges find."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bench.proofs.soundness.cases import Case, Draft, inputs_of
from bench.proofs.soundness.judges import Fault, Judge
from mapper.ast_model.codec import program_from_json
from mapper.ast_model.interpreter import interpret
from mapper.ast_model.text_form import parse
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError
from mapper.host_plan import BufferRole
from mapper.pipeline import (
    assignment_from_json,
    choices_of,
    derive_space,
    generate_kernels,
    subject_of_program,
)
from mapper.solver.space import check


def refusals(value: Mapping[str, Any], device: DeviceProfile) -> tuple[str, ...]:
    """The rules by which strict mode refuses the case's program or assignment; empty if valid.

    ``value`` has ``program`` (JSON, or the text form), ``assignment`` and perhaps ``options``.
    """
    try:
        case_of(value, device)
    except Refused as refused:
        return refused.rules
    return ()


def faults_of(
    value: Mapping[str, Any], device: DeviceProfile, judges: Mapping[str, Judge]
) -> list[Fault]:
    """What the judges find; nothing if strict mode refuses the case (see :func:`refusals`)."""
    try:
        case = case_of(value, device)
    except Refused:
        return []
    return [fault for judge in judges.values() for fault in judge.judge([case]) if fault]


class Refused(Exception):
    """Strict mode does not admit the program, or not with this assignment."""

    def __init__(self, rules: tuple[str, ...]) -> None:
        super().__init__(", ".join(rules))
        self.rules = rules


def case_of(value: Mapping[str, Any], device: DeviceProfile) -> Case:
    """The case with its kernels generated anew; raises Refused."""
    source = value["program"]
    program = parse(source) if isinstance(source, str) else program_from_json(source)
    options = RuleOptions(**value.get("options", {"sequential_fusion": False}))
    try:
        subject = subject_of_program(program)
        stored = replace(device, half_storage=True)
        space = derive_space(subject, Mode.STRICT, stored, options)
        assignment = assignment_from_json(space, value["assignment"])
        violations = check(space, assignment)
    except InputError as error:
        raise Refused(tuple(problem.message for problem in error.problems)) from error
    if violations:
        raise Refused(tuple(sorted({violation.rule for violation in violations})))
    plan = generate_kernels(subject, assignment)
    inputs = inputs_of(program)
    shape = next(b.shape for b in plan.buffers if b.role is BufferRole.OUTPUT)
    result = interpret(program, dict(choices_of(assignment).parameters), inputs)
    expected = np.asarray(result, dtype=np.float64).reshape(shape)
    return Case(Draft(program, options, 0, None), assignment, plan, inputs, expected)
