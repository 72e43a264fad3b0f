"""``nestmap kernel``: OpenCL source and host plan of one mapping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from mapper.constraint_rules.preferences import PREFERENCES
from mapper.constraint_rules.rule import Mode
from mapper.errors import InputError, Problem, UnsatisfiableError
from mapper.host_plan import HostPlan
from mapper.pipeline import (
    Assignment,
    answer_to_json,
    assignment_to_json,
    generate_kernels,
)
from mapper.solver.restrictions import narrowed
from mapper.solver.space import check
from nestmap.answers import checked_facts, violation_to_json
from nestmap.cli.check import judge_text, read_text, variant_with
from nestmap.cli.exit_codes import ExitCode
from nestmap.cli.explanations import explained
from nestmap.cli.front import DEFAULT_DATABASE
from nestmap.cli.kernel_explanation import write_explanation
from nestmap.cli.output import (
    Progress,
    mapping_fields,
    note,
    write_json,
    write_problems,
    write_table,
    write_text,
)
from nestmap.cli.remote import (
    TokenFileOption,
    UrlOption,
    asking,
    question_of,
    refuse_remote,
    service_at,
    subject_of,
)
from nestmap.cli.remote_solving import assignment_of
from nestmap.cli.request import (
    DEFAULT_TIME_LIMIT_S,
    DeviceOption,
    ForbidOption,
    FreeGridOption,
    JsonOption,
    ModeOption,
    PinOption,
    PreferOption,
    ReplicatePrivateOption,
    Request,
    SeedOption,
    SequentialFusionOption,
    SuitsOption,
    TimeLimitOption,
    VariantOption,
    WhereOption,
    XArgument,
    prepare,
    seconds_or_none,
    stated_by,
)
from nestmap.client.errors import ServiceError, bad_answer
from nestmap.device_limits import DEFAULT_DEVICE
from nestmap.mappings import schedule_of_text
from nestmap.requests import request_about
from nestmap.restrictions import read_restrictions
from nestmap.stated import Stated
from nestmap.subjects import read_bounded

if TYPE_CHECKING:
    from nestmap.client import Client
    from nestmap.client.calls import KernelQuestion


def kernel(
    x: XArgument,
    mapping: Annotated[
        str | None,
        typer.Argument(
            metavar="[MAPPING.json]",
            help="A file as solve --json writes it a line, or tune --json; without one a mapping "
            "is drawn.",
            show_default=False,
        ),
    ] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw a mapping with --seed.")] = False,
    best: Annotated[bool, typer.Option("--best", help="The fastest known for the device.")] = False,
    db: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="--best: the store, too.",
            show_default=f"{DEFAULT_DATABASE}, where it is there",
        ),
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="--best: records of this folder, too."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the source into a file.")
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show buffers and launches instead of the source.")
    ] = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Show the program, its loops under the mapping, index expressions before and "
            "after simplification, barriers with reasons, and memory, instead of the source.",
        ),
    ] = False,
    pin: PinOption = None,
    forbid: ForbidOption = None,
    prefer: PreferOption = None,
    time_limit: TimeLimitOption = DEFAULT_TIME_LIMIT_S,
    variant: VariantOption = None,
    mode: ModeOption = Mode.STRICT,
    suits: SuitsOption = None,
    sequential_fusion: SequentialFusionOption = True,
    replicate_private: ReplicatePrivateOption = False,
    free_grid: FreeGridOption = False,
    where: WhereOption = None,
    device: DeviceOption = DEFAULT_DEVICE,
    seed: SeedOption = 0,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    json_output: JsonOption = False,
) -> None:
    """Print the OpenCL kernels of a mapping, and what the host does to run them."""
    if plan and explain:
        raise InputError(Problem("--explain", "buffers and launches are asked for", "--plan"))
    if mapping is not None and sample:
        raise InputError(Problem("--sample", "a mapping is given, so none can be drawn", mapping))
    if mapping is not None and (pin or forbid or prefer):
        message = "a mapping is given, so nothing is left to pin, forbid or prefer"
        raise InputError(Problem("", message, mapping))
    if best and (mapping is not None or sample or pin or forbid or prefer):
        raise InputError(Problem("--best", "the records say which mapping, so none can be chosen"))
    service = service_at(url, token_file)
    if best:
        if service is not None:
            refuse_remote(best=best)
        if mode is Mode.PAPER:
            raise InputError(Problem("--best", "records are of the strict mode", mode.value))
        # Loads the database library and what records are made by.
        from nestmap.cli.best_known import best_known
        from nestmap.cli.recorded import Places

        request, assignment, known = best_known(x, variant, device, Places(db, records))
        _show(
            request, assignment, _printed(request, assignment), out, plan, explain, json_output,
            {"record": known},
        )  # fmt: skip
        return
    for option, value in (("--db", db), ("--records", records)):
        if value is not None:
            raise InputError(Problem(option, "says where --best looks", str(value), "--best"))
    text = None if mapping is None else read_bounded(mapping)
    asked = variant if text is None else variant_with(text, variant)
    stated = stated_by(suits, sequential_fusion, replicate_private, free_grid, where)
    schedule = None if text is None else schedule_of_text(text)
    request = prepare(x, asked, mode, device, stated, schedule)
    request.subject.require_program()
    restrictions = read_restrictions(request.space, pin or (), forbid or (), prefer or ())
    request = replace(request, restrictions=restrictions)
    if service is not None:
        wanted: KernelQuestion = {
            **question_of(request, time_limit),
            "pin": pin or (),
            "forbid": forbid or (),
            "prefer": prefer or (),
        }
        if text is None:
            wanted["seed"] = seed
        else:
            given = read_text(request, text)
            wanted["mapping"] = answer_to_json(request.subject, given.assignment)
        with service:
            assignment, printed = _from_service(service, request, wanted, json_output)
        if text is not None:
            _note_preferences(request, assignment)
        _show(request, assignment, printed, out, plan, explain, json_output)
        return
    if text is None and prefer:
        assignment = _preferred(request, time_limit)
    elif text is None:
        assignment = _drawn(request, seed, time_limit)
    else:
        verdict = judge_text(request, text, time_limit)
        if not verdict.valid:
            _refuse([violation_to_json(v) for v in verdict.violations], json_output)
        if verdict.assumed:
            assumed = assignment_to_json(verdict.assumed)
            del assumed["mapping"]
            note(f"assumed {mapping_fields(assumed)}")
        assignment = verdict.assignment
        _note_preferences(request, assignment)
    if request.mode is Mode.PAPER:
        assignment = _with_values(request, assignment)
    _show(request, assignment, _printed(request, assignment), out, plan, explain, json_output)


def _note_preferences(request: Request, assignment: Assignment) -> None:
    """Say which preferences a valid mapping breaks."""
    chosen = {v: assignment[v] for v, _ in request.space.variables if v in assignment}
    broken = dict.fromkeys(v.rule for v in check(request.space, chosen) if v.rule in PREFERENCES)
    if broken:
        note(f"the mapping breaks a preference: {', '.join(broken)}")


def _printed(request: Request, assignment: Assignment) -> HostPlan:
    return generate_kernels(request.subject, assignment, checked_facts(request, assignment))


def _from_service(
    service: Client, request: Request, wanted: KernelQuestion, json_output: bool
) -> tuple[Assignment, HostPlan]:
    """What a service chose and printed."""
    from nestmap.client.documents import ViolationDocument
    from nestmap.client.replies import checked

    try:
        with Progress("printing"), asking(request):
            found = service.kernel(subject_of(request), **wanted)
    except ServiceError as error:
        if error.kind == "invalid-mapping":
            listed = checked(list[ViolationDocument], error.more.get("violations"))
            _refuse(listed, json_output)
        raise
    assumed = {name: value for name, value in found["assumed"].items() if value}
    if assumed:
        note(f"assumed {mapping_fields(assumed)}")
    try:
        plan = HostPlan.from_json({**found["plan"], "source": found["source"]})
    except (KeyError, TypeError, ValueError, AttributeError, InputError) as error:
        raise bad_answer("the host plan is not one that is known here", str(error)) from None
    if request.mode is Mode.PAPER:
        # Parameters and local sizes are chosen under the strict rules.
        asked = Stated(request.stated.options)
        request = request_about(request.subject, request.device, Mode.STRICT, stated=asked)
    return assignment_of(request, found["choices"]), plan


def _show(
    request: Request,
    assignment: Assignment,
    host_plan: HostPlan,
    out: Path | None,
    plan: bool,
    explain: bool,
    json_output: bool,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    if out is not None:
        _write_file(out, host_plan.source)
    if explain:
        write_explanation(request, assignment, json_output)
    elif json_output:
        choices = assignment_to_json(assignment)
        known = {**request.variant(), **request.rewriting()}
        write_json({**host_plan.to_json(), "choices": choices, **known, **more})
    elif plan:
        _write_plan(host_plan)
    elif out is None:
        write_text(host_plan.source)


def _drawn(request: Request, seed: int, time_limit: float) -> Assignment:
    # Loads the solver.
    from mapper.solver.sampling import sample

    space, pins = narrowed(request.space, request.restrictions), request.restrictions.pins
    try:
        with Progress("drawing a mapping"):
            return next(iter(sample(space, 1, seed, pins)))
    except UnsatisfiableError:
        raise explained(request, seconds_or_none(time_limit)) from None


def _preferred(request: Request, time_limit: float) -> Assignment:
    """The mapping that meets the preferences best."""
    from mapper.solver.preferences import best

    limit_s = seconds_or_none(time_limit)
    with Progress("looking for the best mapping"):
        found = best(request.space, request.restrictions, time_limit_s=limit_s)
    if found is None:
        raise explained(request, limit_s)
    if not found.proven:
        note("a mapping that meets the preferences better was not ruled out: --time-limit")
    return dict(found.assignment)


def _with_values(request: Request, codes: Assignment) -> Assignment:
    """Tuning parameters and local sizes for a mapping that paper mode accepts."""
    from nestmap.finding import with_values

    with Progress("choosing parameters and local sizes"):
        return with_values(request, codes)


def _refuse(violations: Sequence[Mapping[str, Any]], json_output: bool) -> NoReturn:
    if json_output:
        write_json({"valid": False, "violations": violations})
    write_problems(
        "invalid-mapping",
        [Problem(v["constraint"] or "", v["sentence"], remedy=v["remedy"]) for v in violations],
        json_output,
    )
    raise typer.Exit(ExitCode.NEGATIVE)


def _write_file(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(Problem("--out", f"cannot be written: {reason}", str(path))) from None


def _write_plan(plan: HostPlan) -> None:
    write_table(
        ("buffer", "role", "shape", "bytes", "used by launches"),
        (
            (b.name, b.role.value, " x ".join(map(str, b.shape)), b.bytes,
             f"{b.first_use} to {b.last_use}")
            for b in plan.buffers
        ),
        f"global memory: {plan.memory_bytes} bytes, {plan.extra_bytes} of them intermediate",
        right=("bytes",),
    )  # fmt: skip
    write_table(
        ("launch", "kernel", "global size", "local size", "arguments", "local bytes",
         "private bytes"),
        (
            (number, launch.kernel, " x ".join(map(str, launch.global_size)),
             " x ".join(map(str, launch.local_size)), ", ".join(launch.arguments),
             launch.local_bytes, launch.private_bytes)
            for number, launch in enumerate(plan.launches)
        ),
        "launches",
    )  # fmt: skip
