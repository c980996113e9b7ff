"""What is declared as configurations of connectors: pure, one connector per database of an app.

A change goes: Debezium gives it the topic ``PREFIX.schema.table``; the topic becomes the name in the app; changes of
our own tables (heartbeat and signals) are left out; the worker's converter writes it, and ``source`` into a header. A
password is a reference to a variable of the worker's environment.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.capture.declarations import Captured, DatabaseSource, MariaDB, Postgres, Snapshot

__all__ = ["Connector", "captures", "connectors_of", "topic_config"]

HEARTBEAT_MS = 5000
_PREDICATES = "org.apache.kafka.connect.transforms.predicates"
_NOT_IN_NAMES = re.compile(r"[^a-z0-9_]+")


@dataclass(frozen=True, slots=True)
class Connector:
    """One connector: the captured tables of an app that are in one database."""

    app: str
    server: str
    tables: tuple[Captured, ...]

    @property
    def source(self) -> DatabaseSource:
        """The first table's source: how the database is reached."""
        source = self.tables[0].source
        assert isinstance(source, DatabaseSource)
        return source

    @property
    def kind(self) -> str:
        """``postgres``, ``mariadb`` or ``mysql``."""
        return self.source.kind

    @property
    def _mark(self) -> str:
        return f"{zlib.crc32(self.server.encode()):08x}"

    @property
    def _stem(self) -> str:
        return _NOT_IN_NAMES.sub("_", self.app.lower())[:40]

    @property
    def name(self) -> str:
        """Its name in Connect; also the prefix of its topics before they are renamed."""
        return f"headrace.{self.app}.{self._mark}"

    @property
    def slot(self) -> str:
        """The replication slot, and the publication."""
        return f"headrace_{self._stem}_{self._mark}"

    @property
    def signal_table(self) -> str:
        """The table that signals to the connector go into, without its schema."""
        return f"headrace_{self._stem}_signal"

    @property
    def heartbeat_table(self) -> str:
        """The table that moves the position on while all others are quiet, without its schema."""
        return f"headrace_{self._stem}_heartbeat"

    @property
    def secret(self) -> str:
        """The variable of the worker's environment that holds the password."""
        return f"HEADRACE_SECRET_{self._mark.upper()}"

    @property
    def heartbeat_topic(self) -> str:
        """Where its heartbeats go."""
        return f"headrace.connect.{self.app}.heartbeat.{self.name}"

    @property
    def schema_topic(self) -> str:
        """Where it keeps the schemas of tables over time (MariaDB and MySQL)."""
        return f"headrace.connect.{self.app}.schemas.{self._mark}"

    def config(self, own_schema: str, bootstrap: str, access: Mapping[str, str]) -> dict[str, str]:
        """The configuration, for a signal and heartbeat table in ``own_schema``."""
        if isinstance(self.source, Postgres):
            special = _postgres(self, own_schema)
        else:
            special = _binlog(self, own_schema, bootstrap, access)
        return {**_common(self, own_schema), **special, **_transforms(self, own_schema)}


def connectors_of(app: str, tables: Iterable[Captured]) -> tuple[Connector, ...]:
    """One connector for each database that tables are captured from (those that need a JVM)."""
    by_server: dict[str, list[Captured]] = {}
    for table in tables:
        if isinstance(table.source, DatabaseSource):
            by_server.setdefault(table.source.server, []).append(table)
    return tuple(Connector(app, server, tuple(found)) for server, found in by_server.items())


def captures(config: Mapping[str, str], table: Captured) -> bool:
    """Whether a connector with this configuration captures a table."""
    return re.escape(table.source.table_name) in config.get("table.include.list", "").split(",")


