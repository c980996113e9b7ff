"""The settings of a node's broker, under the names that Kafka gives them.

``DEFINITIONS`` is the table of all that can be set, and that DescribeConfigs of the broker shows. ``BrokerSettings`` is
what a broker is started with: where its data is, where it listens, and whatever of the table was set; its typed
properties are what the broker reads. Defaults of topics are set here too, under Kafka's broker-level names
(``log.retention.hours``); ``topic_defaults`` translates them to topic settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from headrace.definition import ConfigType, Definition, Value, at_least, between, list_of, one_of
from headrace.errors import InvalidConfig

__all__ = ["DEFINITIONS", "NODE_ID", "BrokerSettings", "host_port"]

NODE_ID: Final = 1
"""There is one node, and this is its id in the protocol."""

_INT, _LONG, _BOOL = ConfigType.INT, ConfigType.LONG, ConfigType.BOOLEAN
_STRING, _LIST, _DOUBLE, _SHORT = ConfigType.STRING, ConfigType.LIST, ConfigType.DOUBLE, ConfigType.SHORT
_FOREVER: Final = str(2**63 - 1)
_MANY: Final = str(2**31 - 1)


def _address(value: Value) -> str | None:
    try:
        host_port(str(value) or "127.0.0.1")
    except InvalidConfig as error:
        return error.message
    return None


def _own(name: str, kind: ConfigType, default: str | None, text: str, check: Any = None) -> Definition:
    return Definition(name, kind, default, text, check, read_only=True)


def _topic(name: str, kind: ConfigType, default: str | None, text: str, check: Any = None) -> Definition:
    """A default of topics: it can be changed while the broker runs."""
    return Definition(name, kind, default, text, check)


def _of_groups(
    kind: str, name: str, default: int, low: int | None, high: int, text: str, check: Any
) -> tuple[Definition, ...]:
    """A default of groups of a kind, and the bounds of what a group may set instead (see broker/group_configs.py)."""
    bounds = ([] if low is None else [("min", low, "least")]) + [("max", high, "most")]
    return (
        _own(f"group.{kind}.{name}", _INT, str(default), text, check),
        *(
            _own(f"group.{kind}.{side}.{name}", _INT, str(value), f"The {word} that a group may set {name} to.", check)
            for side, value, word in bounds
        ),
    )


def _of_all_group_kinds() -> Iterable[Definition]:
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = "A member that is silent for so long is out.", "How often members are told to heartbeat."
        yield from _of_groups(kind, "session.timeout.ms", 45000, 45000, 60000, session, at_least(1))
        yield from _of_groups(kind, "heartbeat.interval.ms", 5000, 5000, 15000, heartbeat, at_least(1))
        pause = "The pause between two assignments of a group."
        yield from _of_groups(kind, "assignment.interval.ms", 1000, 0, 15000, pause, at_least(0))


_TABLE: Final = (
    *_of_all_group_kinds(),
    *_of_groups("share", "delivery.count.limit", 5, 2, 10, "Attempts to deliver a record.", at_least(2)),
    *_of_groups(
        "share", "record.lock.duration.ms", 30000, 15000, 60000, "How long a member has a record.", at_least(1)
    ),
    *_of_groups(
        "share", "partition.max.record.locks", 2000, 100, 4000, "Records of a partition in flight.", at_least(100)
    ),
    _own(
        "group.consumer.migration.policy",
        _STRING,
        "bidirectional",
        "Which groups may change between the classic and the consumer protocol while they have members.",
        one_of("disabled", "upgrade", "downgrade", "bidirectional"),
    ),
    _own("group.consumer.max.size", _INT, _MANY, "The most members of a consumer group.", at_least(1)),
    _own("group.share.max.share.sessions", _INT, "2000", "The most share sessions that are kept.", at_least(1)),
    _own("group.share.max.size", _INT, "200", "The most members of a share group.", at_least(1)),
    _own("group.streams.initial.rebalance.delay.ms", _INT, "3000", "For streams groups; of no effect.", at_least(0)),
    _own("group.streams.max.size", _INT, _MANY, "For streams groups; of no effect.", at_least(1)),
    _own("group.streams.max.standby.replicas", _INT, "2", "For streams groups; of no effect.", at_least(0)),
    _own("group.streams.num.standby.replicas", _INT, "0", "For streams groups; of no effect.", at_least(0)),
    _own(
        "share.coordinator.state.topic.segment.bytes",
        _INT,
        "104857600",
        "The segment size of the topic of share groups.",
        at_least(1),
    ),
    _own(
        "advertised.listeners", _STRING, None, "The address that clients are told to use; by default where it listens."
    ),
    _own("auto.create.topics.enable", _BOOL, "true", "Create a topic when a client asks for one that is not there."),
    _own("broker.id", _INT, str(NODE_ID), "The node's id, as older tools call it."),
    _own("broker.rack", _STRING, None, "The rack of the node; a single node has none."),
    _topic("compression.gzip.level", _INT, "-1", "The default of the topics' setting of this name.", between(1, 9, -1)),
    _topic("compression.lz4.level", _INT, "9", "The default of the topics' setting of this name.", between(1, 17)),
    _topic(
        "compression.type",
        _STRING,
        "producer",
        "The default of the topics' setting of this name.",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    _topic(
        "compression.zstd.level", _INT, "3", "The default of the topics' setting of this name.", between(-131072, 22)
    ),
    _own(
        "connections.max.idle.ms", _LONG, "600000", "A connection with no traffic for so long is closed; -1 for never."
    ),
    _own("default.replication.factor", _INT, "1", "Copies of a partition: a single node has one."),
    _own("delete.topic.enable", _BOOL, "true", "Whether topics can be deleted."),
    _own("fetch.max.bytes", _INT, "57671680", "The most record data in one fetch response.", at_least(1024)),
    _own(
        "group.initial.rebalance.delay.ms",
        _INT,
        "100",
        "How long a new group waits for more members before its first generation.",
        at_least(0),
    ),
    _own("group.max.session.timeout.ms", _INT, "1800000", "The longest session timeout that a member may ask for."),
    _own("group.max.size", _INT, _MANY, "The most members of a group.", at_least(1)),
    _own("group.min.session.timeout.ms", _INT, "6000", "The shortest session timeout that a member may ask for."),
    _own(
        "headrace.max.inflight.bytes",
        _LONG,
        str(512 << 20),
        "The most bytes of requests being received and of responses not yet taken, over all connections.",
        at_least(1 << 20),
    ),
    _own(
        "headrace.max.pending.responses",
        _INT,
        "1024",
        "The most requests of one connection that wait for their answer; more are not read until some are answered.",
        at_least(1),
    ),
    _own(
        "headrace.metrics.listener",
        _STRING,
        "",
        "Where GET /metrics is answered, for Prometheus, as HOST:PORT; empty for nowhere. No token is asked for there, "
        "and labels are names of topics and groups.",
        _address,
    ),
    _own(
        "headrace.frame.timeout.ms",
        _LONG,
        "30000",
        "A connection that has sent a part of a request and then nothing for so long is closed.",
        at_least(1),
    ),
    _own("listeners", _STRING, "PLAINTEXT://127.0.0.1:9092", "Where the broker listens."),
    _own("log.cleaner.backoff.ms", _LONG, "15000", "How often compacted topics are looked at.", at_least(0)),
    _topic("log.cleaner.delete.retention.ms", _LONG, "86400000", "The default of delete.retention.ms.", at_least(0)),
    _own("log.cleaner.enable", _BOOL, "true", "Whether topics with cleanup.policy compact are compacted."),
    _topic("log.cleaner.max.compaction.lag.ms", _LONG, _FOREVER, "The default of max.compaction.lag.ms.", at_least(1)),
    _topic(
        "log.cleaner.min.cleanable.ratio", _DOUBLE, "0.5", "The default of min.cleanable.dirty.ratio.", between(0, 1)
    ),
    _topic("log.cleaner.min.compaction.lag.ms", _LONG, "0", "The default of min.compaction.lag.ms.", at_least(0)),
    _topic("log.cleanup.policy", _LIST, "delete", "The default of cleanup.policy.", list_of("compact", "delete")),
    _own("log.dir", _STRING, "", "The data folder."),
    _own("log.dirs", _STRING, None, "The data folder."),
    _topic("log.flush.interval.messages", _LONG, _FOREVER, "The default of flush.messages.", at_least(1)),
    _topic("log.flush.interval.ms", _LONG, None, "The default of flush.ms."),
    _own(
        "log.flush.offset.checkpoint.interval.ms",
        _INT,
        "60000",
        "How often it is written down up to where logs are on disk, so that recovery starts there.",
        at_least(0),
    ),
    _own(
        "log.flush.scheduler.interval.ms",
        _LONG,
        _FOREVER,
        "The default of flush.ms where log.flush.interval.ms is unset.",
    ),
    _topic("log.index.interval.bytes", _INT, "4096", "The default of index.interval.bytes.", at_least(0)),
    _topic("log.index.size.max.bytes", _INT, str(10 << 20), "The default of segment.index.bytes.", at_least(4)),
    _topic("log.local.retention.bytes", _LONG, "-2", "The default of local.retention.bytes.", at_least(-2)),
    _topic("log.local.retention.ms", _LONG, "-2", "The default of local.retention.ms.", at_least(-2)),
    _topic(
        "log.message.timestamp.after.max.ms",
        _LONG,
        "3600000",
        "The default of message.timestamp.after.max.ms.",
        at_least(0),
    ),
    _topic(
        "log.message.timestamp.before.max.ms",
        _LONG,
        _FOREVER,
        "The default of message.timestamp.before.max.ms.",
        at_least(0),
    ),
    _topic(
        "log.message.timestamp.type",
        _STRING,
        "CreateTime",
        "The default of message.timestamp.type.",
        one_of("CreateTime", "LogAppendTime"),
    ),
    _topic("log.preallocate", _BOOL, "false", "The default of preallocate."),
    _topic("log.retention.bytes", _LONG, "-1", "The default of retention.bytes."),
    _own("log.retention.check.interval.ms", _LONG, "300000", "How often old segments are looked for.", at_least(1)),
    _own("log.retention.hours", _INT, "168", "The default of retention.ms, in hours."),
    _own("log.retention.minutes", _INT, None, "The default of retention.ms, in minutes; wins over the hours."),
    _topic("log.retention.ms", _LONG, None, "The default of retention.ms; wins over the minutes and the hours."),
    _own("log.roll.hours", _INT, "168", "The default of segment.ms, in hours.", at_least(1)),
    _own("log.roll.jitter.hours", _INT, "0", "The default of segment.jitter.ms, in hours.", at_least(0)),
    _topic("log.roll.jitter.ms", _LONG, None, "The default of segment.jitter.ms; wins over the hours."),
    _topic("log.roll.ms", _LONG, None, "The default of segment.ms; wins over the hours."),
    _topic("log.segment.bytes", _INT, str(1 << 30), "The default of segment.bytes.", at_least(1 << 20)),
    _topic("log.segment.delete.delay.ms", _LONG, "60000", "The default of file.delete.delay.ms.", at_least(0)),
    _own("max.connections", _INT, "10000", "The most connections at a time; more are closed at once.", at_least(0)),
    _own("max.connections.per.ip", _INT, _MANY, "The most connections from one address.", at_least(0)),
    _own(
        "max.incremental.fetch.session.cache.slots", _INT, "1000", "The most fetch sessions that are kept.", at_least(0)
    ),
    _own(
        "max.request.partition.size.limit",
        _INT,
        "2000",
        "The most partitions in one answer of DescribeTopicPartitions.",
        at_least(1),
    ),
    _topic("message.max.bytes", _INT, "1048588", "The default of max.message.bytes.", at_least(0)),
    _topic("min.insync.replicas", _INT, "1", "The default of the topics' setting of this name.", at_least(1)),
    _own("node.id", _INT, str(NODE_ID), "The node's id.", at_least(0)),
    _own("num.partitions", _INT, "1", "Partitions of a topic that is created without saying how many.", at_least(1)),
    _own("offset.metadata.max.bytes", _INT, "4096", "The longest text that may go with a committed offset."),
    _own(
        "offsets.retention.check.interval.ms", _LONG, "600000", "How often expired offsets are looked for.", at_least(1)
    ),
    _own(
        "offsets.retention.minutes", _INT, "10080", "How long a group without members keeps its offsets.", at_least(1)
    ),
    _own(
        "offsets.topic.num.partitions",
        _INT,
        "1",
        "Partitions of the topic of groups: a single node has one.",
        at_least(1),
    ),
    _own(
        "offsets.topic.replication.factor",
        _SHORT,
        "1",
        "Copies of the topic of groups: a single node has one.",
        at_least(1),
    ),
    _own("offsets.topic.segment.bytes", _INT, "104857600", "The segment size of the topic of groups.", at_least(1)),
    _own("process.roles", _LIST, "broker,controller", "What the node is: everything."),
    _own(
        "producer.id.expiration.ms",
        _INT,
        "86400000",
        "How long an idle producer's sequence is remembered.",
        at_least(1),
    ),
    _own("socket.listen.backlog.size", _INT, "1024", "Connections that may wait to be accepted.", at_least(1)),
    _own("socket.receive.buffer.bytes", _INT, "-1", "The receive buffer of a socket; -1 leaves it to the system."),
    _own("socket.request.max.bytes", _INT, "104857600", "The largest request.", at_least(1)),
    _own("socket.send.buffer.bytes", _INT, "-1", "The send buffer of a socket; -1 leaves it to the system."),
    _own(
        "transaction.max.timeout.ms",
        _INT,
        "900000",
        "The longest transaction timeout that may be asked for.",
        at_least(1),
    ),
    _own(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        _INT,
        "3600000",
        "How often transactional ids that nobody uses any more are looked for.",
        at_least(1),
    ),
    _own(
        "transaction.state.log.segment.bytes",
        _INT,
        "104857600",
        "The segment size of the topic of transactions.",
        at_least(1),
    ),
    _own(
        "transactional.id.expiration.ms",
        _INT,
        "604800000",
        "How long an unused transactional id is remembered.",
        at_least(1),
    ),
    _topic("unclean.leader.election.enable", _BOOL, "false", "The default of the topics' setting of this name."),
)

DEFINITIONS: Final[dict[str, Definition]] = {item.name: item for item in sorted(_TABLE, key=lambda item: item.name)}
"""Every setting of the broker, by name, in alphabetical order."""


@dataclass(frozen=True)
class BrokerSettings:
    """What a broker is started with. Port 0 takes any free port. ``properties`` are settings of the table, as text."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 9092
    advertised_host: str | None = None
    advertised_port: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, text in self.properties.items():
            if name not in DEFINITIONS:
                raise InvalidConfig(f"there is no broker setting '{name}'")
            DEFINITIONS[name].parse(text)

    def with_properties(self, properties: Mapping[str, str]) -> BrokerSettings:
        """The same settings with these on top."""
        return replace(self, properties={**self.properties, **properties})

    def value(self, name: str) -> Any:
        """The typed value of a setting: what was set, else its default."""
        return self._values[name]

    @cached_property
    def _values(self) -> dict[str, Any]:
        given = self.properties
        return {name: item.parse(given.get(name, item.default)) for name, item in DEFINITIONS.items()}

    def topic_defaults(self, definitions: Iterable[Definition]) -> dict[str, str]:
        """What was set of the topics' defaults, by topic-setting name. ``definitions`` are the topic settings."""
        defaults = {}
        for item in definitions:
            for name, factor in item.synonyms:
                text = self.properties.get(name)
                if text is not None:
                    defaults[item.name] = text if factor == 1 else _scaled(int(text), factor)
                    break
        return defaults


def _scaled(value: int, factor: int) -> str:
    return str(value * factor) if value >= 0 else "-1"


def host_port(text: str, default_port: int = 9092) -> tuple[str, int]:
    """``HOST:PORT``, ``HOST``, ``:PORT`` or ``[IPV6]:PORT`` as a pair; InvalidConfig if it is none of them."""
    host, separator, port = text.rpartition(":")
    if not separator or (host.count(":") and not host.startswith("[")):
        host, port = text, ""
    host = host.strip("[]") or "127.0.0.1"
    if port and (not port.isascii() or not port.isdigit() or int(port) > 65535):
        raise InvalidConfig(f"'{text}' is not an address", hint="write HOST:PORT")
    return host, int(port) if port else default_port
