"""The settings of a topic: every one that Apache Kafka 4.3 has, with its name, default and range, and our own.

A topic stores only what was set on it (its *overrides*). What it runs with is ``TopicConfig.parse(overrides,
defaults)``, where *defaults* are the node-wide values, by topic-setting name. Some settings exist so that tools which
set or read them work, and change nothing on a node without replicas: those of replication and of remote storage.
``internal.segment.bytes`` overrides ``segment.bytes`` without its lower bound: tests use it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace.definition import ConfigType, Definition, Value, at_least, between, list_of, one_of
from headrace.errors import InvalidConfig
from headrace.log.ring import Ring

__all__ = ["DEFINITIONS", "TopicConfig"]

_FOREVER: Final = str(2**63 - 1)
_WEEK_MS: Final = str(7 * 24 * 3_600_000)
_HOUR_MS: Final = 3_600_000
_THROTTLED = re.compile(r"[0-9]+:[0-9]+")

_INT, _LONG, _BOOL = ConfigType.INT, ConfigType.LONG, ConfigType.BOOLEAN
_STRING, _LIST, _DOUBLE = ConfigType.STRING, ConfigType.LIST, ConfigType.DOUBLE


def _throttled(value: Value) -> str | None:
    assert isinstance(value, tuple)
    if not value or value == ("*",) or all(_THROTTLED.fullmatch(part) for part in value):
        return None
    return "it must be '*' or a list of partition:broker"


_TABLE: Final = (
    Definition(
        "cleanup.policy",
        _LIST,
        "delete",
        "What happens to old data: 'delete' drops whole segments by age and size, 'compact' keeps the last record of "
        "every key, both may be given, and an empty list keeps everything.",
        list_of("compact", "delete"),
        (("log.cleanup.policy", 1),),
    ),
    Definition(
        "compression.gzip.level",
        _INT,
        "-1",
        "How hard gzip tries when the node itself compresses; -1 is the codec's own default.",
        between(1, 9, -1),
        (("compression.gzip.level", 1),),
    ),
    Definition(
        "compression.lz4.level",
        _INT,
        "9",
        "How hard lz4 tries when the node itself compresses.",
        between(1, 17),
        (("compression.lz4.level", 1),),
    ),
    Definition(
        "compression.type",
        _STRING,
        "producer",
        "The codec that batches are kept in: 'producer' keeps what the producer sent; any other makes the node "
        "recompress batches that differ.",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        (("compression.type", 1),),
    ),
    Definition(
        "compression.zstd.level",
        _INT,
        "3",
        "How hard zstd tries when the node itself compresses.",
        between(-131072, 22),
        (("compression.zstd.level", 1),),
    ),
    Definition(
        "delete.retention.ms",
        _LONG,
        "86400000",
        "How long compaction keeps a tombstone, so that a reader who began before it still sees the deletion.",
        at_least(0),
        (("log.cleaner.delete.retention.ms", 1),),
    ),
    Definition(
        "file.delete.delay.ms",
        _LONG,
        "60000",
        "How long the file of a dropped segment stays on disk under another name.",
        at_least(0),
        (("log.segment.delete.delay.ms", 1),),
    ),
    Definition(
        "flush.messages",
        _LONG,
        _FOREVER,
        "Sync the log to disk after this many records, whatever their acks; acks=all is synced in any case.",
        at_least(1),
        (("log.flush.interval.messages", 1),),
    ),
    Definition(
        "flush.ms",
        _LONG,
        _FOREVER,
        "Sync the log to disk at least this often while records come, whatever their acks.",
        at_least(0),
        (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    ),
    Definition(
        "follower.replication.throttled.replicas",
        _LIST,
        "",
        "For clusters with replicas; kept and shown, of no effect on a single node.",
        _throttled,
    ),
    Definition(
        "headrace.archive.path",
        _STRING,
        "",
        "A folder that sealed segments are copied to before they are dropped; empty means no archive.",
    ),
    Definition(
        "headrace.overflow",
        _STRING,
        "buffer",
        "What happens when consumers cannot keep up: 'buffer' keeps records on disk until retention drops them; "
        "'block' slows producers down while a group of headrace.overflow.groups lags more than "
        "headrace.overflow.max.lag; 'drop' keeps no more than headrace.overflow.max.records or "
        "headrace.overflow.max.bytes, the oldest records go.",
        one_of("buffer", "block", "drop"),
    ),
    Definition(
        "headrace.overflow.groups",
        _LIST,
        "",
        "The groups that producers wait for where headrace.overflow is 'block'. One that has read nothing yet, or does "
        "not exist, counts as being at the start of the log.",
    ),
    Definition(
        "headrace.overflow.max.bytes",
        _LONG,
        "-1",
        "How many bytes a partition keeps where headrace.overflow is 'drop'; -1 for no bound. The newest batch is kept "
        "in any case.",
        at_least(-1),
    ),
    Definition(
        "headrace.overflow.max.lag",
        _LONG,
        "100000",
        "How many records, over all partitions, a group may be behind before producers are slowed down where "
        "headrace.overflow is 'block'.",
        at_least(0),
    ),
    Definition(
        "headrace.overflow.max.records",
        _LONG,
        "-1",
        "How many records a partition keeps where headrace.overflow is 'drop'; -1 for no bound.",
        at_least(-1),
    ),
    Definition(
        "index.interval.bytes",
        _INT,
        "4096",
        "How many bytes of log lie between two entries of the offset index.",
        at_least(0),
        (("log.index.interval.bytes", 1),),
    ),
    Definition(
        "internal.segment.bytes",
        _INT,
        None,
        "The size of a segment without the lower bound of segment.bytes; for tests only.",
        at_least(1),
        internal=True,
    ),
    Definition(
        "leader.replication.throttled.replicas",
        _LIST,
        "",
        "For clusters with replicas; kept and shown, of no effect on a single node.",
        _throttled,
    ),
    Definition(
        "local.retention.bytes",
        _LONG,
        "-2",
        "For tiered storage; kept and shown, of no effect here. -2 means the same as retention.bytes.",
        at_least(-2),
        (("log.local.retention.bytes", 1),),
    ),
    Definition(
        "local.retention.ms",
        _LONG,
        "-2",
        "For tiered storage; kept and shown, of no effect here. -2 means the same as retention.ms.",
        at_least(-2),
        (("log.local.retention.ms", 1),),
    ),
    Definition(
        "max.compaction.lag.ms",
        _LONG,
        _FOREVER,
        "The longest that a record of a compacted topic stays out of compaction's reach.",
        at_least(1),
        (("log.cleaner.max.compaction.lag.ms", 1),),
    ),
    Definition(
        "max.message.bytes",
        _INT,
        "1048588",
        "The largest record batch that is taken, as it was sent (after compression).",
        at_least(0),
        (("message.max.bytes", 1),),
    ),
    Definition(
        "message.timestamp.after.max.ms",
        _LONG,
        str(_HOUR_MS),
        "How far in the future of the node's clock a producer's timestamp may lie.",
        at_least(0),
        (("log.message.timestamp.after.max.ms", 1),),
    ),
    Definition(
        "message.timestamp.before.max.ms",
        _LONG,
        _FOREVER,
        "How far in the past of the node's clock a producer's timestamp may lie.",
        at_least(0),
        (("log.message.timestamp.before.max.ms", 1),),
    ),
    Definition(
        "message.timestamp.type",
        _STRING,
        "CreateTime",
        "Whose clock stamps a record: the producer's (CreateTime) or the node's when it appends (LogAppendTime).",
        one_of("CreateTime", "LogAppendTime"),
        (("log.message.timestamp.type", 1),),
    ),
    Definition(
        "min.cleanable.dirty.ratio",
        _DOUBLE,
        "0.5",
        "The share of a compacted log that must be uncompacted before it is compacted again.",
        between(0, 1),
        (("log.cleaner.min.cleanable.ratio", 1),),
    ),
    Definition(
        "min.compaction.lag.ms",
        _LONG,
        "0",
        "The shortest that a record of a compacted topic stays as it was written.",
        at_least(0),
        (("log.cleaner.min.compaction.lag.ms", 1),),
    ),
    Definition(
        "min.insync.replicas",
        _INT,
        "1",
        "For clusters with replicas; kept and shown. A single node is always the one replica in sync.",
        at_least(1),
        (("min.insync.replicas", 1),),
    ),
    Definition(
        "preallocate",
        _BOOL,
        "false",
        "Reserve the room for a whole segment when it is made.",
        None,
        (("log.preallocate", 1),),
    ),
    Definition(
        "remote.log.copy.disable",
        _BOOL,
        "false",
        "For tiered storage; kept and shown, of no effect here.",
    ),
    Definition(
        "remote.log.delete.on.disable",
        _BOOL,
        "false",
        "For tiered storage; kept and shown, of no effect here.",
    ),
    Definition(
        "remote.storage.enable",
        _BOOL,
        "false",
        "Tiered storage, which a node does not have: it cannot be turned on. See headrace.archive.path.",
    ),
    Definition(
        "retention.bytes",
        _LONG,
        "-1",
        "How large a partition may grow before its oldest segments are dropped; -1 for no bound.",
        None,
        (("log.retention.bytes", 1),),
    ),
    Definition(
        "retention.ms",
        _LONG,
        _WEEK_MS,
        "How long records are kept before their segment is dropped; -1 for ever.",
        at_least(-1),
        (("log.retention.ms", 1), ("log.retention.minutes", 60_000), ("log.retention.hours", _HOUR_MS)),
    ),
    Definition(
        "segment.bytes",
        _INT,
        str(1 << 30),
        "How large a segment grows before the next one is begun.",
        at_least(1 << 20),
        (("log.segment.bytes", 1),),
    ),
    Definition(
        "segment.index.bytes",
        _INT,
        str(10 << 20),
        "How large the offset index of a segment may grow; the next segment is begun when it is full.",
        at_least(4),
        (("log.index.size.max.bytes", 1),),
    ),
    Definition(
        "segment.jitter.ms",
        _LONG,
        "0",
        "The most that is randomly taken off segment.ms, so that segments are not all begun at once.",
        at_least(0),
        (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    ),
    Definition(
        "segment.ms",
        _LONG,
        _WEEK_MS,
        "How old a segment grows before the next one is begun, even if it is not full.",
        at_least(1),
        (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    ),
    Definition(
        "unclean.leader.election.enable",
        _BOOL,
        "false",
        "For clusters with replicas; kept and shown, of no effect on a single node.",
        None,
        (("unclean.leader.election.enable", 1),),
    ),
)

DEFINITIONS: Final[dict[str, Definition]] = {definition.name: definition for definition in _TABLE}
"""Every topic setting, by name, in alphabetical order."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """What a topic runs with, typed. ``segment_bytes`` already is ``internal.segment.bytes`` where that is set."""

    cleanup_policy: frozenset[str]
    compact: bool
    delete: bool
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    index_interval_bytes: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    preallocate: bool
    archive_path: str
    blocks: bool
    overflow_groups: tuple[str, ...]
    overflow_max_lag: int
    ring: Ring | None

    @classmethod
    def parse(cls, overrides: Mapping[str, str], defaults: Mapping[str, str] | None = None) -> TopicConfig:
        """Typed values from what the topic sets, else what the node sets, else Kafka's defaults; or InvalidConfig."""
        texts = {**(defaults or {}), **overrides}
        for name in texts:
            if name not in DEFINITIONS:
                raise InvalidConfig(f"there is no topic setting '{name}'")
        values: dict[str, Any] = dict(_DEFAULTS)
        for name, text in texts.items():
            values[name] = DEFINITIONS[name].parse(text)
        _check_together(values)
        policy = frozenset(values["cleanup.policy"])
        internal_segment_bytes = values["internal.segment.bytes"]
        return cls(
            cleanup_policy=policy,
            compact="compact" in policy,
            delete="delete" in policy,
            compression_type=values["compression.type"],
            compression_gzip_level=values["compression.gzip.level"],
            compression_lz4_level=values["compression.lz4.level"],
            compression_zstd_level=values["compression.zstd.level"],
            delete_retention_ms=values["delete.retention.ms"],
            file_delete_delay_ms=values["file.delete.delay.ms"],
            flush_messages=values["flush.messages"],
            flush_ms=values["flush.ms"],
            index_interval_bytes=values["index.interval.bytes"],
            max_compaction_lag_ms=values["max.compaction.lag.ms"],
            max_message_bytes=values["max.message.bytes"],
            message_timestamp_after_max_ms=values["message.timestamp.after.max.ms"],
            message_timestamp_before_max_ms=values["message.timestamp.before.max.ms"],
            message_timestamp_type=values["message.timestamp.type"],
            min_cleanable_dirty_ratio=values["min.cleanable.dirty.ratio"],
            min_compaction_lag_ms=values["min.compaction.lag.ms"],
            retention_bytes=values["retention.bytes"],
            retention_ms=values["retention.ms"],
            segment_bytes=values["segment.bytes"] if internal_segment_bytes is None else internal_segment_bytes,
            segment_index_bytes=values["segment.index.bytes"],
            segment_jitter_ms=values["segment.jitter.ms"],
            segment_ms=values["segment.ms"],
            preallocate=values["preallocate"],
            archive_path=values["headrace.archive.path"],
            blocks=values["headrace.overflow"] == "block",
            overflow_groups=values["headrace.overflow.groups"],
            overflow_max_lag=values["headrace.overflow.max.lag"],
            ring=_ring(values),
        )


