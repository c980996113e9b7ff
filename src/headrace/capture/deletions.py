"""Deletions that no connector tells of, written to a topic: each with its tombstone, as Debezium writes them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Producer

from headrace.capture.envelopes import to_json
from headrace.errors import ServerAway
from headrace.feed.cluster import Cluster

__all__ = ["delete_keys"]

PATIENCE_S = 60.0


def delete_keys(cluster: Cluster, topic: str, keys: Sequence[bytes], about: Mapping[str, Any]) -> int:
    """Delete these keys and say how many they were; ``about`` goes into ``source``. Nobody else may write meanwhile."""
    if not keys:
        return 0
    producer = Producer(cluster.config(enable_idempotence=True, linger_ms=5, compression_type="lz4"))
    now_ms = int(time.time() * 1000)
    source = to_json({**about, "snapshot": "false", "ts_ms": now_ms, "ts_us": now_ms * 1000})
    for key in keys:
        value = b'{"before":%b,"after":null,"source":%b,"op":"d","ts_ms":%d}' % (key, source, now_ms)
        for part in (value, None):
            _produce(producer, topic, key, part, source)
    if producer.flush(PATIENCE_S):
        raise ServerAway(f"topic {topic!r} could not be written to.")
    return len(keys)


def _produce(producer: Producer, topic: str, key: bytes, value: bytes | None, source: bytes) -> None:
    while True:
        try:
            return producer.produce(topic, key=key, value=value, headers=[("source", source)])
        except BufferError:
            producer.poll(0.1)
