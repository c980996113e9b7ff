"""One record, written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace import tracing
from headrace.errors import ServerAway, UnknownTopic
from headrace.operations.cluster import Cluster, failure

__all__ = ["send_record"]

PATIENCE_S = 10.0


def send_record(
    cluster: Cluster,
    topic: str,
    key: str | None,
    value: str | None,
    headers: Mapping[str, str | None],
    partition: int | None = None,
    traceparent: str | None = None,
) -> dict[str, Any]:
    """Write a record to a topic that must exist; where it lies then. The key chooses the partition, if none is said.
    ``traceparent`` is that of whoever asks for it: the record goes on in that trace, if its headers name no other."""
    from confluent_kafka import KafkaException

    places = {index for _, index in cluster.partitions(topic)}
    if partition is not None and partition not in places:
        raise UnknownTopic(
            f"topic {topic!r} has no partition {partition}.", hint=f"it has {len(places)}: 0 to {len(places) - 1}"
        )
    told: list[Any] = []
    carried = [(name, None if text is None else text.encode()) for name, text in headers.items()]
    if traceparent and tracing.HEADER not in headers and tracing.passed_on(traceparent):
        carried.append((tracing.HEADER, traceparent.encode()))
    producer = cluster.producer(enable_idempotence=True, message_timeout_ms=int(PATIENCE_S * 1000), linger_ms=0)
    sent: dict[str, Any] = {
        "key": None if key is None else key.encode(),
        "value": None if value is None else value.encode(),
        "headers": carried,
        "on_delivery": lambda error, message: told.append((error, message)),
    }
    if partition is not None:
        sent["partition"] = partition
    try:
        with tracing.sending(topic, carried, traceparent):
            producer.produce(topic, **sent)
            producer.flush(PATIENCE_S + 1)
    except KafkaException as error:
        raise failure(error.args[0], f"the record was not written to {topic!r}", cluster.server) from None
    if not told:
        raise ServerAway(f"the record was not written to {topic!r}: {cluster.server} did not answer.")
    refused, message = told[0]
    if refused is not None:
        raise failure(refused, f"the record was not written to {topic!r}", cluster.server)
    return {"topic": topic, "partition": message.partition(), "offset": message.offset()}
