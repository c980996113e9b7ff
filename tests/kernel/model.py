"""Compaction in plain Python: what the kernel must do, record by record."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from headrace import _kernel as kernel
from headrace.log.batch import CODEC_MASK, CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL, BatchHeader

from . import batches


@dataclass(frozen=True)
class Batch:
    """A batch as compaction sees it."""

    base_offset: int
    last_offset: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer: tuple[int, int, int]
    records: tuple[kernel.Record, ...]

    def has(self, flag: int) -> bool:
        """Whether this attribute is set."""
        return bool(self.attributes & flag)


def read(data: bytes | bytearray) -> list[Batch]:
    """The batches of a buffer, with records as aiokafka reads them."""
    headers, end, error = kernel.scan(data)
    assert (end, error) == (len(data), None)
    found = []
    for header in map(BatchHeader._make, headers):
        part = data[header.position : header.position + header.size]
        records = batches.read_by("aiokafka", part) if header.record_count else []
        assert len(records) == header.record_count
        found.append(
            Batch(
                header.base_offset,
                header.last_offset,
                header.attributes,
                header.base_timestamp,
                header.max_timestamp,
                (header.producer_id, header.producer_epoch, header.base_sequence),
                tuple(records),
            )
        )
    return found


def is_aborted(batch: Batch, aborted: Collection[tuple[int, int, int]]) -> bool:
    """Whether a batch is data of one of these transactions."""
    return (
        batch.has(TRANSACTIONAL)
        and not batch.has(CONTROL)
        and any(
            producer == batch.producer[0] and first <= batch.base_offset and batch.last_offset <= last
            for producer, first, last in aborted
        )
    )


def latest_offsets(log: Sequence[Batch], aborted: Collection[tuple[int, int, int]] = ()) -> dict[bytes, int]:
    """The latest offset of every key."""
    return {
        record[2]: record[0]
        for batch in log
        if not batch.has(CONTROL) and not is_aborted(batch, aborted)
        for record in batch.records
        if record[2] is not None
    }


def compact(
    log: Sequence[Batch],
    latest: dict[bytes, int],
    *,
    now_ms: int,
    delete_retention_ms: int,
    keep_empty: Collection[int] = (),
    aborted: Collection[tuple[int, int, int]] = (),
) -> list[Batch]:
    """The log without what is replaced, aborted or past its horizon."""
    result = []
    for batch in log:
        expired = batch.has(DELETE_HORIZON) and now_ms >= batch.base_timestamp

        def keeps(record: kernel.Record, batch: Batch = batch, expired: bool = expired) -> bool:
            offset, _, key, value, _ = record
            if batch.has(CONTROL):
                return not expired
            if is_aborted(batch, aborted) or key is None:
                return False
            return offset >= latest.get(key, -1) and not (value is None and expired)

        kept = tuple(filter(keeps, batch.records))
        if not kept:
            if batch.last_offset in keep_empty:
                result.append(emptied(batch))
            continue
        needs_horizon = (
            any(record[3] is None for record in kept) and not batch.has(CONTROL) and not batch.has(DELETE_HORIZON)
        )
        if kept == batch.records and not needs_horizon:
            result.append(batch)
            continue
        changed = replace(batch, records=kept)
        if not batch.has(LOG_APPEND_TIME):
            changed = replace(changed, max_timestamp=max(record[1] for record in kept))
        if needs_horizon:
            changed = replace(
                changed, attributes=batch.attributes | DELETE_HORIZON, base_timestamp=now_ms + delete_retention_ms
            )
        result.append(changed)
    return result


def drop_keys(log: Sequence[Batch], keys: Collection[bytes]) -> list[Batch]:
    """The log without the records of these keys."""
    result = []
    for batch in log:
        kept = tuple(r for r in batch.records if batch.has(CONTROL) or r[2] not in keys)
        if kept == batch.records:
            result.append(batch)
        elif not kept:
            result.append(emptied(batch))
        elif batch.has(LOG_APPEND_TIME):
            result.append(replace(batch, records=kept))
        else:
            result.append(replace(batch, records=kept, max_timestamp=max(r[1] for r in kept)))
    return result


def emptied(batch: Batch) -> Batch:
    """The header of a batch that has no record left."""
    return replace(
        batch,
        attributes=batch.attributes & ~(CODEC_MASK | DELETE_HORIZON),
        base_timestamp=batch.max_timestamp,
        records=(),
    )
