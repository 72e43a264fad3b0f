"""Measurements as files: CSV, JSON, NDJSON and T4, written while they are read."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from api.auth import Principal
from api.schemas.measurements import MeasurementDocument
from api.services import Services
from api.streaming import NDJSON, line
from api.t4 import SCHEMA_VERSION, t4_result
from db.farm.measurements import StudiedMeasurement
from db.farm.selection import Selection
from db.records import CandidateRecord

PAGE = 500
_COLUMNS = (
    "id", "study", "run", "device", "device_name", "program", "variant", "mode", "candidate",
    "outcome", "time_ms", "span_ms", "memory_bytes", "trials_ns", "spans_ns",
    "max_relative_error", "compile_ms", "message", "parameters", "mapping", "local_sizes",
    "source_hash", "nestmap_version", "started_at",
)  # fmt: skip
#: A spreadsheet takes a text that begins with one of these for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class ExportFormat(StrEnum):
    """How measurements are written."""

    CSV = "csv"
    JSON = "json"
    NDJSON = "ndjson"
    T4 = "t4"


@dataclass(frozen=True, slots=True)
class Exported:
    """A measurement with all that its row in a file needs."""

    found: StudiedMeasurement
    document: dict[str, Any]
    candidate: CandidateRecord

    @property
    def choices(self) -> dict[str, Any]:
        """What was chosen."""
        chosen = self.candidate
        return {
            "parameters": dict(chosen.parameters),
            "mapping": chosen.mapping,
            "local_sizes": chosen.local_sizes,
        }


MEDIA_TYPES = {
    ExportFormat.CSV: "text/csv",
    ExportFormat.JSON: "application/json",
    ExportFormat.NDJSON: NDJSON,
    ExportFormat.T4: "application/json",
}


async def exported(
    services: Services, principal: Principal, selection: Selection, format_: ExportFormat
) -> AsyncIterator[bytes]:
    """The file in pieces, a page of measurements each; memory does not grow with its length."""
    with services.streams.one_more(principal.id):
        writer = _WRITERS[format_]
        first = True
        yield writer.head
        async for page in _pages(services, selection):
            rows = await services.database(_written, writer, page)
            yield (b"" if first else writer.between) + rows
            first = False
        yield writer.tail


def _written(writer: _Writer, page: list[Exported]) -> bytes:
    return writer.between.join(map(writer.row, page))


async def _pages(services: Services, selection: Selection) -> AsyncIterator[list[Exported]]:
    farm, database = services.farm, services.database
    names = {device.id: device.name for device in await database(farm.store.devices)}
    after: int | None = None
    more = True

    def read() -> tuple[list[Exported], bool]:
        # Documents are made in the thread, too: those of many trials take long.
        page, more = farm.measurements.page_and_more(selection, limit=PAGE, after=after)
        candidates = farm.catalogue.candidates([found.measurement.candidate_id for found in page])
        return [
            Exported(
                found,
                MeasurementDocument.of(found, names.get(found.device_id, "")).model_dump(
                    mode="json"
                ),
                candidates[found.measurement.candidate_id],
            )
            for found in page
        ], more

    while more:
        page, more = await database(read)
        if page:
            after = page[-1].found.measurement.id
            yield page


@dataclass(frozen=True, slots=True)
class _Writer:
    row: Callable[[Exported], bytes]
    head: bytes = b""
    between: bytes = b""
    tail: bytes = b""


def _csv_line(values: list[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(values)
    return text.getvalue().encode("utf-8", "backslashreplace")


def _csv_row(exported: Exported) -> bytes:
    document = exported.document
    detail: dict[str, Any] = document["detail"]
    flat = {
        **document,
        **{name: detail.get(name) for name in ("max_relative_error", "compile_ms")},
        **{name: ";".join(map(str, document[name] or [])) for name in ("trials_ns", "spans_ns")},
        "message": _no_formula(str(detail.get("message", ""))),
        **{name: json.dumps(value, sort_keys=True) for name, value in exported.choices.items()},
    }
    flat["device_name"] = _no_formula(flat["device_name"])
    return _csv_line([flat[column] for column in _COLUMNS])


def _no_formula(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def _json_row(exported: Exported) -> bytes:
    value = {**exported.document, "choices": exported.choices}
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def _ndjson_row(exported: Exported) -> bytes:
    return line({**exported.document, "choices": exported.choices})


def _t4_row(exported: Exported) -> bytes:
    stored, chosen = exported.found.measurement, exported.candidate
    result = t4_result(
        stored.outcome,
        stored.memory_bytes,
        stored.started_at,
        chosen.parameters,
        chosen.mapping,
        chosen.local_sizes,
    )
    return json.dumps(result, separators=(",", ":"), allow_nan=False).encode()


_WRITERS = {
    ExportFormat.CSV: _Writer(_csv_row, head=_csv_line(list(_COLUMNS))),
    ExportFormat.JSON: _Writer(_json_row, b"[", b",\n", b"]\n"),
    ExportFormat.NDJSON: _Writer(_ndjson_row),
    ExportFormat.T4: _Writer(
        _t4_row,
        f'{{"schema_version":"{SCHEMA_VERSION}","results":['.encode(),
        b",\n",
        b"]}\n",
    ),
}
