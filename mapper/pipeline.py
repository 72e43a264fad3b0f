"""The only composer: from a program, nest tree or tuning space to its space, from an
assignment to kernels.

``Subject -> Space -> assignment -> HostPlan``; each arrow is a pure function of frozen
values. The command line, the service and the benchmarks all go through here.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mapper.ast_model.bounded_json import kind_of
from mapper.ast_model.codec import program_to_json
from mapper.ast_model.elaborate import elaborate, elaborate_symbolic
from mapper.ast_model.element_types import uses_half
from mapper.ast_model.loop_nest import LoopProgram
from mapper.ast_model.nest import Nest
from mapper.ast_model.nest_codec import nest_to_json
from mapper.ast_model.nodes import MapId, Program
from mapper.ast_model.specialise import size_values
from mapper.ast_model.type_check import ProgramTypes, check_program
from mapper.constraint_rules.predicate import (
    CodeVariable,
    LocalSizeVariable,
    ParameterVariable,
    Variable,
)
from mapper.constraint_rules.preferences import PREFERENCES
from mapper.constraint_rules.program_rules import program_constraints
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, Problem
from mapper.host_plan import HostPlan
from mapper.kernel_gen.generate import Choices, generate
from mapper.kernel_gen.header import Origin
from mapper.layer_spec import LayerSpec
from mapper.schedule import DIMENSIONS, ScheduleCode, parse_code
from mapper.schedules.scheduled import Scheduled, scheduled_to_json
from mapper.solver.space import Row, Space, build_space
from mapper.tuning_space.codec import SPACE_SCHEMA, space_to_json
from mapper.tuning_space.configuration import configuration_to_json
from mapper.tuning_space.document import TuningSpace
from mapper.tuning_space.lowering import solver_space
from mapper.variants import VARIANTS, variant_program

Assignment = dict[Variable, int]


@dataclass(frozen=True, slots=True)
class Subject:
    """What is to be mapped: a program (perhaps of a layer), a bare nest tree or a tuning space.

    A nest tree has mappings and constraints but no kernels: ``program`` is None. A tuning
    space has no nests either, only parameters: ``parameter_space`` is what it says to a solver.
    ``symbolic`` are a program's loops with sizes and tuning parameters as names. ``scheduled`` is
    what a rewritten program was made of; its variant is the schedule's name.
    """

    label: str
    nests: tuple[Nest, ...]
    program: Program | None = None
    types: ProgramTypes | None = None
    layer: LayerSpec | None = None
    variant: str = ""
    tuning_space: TuningSpace | None = None
    parameter_space: Space | None = None
    symbolic: LoopProgram | None = None
    scheduled: Scheduled | None = None

    @property
    def answer(self) -> str:
        """What is found and counted, in a word."""
        return "mapping" if self.tuning_space is None else "configuration"

    def require_program(self) -> Program:
        """The program; InputError for a bare nest tree or a tuning space."""
        if self.tuning_space is not None:
            raise InputError(
                Problem(
                    self.label,
                    "a tuning space says nothing about what is computed, so there is no kernel "
                    "for it",
                    SPACE_SCHEMA,
                    "a layer, or a program (nestmap/program/1 or its text form)",
                )
            )
        if self.program is None:
            raise InputError(
                Problem(
                    self.label,
                    "a bare nest tree says nothing about what is computed, so there is no "
                    "kernel for it",
                    "nestmap/nest/1",
                    "a layer, or a program (nestmap/program/1 or its text form)",
                )
            )
        return self.program

    def hash(self) -> str:
        """SHA-256 of the canonical JSON of what is mapped."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The program (with its schedule), nest tree or tuning space as a versioned JSON value."""
        if self.tuning_space is not None:
            return space_to_json(self.tuning_space)
        if self.scheduled is not None:
            return scheduled_to_json(self.scheduled)
        if self.program is not None:
            return program_to_json(self.program)
        return nest_to_json(self.nests[0])