def topic_config(table: Captured) -> dict[str, str]:
    """The settings of a captured table's topic: the latest version of each key, or all of them."""
    if table.outbox is not None:
        return {}
    if table.history:
        return {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    return {"cleanup.policy": "compact"}


def _common(connector: Connector, own_schema: str) -> dict[str, str]:
    source = connector.source
    at_first = [table for table in connector.tables if _snapshot(table) == Snapshot.INITIAL]
    return {
        "name": connector.name,
        "tasks.max": "1",
        "database.hostname": source.host,
        "database.port": str(source.port),
        "database.user": source.user,
        "database.password": f"${{env:{connector.secret}}}" if source.password else "",
        "topic.prefix": connector.name,
        "snapshot.mode": "initial" if at_first else "no_data",
        **({"snapshot.include.collection.list": _names(at_first)} if at_first else {}),
        "snapshot.fetch.size": "4096",
        "signal.data.collection": f"{own_schema}.{connector.signal_table}",
        "signal.enabled.channels": "source",
        # not "sink": its records carry no position, which Connect then takes for the connector's own; a worker that was
        # killed as a snapshot began took it for complete, and its rows were lost
        "notification.enabled.channels": "log",
        "incremental.snapshot.chunk.size": "4096",
        "incremental.snapshot.watermarking.strategy": "INSERT_DELETE",
        "heartbeat.interval.ms": str(HEARTBEAT_MS),
        "topic.heartbeat.prefix": f"headrace.connect.{connector.app}.heartbeat",
        "max.batch.size": "2048",
        "max.queue.size": "4096",  # more only waits, and Java's garbage collector copies what waits
        "max.queue.size.in.bytes": str(48 << 20),
        "poll.interval.ms": "20",
        "decimal.handling.mode": "string",
        "time.precision.mode": "isostring",
        "binary.handling.mode": "base64",
        "tombstones.on.delete": "true",
        "provide.transaction.metadata": "false",
        "extended.headers.enabled": "false",
        "exactly.once.support": "required",
        "transaction.boundary": "poll",
        # a task that starts itself anew drops what it has not handed over, of which a part may be written: it is to
        # fail, and the supervisor mends what was torn before it starts another
        "errors.max.retries": "0",
        "topic.creation.default.partitions": "1",
        "topic.creation.default.cleanup.policy": "compact",
        **_keys(connector.tables),
    }


def _postgres(connector: Connector, own_schema: str) -> dict[str, str]:
    beat = f'"{own_schema}"."{connector.heartbeat_table}"'
    own = [f"{own_schema}.{connector.heartbeat_table}", f"{own_schema}.{connector.signal_table}"]
    options = connector.source.options
    return {
        "connector.class": "headrace.connect.postgres.CalmPostgresConnector",
        "database.dbname": connector.source.database,
        **{f"database.{name}": options[name] for name in ("sslmode", "sslcert", "sslkey") if name in options},
        **({"database.sslrootcert": options["sslrootcert"]} if "sslrootcert" in options else {}),
        "plugin.name": "pgoutput",
        "slot.name": connector.slot,
        "slot.max.retries": "120",
        "slot.retry.delay.ms": "1000",
        "offset.mismatch.strategy": "trust_offset",
        "publication.name": connector.slot,
        "publication.autocreate.mode": "disabled",
        "status.update.interval.ms": "2000",
        "statistics.metrics.enabled": "false",  # a thread that counts each change's latency, for nobody
        "table.include.list": ",".join([_names(connector.tables), *(re.escape(name) for name in own)]),
        "heartbeat.action.query": f"UPDATE {beat} SET beat = greatest(now(), beat + interval '1 microsecond')",
        "interval.handling.mode": "string",
        "hstore.handling.mode": "json",
        "include.unknown.datatypes": "true",
        "message.prefix.exclude.list": "(?s).*",  # what an application tells others by pg_logical_emit_message
        "skipped.operations": "t",
        "post.processors": "reselector",
        "post.processors.reselector.type": "io.debezium.processors.reselect.ReselectColumnsPostProcessor",
        "post.processors.reselector.reselect.unavailable.values": "true",
        "post.processors.reselector.reselect.null.values": "false",
    }


def _binlog(connector: Connector, own_schema: str, bootstrap: str, access: Mapping[str, str]) -> dict[str, str]:
    kind = "MariaDb" if connector.kind == "mariadb" else "MySql"
    history = "schema.history.internal"
    own = [f"{own_schema}.{connector.heartbeat_table}", f"{own_schema}.{connector.signal_table}"]
    at_first = [table for table in connector.tables if _snapshot(table) == Snapshot.INITIAL]
    known = ",".join([*filter(None, [_names(at_first)]), *(re.escape(name) for name in own)])
    clients = {f"{history}.{role}.{name}": v for role in ("producer", "consumer") for name, v in access.items()}
    return {
        "connector.class": f"io.debezium.connector.{kind.lower()}.{kind}Connector",
        "database.server.id": str(_server_id(connector)),
        "database.include.list": ",".join(sorted({re.escape(_database(table)) for table in connector.tables})),
        "table.include.list": ",".join([_names(connector.tables), *(re.escape(name) for name in own)]),
        "heartbeat.action.query": f"UPDATE `{own_schema}`.`{connector.heartbeat_table}`"
        " SET beat = greatest(now(6), beat + interval 1 microsecond)",
        # our own tables at least: a snapshot of something is what begins the history of schemas
        "snapshot.mode": "initial",
        "snapshot.include.collection.list": known,
        "include.schema.changes": "false",  # a topic of statements, for others; its own history has them too
        "bigint.unsigned.handling.mode": "precise",
        "inconsistent.schema.handling.mode": "fail",
        "snapshot.locking.mode": "minimal",
        "skipped.operations": "t",
        history: "io.debezium.storage.kafka.history.KafkaSchemaHistory",
        f"{history}.kafka.bootstrap.servers": bootstrap,
        f"{history}.kafka.topic": connector.schema_topic,
        # all tables of the databases: of one that is captured later, changes are read that happened before
        f"{history}.store.only.captured.tables.ddl": "false",
        f"{history}.store.only.captured.databases.ddl": "true",
        **clients,
    }


def _transforms(connector: Connector, own_schema: str) -> dict[str, str]:
    """Each topic its name, our own tables left out; an outbox's rows become events."""
    own = [f"{own_schema}.{connector.heartbeat_table}", f"{own_schema}.{connector.signal_table}"]
    names = {f"{connector.name}.{name}": "" for name in own}
    chain = {"names": {"type": "headrace.connect.TopicNames"}}
    predicates: dict[str, dict[str, str]] = {}
    for n, table in enumerate(connector.tables):
        topic = f"{connector.name}.{table.source.table_name}"
        if table.outbox is None:
            names[topic] = table.topic
        else:
            predicates[f"outbox{n}"] = {"type": f"{_PREDICATES}.TopicNameMatches", "pattern": re.escape(topic)}
            chain[f"outbox{n}"] = {**_outbox(table), "predicate": f"outbox{n}"}
    chain["names"]["topics"] = "\n".join(f"{topic}={name}" for topic, name in names.items())
    return {**_flat("transforms", chain), **_flat("predicates", predicates)}


def _flat(kind: str, named: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    settings = {f"{kind}.{name}.{key}": value for name, one in named.items() for key, value in one.items()}
    return {kind: ",".join(named), **settings} if named else {}


def _outbox(table: Captured) -> dict[str, str]:
    outbox = table.outbox
    assert outbox is not None
    placed = [(outbox.aggregate, "aggregate"), (outbox.type, "type"), *((name, name) for name in outbox.headers)]
    return {
        "type": "io.debezium.transforms.outbox.EventRouter",
        "table.field.event.id": outbox.id,
        "table.field.event.key": outbox.key,
        "table.field.event.payload": outbox.payload,
        "table.fields.additional.placement": ",".join(f"{column}:header:{name}" for column, name in placed),
        "table.expand.json.payload": "true",
        "table.json.payload.null.behavior": "optional_bytes",
        "table.op.invalid.behavior": "warn",
        "route.by.field": outbox.aggregate,
        "route.topic.regex": ".*",
        "route.topic.replacement": table.topic,
    }


def _keys(tables: Sequence[Captured]) -> dict[str, str]:
    chosen = [f"{re.escape(table.source.table_name)}:{','.join(table.key)}" for table in tables if table.key]
    return {"message.key.columns": ";".join(chosen)} if chosen else {}


def _server_id(connector: Connector) -> int:
    """A number of its own among the replicas of a server."""
    return 1_000_000 + zlib.crc32(f"{connector.app} {connector.server}".encode()) % 2_000_000_000


def _names(tables: Iterable[Captured]) -> str:
    return ",".join(re.escape(table.source.table_name) for table in tables)


def _database(table: Captured) -> str:
    assert isinstance(table.source, MariaDB)
    return table.source.table_name.rpartition(".")[0]


def _snapshot(table: Captured) -> str:
    assert isinstance(table.source, DatabaseSource)
    return table.source.snapshot
