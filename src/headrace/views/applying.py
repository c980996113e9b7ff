"""Records taken in by a store: in bulk where all is well, else in ever smaller parts until the bad ones are alone.

A store gives one function that writes changes, all of them or none (``Refused``). So what is right for one store is
right for all: the last record of a key wins, a bad record is left out and told, and those around it are taken in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.views.changes import BadValue, Changes, Row, RowDecoder, Unusual
from headrace.views.store import Applied, BadRecord

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Refused", "Write", "take_in"]


class Refused(Exception):
    """What a store could not write, and undid; says why."""


Write = Callable[[Changes], None]
"""Writes changes, all or none of them; Refused if any value does not fit."""


@dataclass(frozen=True)
class _Change:
    """One record: its offset, the key of its row, and the row (None: deleted)."""

    offset: int
    key: Row
    row: Row | None


@dataclass
class _Taken:
    """What came of records so far."""

    upserts: int = 0
    deletes: int = 0
    bad: list[BadRecord] = field(default_factory=list)


def take_in(decoder: RowDecoder, records: pa.RecordBatch, write: Write) -> Applied:
    """Write what the records say; bad ones are left out and listed in the order of their offsets."""
    keys, values = records.column("key").to_pylist(), records.column("value").to_pylist()
    try:
        changes = decoder.all_at_once(keys, values)
        write(changes)
        return Applied(len(changes.rows), len(changes.gone))
    except (Unusual, Refused):
        pass
    taken = _Taken()
    offsets = records.column("offset").to_pylist()
    _write_parts(list(_decoded(decoder, zip(offsets, keys, values, strict=True), taken)), write, taken)
    return Applied(taken.upserts, taken.deletes, sorted(taken.bad, key=lambda bad: bad.offset))


def _decoded(
    decoder: RowDecoder, records: Iterator[tuple[int, bytes | None, bytes | None]], taken: _Taken
) -> Iterator[_Change]:
    for offset, key, value in records:
        try:
            which, row = decoder.one(key, value)
            hash(which)
            yield _Change(offset, which, row)
        except BadValue as error:
            taken.bad.append(BadRecord(offset, str(error)))
        except TypeError:
            taken.bad.append(BadRecord(offset, "it does not fit the columns: a key is no plain value"))


def _write_parts(changes: Sequence[_Change], write: Write, taken: _Taken) -> None:
    """Write a part; if it is refused, its halves, the earlier one first."""
    if not changes:
        return
    latest = {change.key: change for change in changes}
    rows = [change.row for change in latest.values() if change.row is not None]
    gone = [change.key for change in latest.values() if change.row is None]
    try:
        write(Changes(rows, gone))
        taken.upserts += len(rows)
        taken.deletes += len(gone)
    except Refused as error:
        if len(changes) == 1:
            taken.bad.append(BadRecord(changes[0].offset, f"it does not fit the columns: {error}"))
            return
        middle = len(changes) // 2
        _write_parts(changes[:middle], write, taken)
        _write_parts(changes[middle:], write, taken)
