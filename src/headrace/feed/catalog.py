"""The catalog: topic ``headrace.catalog``, which says what views and queries there are, and carries commands to them.

Keys ``view/APP/NAME`` (where a view's changelog is, its key and columns), ``query/APP/NAME`` (how a query is doing),
``plan/APP/NAME`` (how Spark runs it), ``command/APP/NAME`` (what somebody wants of it), and ``capture/APP/NAME``
and ``capture-command/APP/NAME``, the same of captured tables. Values are JSON; a null value takes the entry away.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import KafkaError, Producer, TopicPartition

from headrace.errors import ServerAway
from headrace.feed.cluster import Cluster
from headrace.feed.topics import CATALOG, MARKS, ensure_topic, read_table

__all__ = ["Catalog", "Commands", "iso_now", "read_catalog", "send_command"]


def iso_now() -> str:
    """The time, as it is written everywhere."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def read_catalog(cluster: Cluster, kind: str) -> dict[str, dict[str, Any]]:
    """Entries of a kind (``view``, ``query``, ``command``) by ``APP/NAME``."""
    ensure_topic(cluster, CATALOG)
    found = read_table(cluster, CATALOG, f"{kind}/")
    return {key.removeprefix(f"{kind}/"): json.loads(value) for key, value in found.items()}


def send_command(cluster: Cluster, app: str, name: str, action: str, kind: str = "command") -> None:
    """Ask the run of an app to do something with a query (``stop`` or ``restart``) or with a captured table."""
    catalog = Catalog(cluster)
    catalog.put(f"{kind}/{app}/{name}", {"action": action, "at": iso_now()})
    catalog.flush()


class Catalog:
    """Writes entries."""

    def __init__(self, cluster: Cluster) -> None:
        ensure_topic(cluster, CATALOG)
        self._cluster = cluster
        self._producer = Producer(cluster.config(enable_idempotence=True, linger_ms=5))

    def put(self, key: str, value: Mapping[str, Any] | None) -> None:
        """Write an entry, in the background."""
        text = None if value is None else json.dumps(value, separators=(",", ":")).encode()
        self._producer.produce(CATALOG, key=key, value=text)
        self._producer.poll(0)

    def forget_marks(self, keys: list[str]) -> None:
        """Take away the marks of queries that are no more."""
        for key in keys:
            self._producer.produce(MARKS, key=key, value=None)
        self.drain(10.0)

    def flush(self, patience_s: float = 10.0) -> None:
        """Wait until everything is written; raises if it is not by then."""
        if self._producer.flush(patience_s):
            raise ServerAway(
                f"what is noted in {CATALOG!r} could not be written within {patience_s:.0f} s.",
                hint=f"Is the broker at {self._cluster.bootstrap} up?",
            )

    def drain(self, patience_s: float = 2.0) -> None:
        """At an end: wait a little for what is still to be written."""
        self._producer.flush(patience_s)


class Commands:
    """The commands that come in from now on."""

    def __init__(self, cluster: Cluster, app: str, kind: str = "command") -> None:
        self._prefix = f"{kind}/{app}/"
        self._consumer = cluster.consumer()
        _, end = cluster.bounds(CATALOG)[0]
        self._consumer.assign([TopicPartition(CATALOG, 0, end)])

    def poll(self, seconds: float) -> Iterator[tuple[str, str]]:
        """(query's name, action), waiting so long at most."""
        for message in self._consumer.consume(100, seconds):
            failed = message.error()
            if failed is not None:
                if failed.code() != KafkaError._PARTITION_EOF and failed.fatal():
                    return
                continue
            key, value = message.key(), message.value()
            name = key.decode() if isinstance(key, bytes) else key or ""
            if name.startswith(self._prefix) and value:
                yield name.removeprefix(self._prefix), json.loads(value).get("action", "")

    def close(self) -> None:
        """Stop listening."""
        self._consumer.close()
