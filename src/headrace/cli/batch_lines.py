"""A batch and its records as lines of text, with kafka-dump-log's words, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headrace import _kernel
from headrace.log.batch import CODEC_MASK, DELETE_HORIZON, LOG_APPEND_TIME, BatchHeader
from headrace.log.log_file import DamagedBytes, FoundBatch
from headrace.operations.record_json import bytes_fields

__all__ = ["batch_json", "batch_line", "damage_json", "damage_line", "record_lines"]

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_CRC = slice(17, 21)
_MARKERS = {0: "ABORT", 1: "COMMIT"}


def batch_line(found: FoundBatch) -> str:
    """One line per batch."""
    header = found.header
    horizon = f"[{header.base_timestamp}]" if header.attributes & DELETE_HORIZON else ".empty"
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {_last_sequence(header)} producerId: {header.producer_id} "
        f"producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.leader_epoch} "
        f"isTransactional: {_word(header.is_transactional)} isControl: {_word(header.is_control)} "
        f"deleteHorizonMs: OptionalLong{horizon} position: {header.position} "
        f"{_time_type(header)}: {header.max_timestamp} size: {header.size} magic: 2 "
        f"compresscodec: {_codec(header)} crc: {_crc(found)} isvalid: true"
    )


def batch_json(path: Path, found: FoundBatch) -> dict[str, Any]:
    """A batch as a JSON object."""
    header = found.header
    return {
        "type": "batch",
        "file": str(path),
        "position": header.position,
        "size": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "base_timestamp_ms": header.base_timestamp,
        "max_timestamp_ms": header.max_timestamp,
        "timestamp_type": _time_type(header),
        "codec": _codec(header),
        "crc": _crc(found),
        "leader_epoch": header.leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "delete_horizon": bool(header.attributes & DELETE_HORIZON),
    }


def damage_line(found: DamagedBytes) -> str:
    """One line for bytes that are no batch."""
    return f"position: {found.position} size: {found.size} isvalid: false reason: {found.reason}"


def damage_json(path: Path, found: DamagedBytes) -> dict[str, Any]:
    """Bytes that are no batch, as a JSON object."""
    return {
        "type": "damage",
        "file": str(path),
        "position": found.position,
        "size": found.size,
        "reason": found.reason,
    }


def record_lines(found: FoundBatch, *, as_json: bool) -> Iterator[str | dict[str, Any]]:
    """One line, or JSON object, per record of a batch."""
    header = found.header
    try:
        records = _kernel.records(found.data)
    except _kernel.BadBatch as bad:
        yield {"type": "bad_records", "reason": str(bad)} if as_json else f"| isvalid: false reason: {bad}"
        return
    for record in records:
        yield _record_json(record) if as_json else _record_line(record, header)


def _record_json(record: _kernel.Record) -> dict[str, Any]:
    offset, timestamp, key, value, headers = record
    return {
        "type": "record",
        "offset": offset,
        "timestamp_ms": timestamp,
        **bytes_fields("key", key),
        **bytes_fields("value", value),
        "headers": [{"name": name, **bytes_fields("value", data)} for name, data in headers],
    }


def _record_line(record: _kernel.Record, header: BatchHeader) -> str:
    offset, timestamp, key, value, headers = record
    sequence = -1 if header.base_sequence < 0 else header.base_sequence + offset - header.base_offset
    line = (
        f"| offset: {offset} {_time_type(header)}: {timestamp} keySize: {-1 if key is None else len(key)} "
        f"valueSize: {-1 if value is None else len(value)} sequence: {sequence} "
        f"headerKeys: [{','.join(name for name, _ in headers)}]"
    )
    if header.is_control and key is not None and len(key) >= 4:
        return f"{line} endTxnMarker: {_MARKERS.get(int.from_bytes(key[2:4], 'big'), 'unknown')}"
    if key is not None:
        line += f" key: {key.decode(errors='backslashreplace')}"
    return line if value is None else f"{line} payload: {value.decode(errors='backslashreplace')}"


def _last_sequence(header: BatchHeader) -> int:
    return -1 if header.base_sequence < 0 else (header.base_sequence + header.last_offset_delta) & 0x7FFFFFFF


def _codec(header: BatchHeader) -> str:
    number = header.attributes & CODEC_MASK
    return _CODECS[number] if number < len(_CODECS) else f"unknown ({number})"


def _time_type(header: BatchHeader) -> str:
    return "LogAppendTime" if header.attributes & LOG_APPEND_TIME else "CreateTime"


def _crc(found: FoundBatch) -> int:
    return int.from_bytes(found.data[_CRC], "big")


def _word(flag: bool) -> str:
    return "true" if flag else "false"
