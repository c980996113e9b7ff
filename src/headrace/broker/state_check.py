"""Checking the topics that hold coordinators' state, from outside: records that cannot be decoded.

A batch may be whole and its checksum right, and still a record in it makes no sense: then the group or the
transactional id that it is about is not served. Of each key only the last record counts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headrace import _kernel
from headrace.broker.groups.journal import OFFSETS_TOPIC
from headrace.broker.groups.records import decode as decode_group
from headrace.broker.transactions.journal import STATE_TOPIC
from headrace.broker.transactions.records import decode as decode_transaction
from headrace.errors import CorruptMessage
from headrace.log.findings import PartitionReport
from headrace.log.log_file import FoundBatch, read_log
from headrace.log.partition_check import log_names

__all__ = ["check_state"]

_DECODERS: dict[str, Callable[[bytes | None, bytes | None], object]] = {
    OFFSETS_TOPIC: decode_group,
    STATE_TOPIC: decode_transaction,
}
_CONSEQUENCES = {OFFSETS_TOPIC: "its group is not served", STATE_TOPIC: "its transactional id is not served"}


def check_state(report: PartitionReport) -> None:
    """Look into the records of a partition, if it holds a coordinator's state."""
    topic = report.folder.parent.name
    decode = _DECODERS.get(topic)
    if decode is None:
        return
    damaged: dict[bytes | None, tuple[Path, int, int, str]] = {}
    for name in log_names(report.folder):
        path = report.folder / name
        for found in read_log(path):
            if not isinstance(found, FoundBatch) or found.header.is_control:
                continue
            for offset, _, key, value, _ in _kernel.records(found.data):
                damaged.pop(key, None)
                try:
                    decode(key, value)
                except CorruptMessage as error:
                    damaged[key] = (path, found.header.position, offset, str(error))
    for path, position, offset, reason in damaged.values():
        report.findings.damage(path, f"{reason}: {_CONSEQUENCES[topic]}", position, offset)
