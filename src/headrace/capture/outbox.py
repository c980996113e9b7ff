"""Rows of an outbox table as events: what Debezium's event router makes of them, for databases that it does not know.

::

    key       the column ``key``, as JSON (text in quotes)
    value     the column ``payload``: JSON as it was written
    headers   id, type, aggregate, and the columns that were named as headers
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.capture.declarations import Outbox, Source
from headrace.capture.envelopes import Change, ChangeRecord, to_json

__all__ = ["event_record", "outbox"]


def outbox(
    source: Source,
    *,
    id: str = "id",
    aggregate: str = "aggregatetype",
    key: str = "aggregateid",
    type: str = "type",
    payload: str = "payload",
    headers: Iterable[str] = (),
) -> Outbox:
    """An outbox table as the source of a stream: ``app.stream(..., capture=hr.outbox(hr.Postgres(...)))``.

    An application writes its state and its events in one transaction of its database; each row that is inserted into
    the outbox becomes one event. The arguments name the table's columns: a unique id, what kind of thing the event is
    about and which one (the event's key), its type, its payload (JSON); ``headers`` more columns to be sent as headers.
    """
    return Outbox(source, id, aggregate, key, type, payload, tuple(headers))


def event_record(change: Change, outbox: Outbox) -> Iterator[ChangeRecord]:
    """The event of a row that was inserted; nothing for other changes."""
    row = change.after
    if row is None or change.op not in ("c", "r"):
        return
    named = {"id": outbox.id, "type": outbox.type, "aggregate": outbox.aggregate}
    named |= {name: name for name in outbox.headers}
    headers = [(header, _text(row[column])) for header, column in named.items() if row[column] is not None]
    payload = row[outbox.payload]
    yield ChangeRecord(to_json(row[outbox.key]), None if payload is None else _text(payload), headers)


def _text(value: object) -> bytes:
    return value.encode() if isinstance(value, str) else to_json(value)