def subject_of_program(
    program: Program, label: str = "", layer: LayerSpec | None = None, variant: str = ""
) -> Subject:
    """Type-check a program and derive its nests; TypeErrors carries every problem."""
    types = check_program(program)
    try:
        symbolic = elaborate_symbolic(program, {})
    except InputError:
        # What two names are is not known to be equal; the numbers decide.
        symbolic = elaborate(program)
    nests = tuple(kernel.nest() for kernel in symbolic.kernels)
    return Subject(label or program.name, nests, program, types, layer, variant, symbolic=symbolic)


def subject_of_layer(layer: LayerSpec, variant: str) -> Subject:
    """The program of a layer in one variant."""
    return subject_of_program(variant_program(layer, variant), layer.name, layer, variant)


def subject_of_scheduled(
    scheduled: Scheduled, label: str = "", rewritten: Program | None = None
) -> Subject:
    """A program under a schedule; ``rewritten`` is what that gives, where it is known already.

    NotApplicable where a step of the schedule does not apply.
    """
    program = scheduled.rewritten() if rewritten is None else rewritten
    name = scheduled.schedule.name
    subject = subject_of_program(program, label or scheduled.program.name, variant=name)
    return replace(subject, scheduled=scheduled)


def subject_of_nest(nest: Nest, label: str = "") -> Subject:
    """A bare nest tree."""
    return Subject(label or nest.name, (nest,))


def subject_of_space(space: TuningSpace, label: str = "") -> Subject:
    """A tuning space of any kernel; InputError carries every problem of its constraints."""
    lowered = solver_space(space)
    return Subject(label or space.name, (), tuning_space=space, parameter_space=lowered)


def derive_space(
    subject: Subject,
    mode: Mode,
    device: DeviceProfile,
    options: RuleOptions,
) -> Space:
    """Every variable and constraint of a subject on a device.

    Strict mode: codes, tuning parameters and local sizes together, all rules. Paper mode:
    codes only, under the printed rules; parameters and local sizes are chosen later there.
    A tuning space has its own constraints and no rules: mode, device and options do not matter.
    Raises InputError for a program with 16-bit floats on a device without them.
    """
    if subject.parameter_space is not None:
        return subject.parameter_space
    require_elements(subject, device)
    if subject.scheduled is not None:
        options = replace(options, free_grid=True)
    if mode is Mode.PAPER or subject.program is None or subject.types is None:
        return build_space(subject.nests, mode, options, device=device)
    loops: LoopProgram = elaborate(subject.program)
    extra = program_constraints(
        loops, subject.types.obligations, size_values(subject.program), device, options
    )
    # Trips with the sizes put in, so that rules which compare them see numbers.
    nests = tuple(kernel.nest() for kernel in loops.kernels)
    return build_space(
        nests, mode, options, parameters=subject.program.parameters, device=device, extra=extra
    )


def require_elements(subject: Subject, device: DeviceProfile) -> None:
    """InputError where a program has 16-bit floats and the device has none."""
    if device.half_precision or device.half_storage or subject.program is None:
        return
    if uses_half(subject.program):
        raise InputError(
            Problem(
                "device.half_precision",
                f"the program has 16-bit floats, and {device.name} no cl_khr_fp16",
                "false",
                "true, or a device named with +half: stored in 16 bits, computed with in 32",
                f"--device {device.name}+half, or a layer of dtype float32",
            )
        )


@dataclass(frozen=True, slots=True)
class RuleCounts:
    """Numbers of constraint instances by rule id, preferences apart."""

    constraints: dict[str, int]
    preferences: dict[str, int]


def rule_counts(space: Space, mode: Mode) -> RuleCounts:
    """Instances by rule, in the order of the rules.

    In paper mode the instance of no-mixing counts as one of shared-memory-scoping, for so
    it is counted in CC'22, Table 4, which prints no rule for it.
    """
    counts = Counter(constraint.rule for constraint in space.constraints)
    preferences = {rule: counts.pop(rule) for rule in tuple(counts) if rule in PREFERENCES}
    if mode is Mode.PAPER and "no-mixing" in counts:
        shared = "shared-memory-scoping"
        merged = counts.pop("no-mixing") + counts.pop(shared, 0)
        # Behind private memory, where Table 4 has it.
        items = list(counts.items())
        place = 1 if items and items[0][0] == "private-memory-scoping" else 0
        items.insert(place, (shared, merged))
        return RuleCounts(dict(items), preferences)
    return RuleCounts(dict(counts), preferences)


