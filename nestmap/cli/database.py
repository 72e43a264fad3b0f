"""``nestmap db``: the schema of a store, and copies of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nestmap.cli.group import NestmapGroup
from nestmap.cli.output import note, write_json, write_table
from nestmap.cli.request import JsonOption

if TYPE_CHECKING:
    from sqlalchemy import URL

    from db.maintenance import SchemaStatus

app = typer.Typer(
    cls=NestmapGroup,
    no_args_is_help=True,
    help="Look at a store's schema, bring it up to date, copy it.",
)

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="PATH",
        help="An SQLite file or a database URL.",
        show_default="NESTMAP_STORE, the file in NESTMAP_STORE_FILE, or nestmap.sqlite3",
    ),
]


@app.command()
def status(store: StoreOption = None, json_output: JsonOption = False) -> None:
    """Show the schema's revision and whether it is the newest; nothing is changed."""
    from db.maintenance import schema_status

    url = _address(store)
    _show(url, schema_status(url), json_output)


@app.command()
def upgrade(store: StoreOption = None, json_output: JsonOption = False) -> None:
    """Create the tables, or migrate them to the newest schema; what they hold stays."""
    from db.maintenance import upgrade

    url = _address(store)
    _show(url, upgrade(url), json_output)


@app.command()
def backup(
    target: Annotated[
        Path, typer.Argument(metavar="FILE", help="The new file; never overwritten.")
    ],
    store: StoreOption = None,
    json_output: JsonOption = False,
) -> None:
    """Copy an SQLite store as it is at one moment, also while it is written to.

    To restore: stop the service, put the copy in the store's place, remove its -wal and -shm.
    """
    from db.maintenance import back_up

    url = _address(store)

    def told(left: int, total: int) -> None:
        if left and total > 100_000:
            note(f"{100 * (total - left) // total} % of {total * 4 // 1024} MB copied")

    size = back_up(url, target, told)
    if json_output:
        write_json({"schema": "nestmap/backup/1", "file": str(target), "bytes": size})
        return
    note(f"{target}: {size} bytes")


def _address(store: str | None) -> URL:
    from api.settings import Settings
    from db.engine import address_of

    return address_of(store if store is not None else Settings().store.get_secret_value())


def _show(url: URL, found: SchemaStatus, json_output: bool) -> None:
    shown = url.render_as_string(hide_password=True)
    row = {
        "store": shown,
        "revision": found.revision,
        "newest": found.head,
        "up_to_date": found.up_to_date,
    }
    if json_output:
        write_json({"schema": "nestmap/store-status/1", **row})
        return
    write_table(row, [row.values()], "schema of the store")
