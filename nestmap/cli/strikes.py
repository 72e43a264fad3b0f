"""``nestmap devices strike``: measurements of a service's device that shall not count."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from mapper.errors import InputError, Problem
from nestmap.cli.output import write_json, write_table, write_text
from nestmap.cli.remote import TokenFileOption, UrlOption, asking, service_at
from nestmap.cli.request import JsonOption

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nestmap.client import Client
    from nestmap.client.documents import StrikeDocument

_MOST_SHOWN = 1_000

DeviceArgument = Annotated[str, typer.Argument(metavar="DEVICE", help="Its id: dev_….")]


def strike(
    device: DeviceArgument,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why; without it strikes are listed.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="What began then or later: 2026-11-24T08:00:00Z."),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="What began before that.")
    ] = None,
    lift: Annotated[
        int | None, typer.Option(metavar="ID", min=0, help="Have a strike's count again.")
    ] = None,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    json_output: JsonOption = False,
) -> None:
    """Take what a device measured off fronts, best kernels and learning; list that; lift it.

    For admins of a service (--url). Without times all that it has measured so far.
    """
    given = [name for name, value in (("--reason", reason), ("--lift", lift)) if value is not None]
    if len(given) > 1:
        raise InputError(Problem("--lift", "is not for a new strike", "--reason", "one of them"))
    if reason is None and (since or until):
        raise InputError(Problem("--reason", "is missing", allowed="why these do not count"))
    with _service(url, token_file) as service, asking():
        if lift is not None:
            found = [service.lift_strike(device, lift)]
        elif reason is not None:
            found = [service.strike(device, reason, since=since, until=until)]
        else:
            found = list(islice(service.strikes(device), _MOST_SHOWN))
    if json_output:
        write_json({"strikes": found})
    elif not found:
        write_text("every measurement of it counts")
    else:
        write_table(
            ("strike", "measurements", "from", "until", "state", "why"),
            (_row(one) for one in found),
            f"strikes of {device}",
            right=("strike", "measurements"),
        )


@contextmanager
def _service(url: str | None, token_file: Path | None) -> Iterator[Client]:
    service = service_at(url, token_file)
    if service is None:
        raise InputError(Problem("--url", "is missing", allowed="the service of the device"))
    with service:
        yield service


def _row(one: StrikeDocument) -> tuple[object, ...]:
    state = f"lifted {one['lifted_at']}" if one["lifted_at"] else "stands"
    times = (one["since"] or "the first", one["until"] or one["created_at"])
    return (one["id"], one["measurements"], *times, state, one["reason"])