def choices_of(assignment: Mapping[Variable, int]) -> Choices:
    """An assignment of a space as the generator's input."""
    parameters: dict[str, int] = {}
    codes: dict[MapId, ScheduleCode] = {}
    sizes: dict[str, list[int]] = {}
    for variable, value in assignment.items():
        match variable:
            case ParameterVariable():
                parameters[variable.name] = value
            case CodeVariable():
                codes[variable.map_id] = ScheduleCode(value)
            case LocalSizeVariable():
                sizes.setdefault(variable.kernel, [1, 1, 1])[variable.dimension] = value
    return Choices(parameters, codes, {k: (v[0], v[1], v[2]) for k, v in sizes.items()})


def generate_kernels(
    subject: Subject, assignment: Mapping[Variable, int], checked: tuple[str, ...] = ()
) -> HostPlan:
    """OpenCL source and host plan of one assignment.

    ``checked`` says in words what was found to hold of it, for the text above the kernels.
    """
    return generate(subject.require_program(), choices_of(assignment), origin_of(subject, checked))


def origin_of(subject: Subject, checked: tuple[str, ...] = ()) -> Origin:
    """Where a subject's program comes from, for the text above its kernels."""
    if subject.scheduled is not None:
        description = f"a schedule of {len(subject.scheduled.schedule.uses)} steps"
    else:
        known = VARIANTS.get(subject.variant)
        description = "" if known is None else known.description
    return Origin(subject.layer, subject.variant, description, subject.symbolic, checked)


def assignment_to_json(assignment: Mapping[Variable, int]) -> dict[str, Any]:
    """``mapping`` (map id to code) and, where there are any, ``parameters`` and ``local_sizes``."""
    choices = choices_of(assignment)
    value: dict[str, Any] = {"mapping": {str(m): int(c) for m, c in choices.codes.items()}}
    if choices.parameters:
        value["parameters"] = dict(choices.parameters)
    if choices.local_sizes:
        value["local_sizes"] = {k: list(v) for k, v in choices.local_sizes.items()}
    return value


def answer_to_json(subject: Subject, assignment: Mapping[Variable, int]) -> dict[str, Any]:
    """An assignment as a subject's author would write it: :func:`assignment_to_json`, or of a
    tuning space its parameters alone, with labels where it has labels."""
    if subject.tuning_space is not None:
        return configuration_to_json(subject.tuning_space, assignment)
    return assignment_to_json(assignment)


#: A variable's place in the text of :func:`_form_of`; no name has a NUL.
_PLACE = re.compile(r'"\\u0000(\d+)\\u0000"')


class AnswerTexts:
    """Answers as lines of JSON, each the text of what :func:`answer_to_json` says.

    What is the same in all of them, which is all but the numbers, is written once.
    """

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._names: tuple[Variable, ...] | None = None
        self._form = ""
        self._order: tuple[int, ...] = ()

    def of(self, assignment: Mapping[Variable, int]) -> str:
        """The text of one answer, without a line's end."""
        if self._subject.tuning_space is not None:
            return json_text(answer_to_json(self._subject, assignment))
        if isinstance(assignment, Row):
            names, values = assignment.names, assignment.row
        else:
            names, values = tuple(assignment), tuple(assignment.values())
        if names != self._names:
            self._names = names
            self._form, self._order = _form_of(names)
        return self._form % tuple([values[place] for place in self._order])


def _form_of(names: tuple[Variable, ...]) -> tuple[str, tuple[int, ...]]:
    """The text of an assignment of these variables with ``%d`` for each value, and which variable
    each of them is of."""
    value: dict[str, Any] = {"mapping": {}}
    for place, name in enumerate(names):
        match name:
            case CodeVariable():
                value["mapping"][str(name.map_id)] = f"\0{place}\0"
            case ParameterVariable():
                value.setdefault("parameters", {})[name.name] = f"\0{place}\0"
            case LocalSizeVariable():
                sizes = value.setdefault("local_sizes", {}).setdefault(name.kernel, [1, 1, 1])
                sizes[name.dimension] = f"\0{place}\0"
    ordered = {key: value[key] for key in ("mapping", "parameters", "local_sizes") if key in value}
    form, order = "", list[int]()
    for number, part in enumerate(_PLACE.split(json_text(ordered))):
        form += "%d" if number % 2 else part.replace("%", "%%")
        if number % 2:
            order.append(int(part))
    return form, tuple(order)


