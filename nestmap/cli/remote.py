"""Commands that ask a service (``--url``): its address, the questions, its refusals.

What is cheap is done here: X is read, its space derived, what is written presented, by the same
code as without a service. What takes long, solving and measuring, is done there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from mapper.errors import InputError, LimitError, NestmapError, Problem, UnsatisfiableError
from mapper.profiles import load_profile, profile_names, profile_to_json
from nestmap.answers import EmptySpaceError, empty_space_problem
from nestmap.client.address import URL_VARIABLE
from nestmap.client.errors import TIMED_OUT, ServiceError
from nestmap.requests import Request

if TYPE_CHECKING:
    from nestmap.client import Client
    from nestmap.client.calls import Restricted

UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar=URL_VARIABLE,
        show_envvar=False,
        metavar="URL",
        help=f"Ask the service there instead of working here (or {URL_VARIABLE}).",
        show_default=False,
    ),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="The service's token (or NESTMAP_TOKEN, NESTMAP_TOKEN_FILE).",
        show_default=False,
    ),
]

_LIMITS = ("too-complex", "solver-limit", TIMED_OUT)
#: Refusals of what was asked, not of who asked.
_INPUTS = (
    "invalid-input", "malformed-request", "malformed-json", "not-found", "conflict", "gone",
    "body-too-large", "url-too-long", "idempotency-key-reused",
)  # fmt: skip
#: Fields of bodies in the words of the command line.
_OPTIONS = {
    "pin": "--pin", "forbid": "--forbid", "prefer": "--prefer", "limit": "--limit",
    "number": "--sample, --best", "constants": "--constants", "seed": "--seed",
    "time_limit_s": "--time-limit", "joint": "--joint",
    "stratify": "--stratify", "up_to_symmetry": "--up-to-symmetry", "variant": "--variant",
    "variants": "--variant", "suits": "--suits", "where": "--where",
    "sequential_fusion": "--sequential-fusion", "replicate_private": "--replicate-private",
    "free_grid": "--free-grid", "device": "--device", "stand_ins": "--stand-in", "mode": "--mode",
    "subject": "X", "strategy": "--strategy", "budget": "--candidates, --seconds",
}  # fmt: skip


def service_at(url: str | None, token_file: Path | None) -> Client | None:
    """A client of the service at ``url``, to be closed; None without one."""
    if not url:
        if token_file is not None:
            raise InputError(Problem("--token-file", "is for a service", str(token_file), "--url"))
        return None
    # Loads the HTTP library.
    from nestmap.client import Client

    return Client(url, token_file=token_file)


def refuse_remote(**given: object) -> None:
    """InputError that names each of these options that was given: a service knows none of them.

    Keywords are options with underscores, values what was given; None and False are nothing.
    """
    problems = [
        Problem(f"--{name.replace('_', '-')}", "has no meaning for a service",
                "" if value is True else str(value)[:200], "without --url")
        for name, value in given.items()
        if value is not None and value is not False
    ]  # fmt: skip
    if problems:
        raise InputError(problems)


def given_on_command_line(context: typer.Context, *parameters: str) -> dict[str, object]:
    """Those of these parameters that the user stated, with what was stated; :func:`refuse_remote`
    takes them."""
    stated = {}
    for name in parameters:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            # A flag that was switched off was stated, too.
            stated[name] = context.params[name] or True
    return stated


def question_of(request: Request, time_limit: float) -> Restricted:
    """What is asked about: device, mode, time; pins and the like are the caller's to add."""
    about: Restricted = {"mode": request.mode.value, "device": _device_json(request)}
    about.update(cast("Restricted", request.stated.to_json()))
    if request.subject.layer is not None:
        about["variant"] = request.subject.variant
    if time_limit:
        about["time_limit_s"] = time_limit
    return about


def subject_of(request: Request) -> dict[str, Any]:
    """The subject as its document, which is all that the service gets of a file."""
    subject = request.subject
    layer = subject.layer
    return {"document": subject.to_json() if layer is None else layer.to_json()}


def _device_json(request: Request) -> Any:
    name = request.device.name
    shipped = name in profile_names() and load_profile(name) == request.device
    return name if shipped else profile_to_json(request.device)


@contextmanager
def asking(request: Request | None = None) -> Iterator[None]:
    """The service's refusals as the errors that the same mistakes are without a service."""
    try:
        yield
    except ServiceError as error:
        raise as_local(error, request) from error


def as_local(error: ServiceError, request: Request | None) -> NestmapError:
    """The error that a refusal would have been here; itself where it is the service's own."""
    problems = [
        Problem(option_of(p.path), p.message, p.found, p.allowed, p.remedy) for p in error.problems
    ]
    if error.kind == "unsatisfiable":
        problem = problems[0] if request is None else empty_space_problem(request)
        conflict = error.more.get("conflict")
        if conflict is None:
            return UnsatisfiableError(problem)
        return EmptySpaceError(problem, _conflict(conflict))
    if error.kind in _LIMITS:
        return LimitError(problems)
    if error.kind in _INPUTS:
        return InputError(problems)
    return error


def option_of(pointer: str) -> str:
    """A pointer into a body in the words of the command line; others as they are."""
    name, _, rest = pointer.removeprefix("/").partition("/")
    option = _OPTIONS.get(name)
    if option is None or not pointer.startswith("/"):
        return pointer
    rest = rest.removeprefix("document").removeprefix("/") if name == "subject" else ""
    return f"{option}: /{rest}" if rest else option


def _conflict(value: object) -> dict[str, Any]:
    from nestmap.client.documents import ConflictParts
    from nestmap.client.replies import checked

    return dict(checked(ConflictParts, value))
