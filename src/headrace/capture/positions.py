"""The positions that Connect stores, read from its topic: no worker needs to run, and none is kept busy."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from headrace.capture.connectors import Connector
from headrace.errors import UnknownTopic
from headrace.feed.cluster import Cluster
from headrace.feed.tail import TopicTail
from headrace.feed.topics import read_table

__all__ = ["Positions", "age_s", "stored_offset"]


class Positions:
    """Follows the topic of an app's positions. (Asked over REST, Connect would read the topic anew each time.)"""

    def __init__(self, cluster: Cluster, app: str) -> None:
        self._tail = TopicTail(cluster, f"headrace.connect.{app}.offsets")
        self._offsets: dict[str, dict[str, Any] | None] = {}

    def of(self, connector: Connector) -> dict[str, Any] | None:
        """The newest position of a connector."""
        for key, value in self._tail.poll(0.0):
            name, _ = json.loads(key)
            self._offsets[name] = None if value is None else json.loads(value)
        return self._offsets.get(connector.name)

    def close(self) -> None:
        """Stop following."""
        self._tail.close()


def stored_offset(cluster: Cluster, connector: Connector) -> dict[str, Any] | None:
    """The position that Connect has stored for a connector, read from its topic: no worker needs to run."""
    topic = f"headrace.connect.{connector.app}.offsets"
    try:
        cluster.partitions(topic)
    except UnknownTopic:
        return None
    for key, value in read_table(cluster, topic).items():
        name, _ = json.loads(key)
        if name == connector.name:
            found: dict[str, Any] = json.loads(value)
            return found
    return None


def age_s(offset: Mapping[str, Any] | None) -> float | None:
    """How long ago the newest thing that was captured happened in the database."""
    if offset is None:
        return None
    at_us = offset.get("ts_usec") or (offset["ts_sec"] * 1_000_000 if "ts_sec" in offset else None)
    return None if at_us is None else round(max(0.0, time.time() - at_us / 1e6), 1)