def json_text(value: object) -> str:
    """A JSON value in a line, as every command writes it."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def assignment_from_json(space: Space, value: object) -> Assignment:
    """Read what :func:`assignment_to_json` writes; codes may be numbers or names such as L0.

    A bare object of map ids to codes is read as its ``mapping``. Local sizes that are not
    given are 1. InputError names each unknown map, parameter, kernel and value.
    """
    if not isinstance(value, dict):
        raise InputError(
            Problem("", "a mapping is an object", type(value).__name__, '{"mapping": {"28": 20}}')
        )
    data: dict[str, Any] = {str(k): v for k, v in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if not isinstance(data.get("mapping"), dict):
        data = {"mapping": data}
    problems = [
        Problem(f"/{key}", "unknown field", allowed="mapping, parameters, local_sizes, schema")
        for key in data
        if key not in ("mapping", "parameters", "local_sizes", "schema")
    ]
    known = {_key(variable): variable for variable, _ in space.variables}
    assignment: Assignment = {}

    def put(path: str, key: tuple[str, ...], raw: Any, read_code: bool) -> None:
        variable = known.get(key)
        if variable is None:
            problems.append(Problem(path, "there is nothing of this name to choose"))
            return
        # bool is an int to Python, and a code of true is a mistake.
        if isinstance(raw, bool) or not isinstance(raw, int | str):
            wanted = ("not a schedule code", "a code or its name")
            message, allowed = wanted if read_code else ("is not an integer", "an integer")
            problems.append(Problem(path, message, kind_of(raw), allowed))
            return
        try:
            if read_code:
                assignment[variable] = int(parse_code(raw))
                return
        except InputError as error:
            problems.extend(
                Problem(path, p.message, p.found, p.allowed, p.remedy) for p in error.problems
            )
            return
        if isinstance(raw, str):
            problems.append(Problem(path, "is not an integer", repr(raw)[:80]))
            return
        assignment[variable] = raw

    for map_id, code in data["mapping"].items():
        put(f"/mapping/{map_id}", ("code", str(map_id)), code, True)
    for field, kind in (("parameters", "parameter"),):
        for name, raw in _object(data, field, problems).items():
            put(f"/{field}/{name}", (kind, str(name)), raw, False)
    for kernel, raw in _object(data, "local_sizes", problems).items():
        if not isinstance(raw, list) or len(raw) != len(DIMENSIONS):  # pyright: ignore[reportUnknownArgumentType]
            problems.append(Problem(f"/local_sizes/{kernel}", "is not a list of three sizes"))
            continue
        for d in DIMENSIONS:
            put(f"/local_sizes/{kernel}/{d}", ("size", str(kernel), str(d)), raw[d], False)
    if problems:
        raise InputError(problems)
    for variable, _ in space.variables:
        if isinstance(variable, LocalSizeVariable):
            assignment.setdefault(variable, 1)
    # In the space's order, whatever a file's is: kernels print their constants in it.
    return {v: assignment[v] for v, _ in space.variables if v in assignment}


def _object(data: dict[str, Any], field: str, problems: list[Problem]) -> dict[Any, Any]:
    value = data.get(field, {})
    if isinstance(value, dict):
        return value  # pyright: ignore[reportUnknownVariableType]
    problems.append(Problem(f"/{field}", "is not an object", type(value).__name__))
    return {}


def _key(variable: Variable) -> tuple[str, ...]:
    match variable:
        case CodeVariable():
            return ("code", str(variable.map_id))
        case ParameterVariable():
            return ("parameter", variable.name)
        case LocalSizeVariable():
            return ("size", variable.kernel, str(variable.dimension))
