"""How answers are written: JSON, CSV or Arrow, with the version that they reflect in the body and in a header."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import Any

from starlette.responses import Response

from headrace.errors import AlreadyExists, HeadraceError, InvalidInput, NotFound, NotNow, RecordTooLarge
from headrace.serving.bodies import BodyTooSlow
from headrace.serving.door import TooManyGuesses
from headrace.views.store import Answer, Offsets, version

__all__ = ["ARROW", "FORMATS", "VERSION_HEADER", "failure", "json_response", "table_response"]

ARROW = "application/vnd.apache.arrow.stream"
VERSION_HEADER = "Headrace-Version"
FORMATS = ("json", "csv", "arrow")
MOST_EXACT = 2**53 - 1
"""The largest integer that a double, and so JavaScript, tells from its neighbours."""
_STATUSES = (
    (NotFound, 404),
    (RecordTooLarge, 413),
    (AlreadyExists, 409),
    (NotNow, 409),
    (TooManyGuesses, 429),
    (BodyTooSlow, 408),
    (InvalidInput, 400),
)


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON document; numbers that JSON does not have are null."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"))
    return Response(text, status, headers, "application/json")


def failure(error: HeadraceError, status: int | None = None) -> Response:
    """An error as its reader gets it: a sentence, perhaps a detail and a hint. The rest of a body that was not read is
    not waited for."""
    if status is None:
        status = next((code for kind, code in _STATUSES if isinstance(error, kind)), 503)
    told = {"error": error.message, "detail": error.detail, "hint": error.hint}
    headers = {"Connection": "close"} if isinstance(error, BodyTooSlow | RecordTooLarge) else None
    return json_response({name: text for name, text in told.items() if text}, status, headers)


def table_response(
    answer: Answer, about: dict[str, Any], form: str, offsets: Offsets | None = None, *, exact: bool = False
) -> Response:
    """Rows of a view as objects, or as a table of another format. ``exact``: in JSON, integers that are no numbers in
    JavaScript are text."""
    headers = {VERSION_HEADER: version(offsets)} if offsets is not None else {}
    if form == "arrow":
        return Response(_arrow(answer), 200, headers, ARROW)
    names = [column.name for column in answer.columns]
    if form == "csv":
        return Response(_csv(names, answer.rows), 200, headers, "text/csv; charset=utf-8")
    columns = [{"name": column.name, "type": column.type} for column in answer.columns]
    rows = [dict(zip(names, _exact(row) if exact else row, strict=True)) for row in answer.rows]
    return json_response({**about, "columns": columns, "rows": rows, "truncated": answer.truncated}, headers=headers)


def _arrow(answer: Answer) -> bytes:
    import pyarrow as pa

    from headrace.views.arrow import to_table

    table = to_table(answer)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _csv(names: list[str], rows: list[tuple[Any, ...]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(names)
    writer.writerows(
        [json.dumps(cell) if isinstance(cell, dict | list | bool) else cell for cell in row] for row in rows
    )
    return text.getvalue()


def _exact(value: Any) -> Any:
    if isinstance(value, int) and abs(value) > MOST_EXACT:
        return str(value)
    if isinstance(value, dict):
        return {key: _exact(item) for key, item in value.items()}
    return [_exact(item) for item in value] if isinstance(value, list | tuple) else value


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
