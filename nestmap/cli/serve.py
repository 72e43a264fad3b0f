"""``nestmap serve``: API, solver processes and a local worker on one host."""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Annotated, Any

import typer

from mapper.errors import InputError, Problem
from nestmap.cli.farm_options import option_or_environment
from nestmap.cli.output import printable

DEFAULT_STORE = "nestmap.sqlite3"


def serve(
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0: any free one.")] = 8787,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="PATH|URL",
            help="An SQLite file or a database URL (or NESTMAP_STORE, NESTMAP_STORE_FILE).",
            show_default=DEFAULT_STORE,
        ),
    ] = None,
    worker: Annotated[
        bool, typer.Option("--worker/--no-worker", help="Measure on this host, too.")
    ] = True,
    worker_device: Annotated[
        str, typer.Option(metavar="SPEC", help="What the local worker measures on.")
    ] = "host",
    allow_remote: Annotated[
        bool,
        typer.Option("--allow-remote", help="Serve other hosts though there is no token yet."),
    ] = False,
    solvers: Annotated[
        int | None,
        typer.Option(min=1, max=256, help="Solver processes.", show_default="2, or one a core"),
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Leave solving to solver workers behind this RabbitMQ (or NESTMAP_BROKER).",
        ),
    ] = None,
    share_port: Annotated[
        bool,
        typer.Option(
            "--share-port",
            help="Let several of these listen at one address, on one PostgreSQL; connections are "
            "dealt out to them.",
        ),
    ] = False,
    json_output: Annotated[
        bool, typer.Option("--json", help="Write what happens as JSON, one object a line.")
    ] = False,
) -> None:
    """Serve the HTTP API with everything it needs; Ctrl-C stops it.

    The first start makes an admin token, shows it once, and writes it into a private file
    beside the store.
    """
    from pydantic import ValidationError

    from api.settings import Settings
    from nestmap.farm.serving import ServeOptions
    from nestmap.farm.serving import serve as run

    address = option_or_environment(store, "NESTMAP_STORE", DEFAULT_STORE)
    options = ServeOptions(
        host=host,
        port=port,
        store=address,
        allow_remote=allow_remote,
        worker_device=worker_device if worker else None,
        solvers=solvers or max(2, len(os.sched_getaffinity(0))),
        broker=option_or_environment(broker, "NESTMAP_BROKER"),
        share_port=share_port,
    )
    if share_port and not address.startswith("postgresql"):
        raise InputError(
            Problem("--share-port", "an SQLite file has one service", allowed="a PostgreSQL")
        )
    try:
        quiet = {} if "NESTMAP_LOG_LEVEL" in os.environ or json_output else {"log_level": "warning"}
        settings = Settings(store=address, **quiet)  # pyright: ignore[reportArgumentType]
    except (ValidationError, ValueError) as error:
        raise InputError(
            Problem("environment", "a setting is not acceptable", str(error)[:300])
        ) from None
    with ServeOutput(json_output) as output:
        run(options, settings, output.say)


class ServeOutput:
    """What a service says: lines, JSON objects, or on a terminal a line that shows that it
    works, below what has happened."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._lock = threading.Lock()
        self._status: Any = None
        self._console: Any = None
        if not as_json and sys.stdout.isatty():
            from rich.console import Console

            self._console = Console(markup=False, highlight=False, emoji=False)

    def __enter__(self) -> ServeOutput:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop_status()

    def say(self, event: str, text: str, **fields: Any) -> None:
        """Something has happened; from any thread."""
        with self._lock:
            if self._as_json:
                print(json.dumps({"event": event, "text": text, **fields}), flush=True)
            elif self._console is None:
                print(printable(text), flush=True)
            elif event in ("starting", "stopping"):
                self._stop_status()
                self._status = self._console.status(printable(text) + " …")
                self._status.start()
            else:
                self._stop_status()
                self._console.print(printable(text))

    def _stop_status(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
