"""What a cluster's brokers say of themselves: Headrace or Apache Kafka, and how many copies a new topic should have.

A topic has as many copies as the cluster's ``default.replication.factor`` says if somebody has set it; otherwise three,
or as many as there are brokers. A record is acknowledged when two of three have it (``min.insync.replicas``), unless
somebody has set that: so one broker may be lost, and all goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType

__all__ = ["Brokers", "brokers_of", "placement"]

COPIES = 3
_REPLICATION, _IN_SYNC = "default.replication.factor", "min.insync.replicas"
_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Brokers:
    """``embedded``: a Headrace node. ``addresses``: of those that are up. ``replication``: of new topics, -1 as the
    cluster does it by itself; ``settings``: what they need beside it."""

    embedded: bool
    addresses: tuple[str, ...]
    replication: int = -1
    settings: Mapping[str, str] = field(default_factory=dict)

    def copies(self, asked: int | None) -> tuple[int, Mapping[str, str]]:
        """Replication and settings of a new topic, where somebody may have asked for a number of copies (or -1)."""
        if asked is None or asked < 0:
            return self.replication, self.settings
        return asked, self.settings if asked >= COPIES else {}


def brokers_of(admin: AdminClient) -> Brokers:
    """Ask one of them; KafkaException if none answers. Where we may not see settings, it is as if nobody had set them:
    left to the cluster, a topic would have one copy by Kafka's default."""
    told = admin.list_topics(timeout=_PATIENCE_S)
    known = told.brokers
    addresses = tuple(f"{one.host}:{one.port}" for one in known.values())
    parts = (part for topic in told.topics.values() for part in topic.partitions.values())
    members = {*known, *(broker for part in parts for broker in part.replicas)}  # those that are down, too
    resource = ConfigResource(ResourceType.BROKER, str(next(iter(known), 0)))
    try:
        found = admin.describe_configs([resource], request_timeout=_PATIENCE_S)[resource].result(_PATIENCE_S + 5)
    except KafkaException as error:
        if error.args[0].retriable():
            raise
        return Brokers(False, addresses, *placement(len(members), None, None))
    if any(str(name).startswith("headrace.") for name in found):
        return Brokers(True, addresses)
    chosen = {name: int(entry.value or 0) for name, entry in found.items() if _is_chosen(name, entry)}
    return Brokers(False, addresses, *placement(len(members), chosen.get(_REPLICATION), chosen.get(_IN_SYNC)))


def placement(brokers: int, replication: int | None, in_sync: int | None) -> tuple[int, dict[str, str]]:
    """Replication and settings of a new topic, by what somebody has set for the cluster."""
    copies = replication or min(COPIES, brokers)
    settings = {_IN_SYNC: str(COPIES - 1)} if in_sync is None and copies >= COPIES else {}
    return -1 if replication is not None else copies, settings


def _is_chosen(name: str, entry: Any) -> bool:
    """Whether somebody has set it. A new cluster of Kafka 4 sets ``min.insync.replicas`` to 1 by itself, for all."""
    by_itself = (_IN_SYNC, "1", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value)
    source = int(entry.source)
    return (
        name in (_REPLICATION, _IN_SYNC)
        and source != ConfigSource.DEFAULT_CONFIG.value
        and (name, entry.value, source) != by_itself
    )