_DEFAULTS: Final = {definition.name: definition.parse(definition.default) for definition in _TABLE}


def _check_together(values: Mapping[str, Any]) -> None:
    if values["min.compaction.lag.ms"] > values["max.compaction.lag.ms"]:
        raise InvalidConfig("min.compaction.lag.ms is larger than max.compaction.lag.ms")
    if values["remote.storage.enable"]:
        raise InvalidConfig("a node has no tiered storage", hint="headrace.archive.path keeps old segments")
    if values["headrace.overflow"] == "block" and not any(values["headrace.overflow.groups"]):
        raise InvalidConfig(
            "headrace.overflow=block needs a group to wait for", hint="name it in headrace.overflow.groups"
        )
    if values["headrace.overflow"] == "drop":
        if _ring(values) == Ring():
            raise InvalidConfig(
                "headrace.overflow=drop needs a bound",
                hint="set headrace.overflow.max.records or headrace.overflow.max.bytes",
            )
        if "compact" in values["cleanup.policy"]:
            raise InvalidConfig("headrace.overflow=drop does not go with cleanup.policy=compact")


def _ring(values: Mapping[str, Any]) -> Ring | None:
    if values["headrace.overflow"] != "drop":
        return None
    return Ring(values["headrace.overflow.max.records"], values["headrace.overflow.max.bytes"])
