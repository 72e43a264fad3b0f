"""Walking the assignments of small programs: what the rules say and what running them says."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.proofs.completeness.judge import Case, Judge, Verdict
from bench.proofs.completeness.kernel_text import exact_form, normal_form
from bench.proofs.completeness.programs import SmallProgram
from bench.proofs.completeness.walk import Grid, assignments, without_lone_threads
from mapper.ast_model.elaborate import elaborate
from mapper.ast_model.interpreter import interpret
from mapper.ast_model.kernel_state import buffer_dimensions
from mapper.ast_model.loop_nest import LoopProgram
from mapper.constraint_rules.preferences import PREFERENCES
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.errors import InputError, NestmapError
from mapper.host_plan import HostPlan
from mapper.kernel_gen.generate import generate_from
from mapper.pipeline import (
    Assignment,
    Subject,
    assignment_to_json,
    choices_of,
    derive_space,
)
from mapper.profiles import load_profile
from mapper.schedule import code_name
from mapper.solver.space import Space, check

DEVICE = "pocl"
# Outcomes of rejected assignments, besides the verdicts that are not right.
RIGHT = "right"
#: Right, and an accepted assignment is the same kernel.
SAME_KERNEL = "same-kernel"
#: Right with the first sizes, and not with the second.
ONE_SIZE = "one-size"
NO_CODE = "no-code"
#: Every switch that admits more.
WIDE = RuleOptions(sequential_fusion=False, replicate_private=True, free_grid=True)
_NO_CODE = (NestmapError, AssertionError, ValueError)

RuleSet = tuple[str, ...]


@dataclass
class Losses:
    """Different kernels that are right and have no accepted assignment.

    They are counted by the rules that their least wrong assignment breaks, with one of these
    assignments as an example.
    """

    kernels: Counter[RuleSet] = field(default_factory=Counter[RuleSet])
    examples: dict[RuleSet, dict[str, Any]] = field(default_factory=dict[RuleSet, dict[str, Any]])


@dataclass
class ProgramResult:
    """What was found of one program.

    ``accepted`` counts verdicts of assignments that break no rule and no preference,
    ``not_preferred`` of those that break preferences alone, ``widened`` of those that only the
    switches of WIDE admit. ``rejected`` counts outcomes by the rules that are broken.
    """

    name: str
    text: str
    assignments: int = 0
    kernels: int = 0
    device_checks: int = 0
    seconds: float = 0.0
    accepted: Counter[str] = field(default_factory=Counter[str])
    not_preferred: Counter[str] = field(default_factory=Counter[str])
    widened: Counter[str] = field(default_factory=Counter[str])
    rejected: dict[RuleSet, Counter[str]] = field(default_factory=dict[RuleSet, Counter[str]])
    refusals: Counter[str] = field(default_factory=Counter[str])
    accepted_kernels: int = 0
    lost: Losses = field(default_factory=Losses)
    lost_wide: Losses = field(default_factory=Losses)
    failures: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


class _Sized:
    """A program with one set of sizes: its space, its loops, and verdicts on its plans."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.program = subject.require_program()
        device = load_profile(DEVICE)
        self.space = derive_space(subject, Mode.STRICT, device, RuleOptions())
        self.wide = derive_space(subject, Mode.STRICT, device, WIDE)
        self.kernel_of = {
            str(map_id): kernel.name
            for kernel in elaborate(self.program).kernels
            for map_id in kernel.map_ids()
        }
        self._loops: dict[tuple[tuple[str, int], ...], LoopProgram] = {}
        self._cases: dict[tuple[tuple[str, int], ...], Case] = {}
        self._judges: dict[tuple[tuple[str, int], ...], Judge] = {}
        self._verdicts: dict[tuple[tuple[tuple[str, int], ...], str], Verdict] = {}

    @property
    def kernels(self) -> int:
        """Different plans that were judged."""
        return len(self._verdicts)

    def plan(self, assignment: Assignment) -> HostPlan:
        """Code of an assignment whatever the rules say; an exception where there is none."""
        choices = choices_of(assignment)
        key = _key(choices.parameters)
        if key not in self._loops:
            self._loops[key] = elaborate(self.program, dict(choices.parameters))
        return generate_from(self._loops[key], self.program, choices, refuse=False)

    def verdict(self, assignment: Assignment, plan: HostPlan) -> Verdict:
        """What becomes of the plan; equal plans are run once."""
        parameters = _key(choices_of(assignment).parameters)
        key = (parameters, exact_form(plan))
        if key not in self._verdicts:
            if parameters not in self._judges:
                self._judges[parameters] = Judge(self._case(parameters))
            self._verdicts[key] = self._judges[parameters].verdict(plan)
        return self._verdicts[key]

    def device_agrees(self, assignment: Assignment, plan: HostPlan) -> bool:
        """Whether PoCL computes the same."""
        return self._judges[_key(choices_of(assignment).parameters)].device_agrees(plan)

    def rules(self, assignment: Assignment) -> tuple[RuleSet, bool]:
        """The rules that an assignment breaks, and whether it breaks a preference too."""
        broken = _broken(self.space, assignment)
        return tuple(sorted(broken - PREFERENCES)), bool(broken & PREFERENCES)

    def wide_rules(self, assignment: Assignment) -> RuleSet:
        """The rules that it breaks even if all switches are set."""
        return tuple(sorted(_broken(self.wide, assignment) - PREFERENCES))

    def _case(self, parameters: tuple[tuple[str, int], ...]) -> Case:
        sizes = dict(self.program.sizes)
        rng = np.random.default_rng(7)
        inputs = {
            # Small positive integers: sums are exact, and no right element is zero, which
            # memory that nobody wrote may hold.
            i.name: rng.integers(
                1, 9, [n.evaluate(sizes) for n in buffer_dimensions(i.type)]
            ).astype(np.float32)
            for i in self.program.inputs
        }
        return Case(inputs, interpret(self.program, dict(parameters), inputs))

    def close(self) -> None:
        """End the children."""
        for judge in self._judges.values():
            judge.__exit__(None, None, None)


def _broken(space: Space, assignment: Assignment) -> set[str]:
    return {violation.rule for violation in check(space, assignment)}


def _key(parameters: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(parameters.items()))


@dataclass(frozen=True, slots=True)
class _Lost:
    """A rejected assignment that ran right with the first sizes."""

    rules: RuleSet
    wide_rules: RuleSet
    assignment: Assignment
    form: bytes


@dataclass
class _Found:
    """Forms of accepted kernels, rejected assignments that ran right, an assignment a kernel."""

    accepted: set[bytes] = field(default_factory=set[bytes])
    accepted_wide: set[bytes] = field(default_factory=set[bytes])
    lost: list[_Lost] = field(default_factory=list[_Lost])
    right: dict[bytes, Assignment] = field(default_factory=dict[bytes, Assignment])


def walk_program(
    small: SmallProgram,
    grid: Grid,
    *,
    device_checks: int = 200,
    progress: Callable[[int], None] = lambda _: None,
) -> ProgramResult:
    """Judge every assignment of the program on the grid.

    PoCL, which takes longer to compile a kernel than Oclgrind to compile and run it, is asked
    about ``device_checks`` of the different kernels that the simulator finds right. Raises
    DeviceError when Oclgrind or PoCL is missing.
    """
    first = _Sized(small.subject(small.sizes[0]))
    second = _Sized(small.subject(small.sizes[1]))
    result = ProgramResult(small.name, small.text(small.sizes[0]))
    found = _Found()
    try:
        for number, assignment in enumerate(assignments(first.space, first.kernel_of, grid)):
            progress(number)
            _judge(first, assignment, result, found)
        result.kernels = first.kernels
        result.accepted_kernels = len(found.accepted)
        right = [item for item in found.lost if _right_again(second, item, result)]
        _blame(right, first, found, result)
        _ask_device(first, found, device_checks, result)
    finally:
        first.close()
        second.close()
    return result


def _judge(sized: _Sized, assignment: Assignment, result: ProgramResult, found: _Found) -> None:
    result.assignments += 1
    rules, not_preferred = sized.rules(assignment)
    try:
        plan = sized.plan(assignment)
    except _NO_CODE as error:
        if not rules:
            result.failures.append(_shown(assignment, f"no code: {error}"))
        else:
            _count(result, rules, NO_CODE)
            result.refusals[_reason(error)] += 1
        return
    verdict = sized.verdict(assignment, plan)
    form = hashlib.sha256(normal_form(plan).encode()).digest()
    if verdict is Verdict.RIGHT:
        found.right.setdefault(form, assignment)
    if not rules:
        found.accepted.add(form)
        counter = result.not_preferred if not_preferred else result.accepted
        counter[verdict.value] += 1
        if verdict is not Verdict.RIGHT:
            result.failures.append(_shown(assignment, verdict.value))
        return
    wide_rules = sized.wide_rules(assignment)
    if not wide_rules:
        found.accepted_wide.add(form)
        result.widened[verdict.value] += 1
        if verdict is not Verdict.RIGHT:
            result.failures.append(_shown(assignment, f"with all switches: {verdict.value}"))
    if verdict is Verdict.RIGHT:
        found.lost.append(_Lost(rules, wide_rules, assignment, form))
    else:
        _count(result, rules, verdict.value)


def _right_again(sized: _Sized, item: _Lost, result: ProgramResult) -> bool:
    """Whether what was right with the first sizes is right with the second.

    Where the second sizes break further rules they say nothing.
    """
    if set(sized.rules(item.assignment)[0]) <= set(item.rules):
        try:
            verdict = sized.verdict(item.assignment, sized.plan(item.assignment))
        except _NO_CODE:
            verdict = Verdict.WRONG
        if verdict is not Verdict.RIGHT:
            _count(result, item.rules, ONE_SIZE)
            return False
    return True


def _blame(right: list[_Lost], sized: _Sized, found: _Found, result: ProgramResult) -> None:
    """Tell lost kernels from those that an accepted assignment gives too.

    Each lost kernel is counted once, under the smallest set of rules that keep it out.
    """
    lost: list[tuple[RuleSet, _Lost]] = []
    lost_wide: list[tuple[RuleSet, _Lost]] = []
    known = {item.form for item in right if item.form in found.accepted}
    known_wide = {item.form for item in right if item.form in found.accepted_wide}
    least: list[tuple[RuleSet, RuleSet]] = []
    for item in right:
        rules, wide_rules = item.rules, item.wide_rules
        simpler = without_lone_threads(item.assignment, sized.kernel_of)
        if simpler != item.assignment:
            rules = min(rules, sized.rules(simpler)[0], key=_weight)
            wide_rules = min(wide_rules, sized.wide_rules(simpler), key=_weight)
        least.append((rules, wide_rules))
        if not rules:
            known.add(item.form)
        if not wide_rules:
            known_wide.add(item.form)
    for item, (rules, wide_rules) in zip(right, least, strict=True):
        if item.form in known:
            _count(result, item.rules, SAME_KERNEL)
            continue
        _count(result, item.rules, RIGHT)
        lost.append((rules, item))
        if item.form not in known_wide:
            lost_wide.append((wide_rules, item))
    _sum_up(lost, result.lost)
    _sum_up(lost_wide, result.lost_wide)


def _weight(rules: RuleSet) -> tuple[int, RuleSet]:
    return len(rules), rules


def _sum_up(lost: Iterable[tuple[RuleSet, _Lost]], losses: Losses) -> None:
    least: dict[bytes, tuple[RuleSet, _Lost]] = {}
    for rules, item in lost:
        other = least.get(item.form)
        if other is None or _weight(rules) < _weight(other[0]):
            least[item.form] = rules, item
    for rules, item in least.values():
        losses.kernels[rules] += 1
        losses.examples.setdefault(rules, _shown(item.assignment))


def _ask_device(sized: _Sized, found: _Found, checks: int, result: ProgramResult) -> None:
    kept = sorted(found.right)
    for form in random.Random(0).sample(kept, min(checks, len(kept))):
        assignment = found.right[form]
        result.device_checks += 1
        if not sized.device_agrees(assignment, sized.plan(assignment)):
            result.failures.append(_shown(assignment, "PoCL does not agree with Oclgrind"))


def _count(result: ProgramResult, rules: RuleSet, outcome: str) -> None:
    result.rejected.setdefault(rules, Counter())[outcome] += 1


def _shown(assignment: Assignment, verdict: str = "") -> dict[str, Any]:
    value = assignment_to_json(assignment)
    value["mapping"] = {m: code_name(code) for m, code in value["mapping"].items()}
    return {**value, "verdict": verdict} if verdict else value


def _reason(error: Exception) -> str:
    if isinstance(error, InputError):
        return error.problems[0].message
    return type(error).__name__
