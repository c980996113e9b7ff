"""Metadata: who the node is and which topics there are. Topics that are asked for by name may be created by that."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.broker.authorized import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from headrace.broker.groups.journal import OFFSETS_TOPIC
from headrace.broker.primitives import NO_UUID
from headrace.broker.transactions.journal import STATE_TOPIC
from headrace.errors import HeadraceError
from headrace.log.store import Topic, ensure_topic_name

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

__all__ = ["API_KEY", "VERSIONS", "brokers", "handle", "partition_metadata"]

_logger = logging.getLogger(__name__)

API_KEY: Final = 3
VERSIONS: Final = (0, 13)

_BY_ID_SINCE: Final = 12
_EMPTY_IS_ALL: Final = 0


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """All topics, or those that were asked for."""
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    asked = request.topics
    if asked and context.version < _BY_ID_SINCE and any(map(_is_by_id, asked)):
        return _refused(asked)
    if asked is None or (context.version == _EMPTY_IS_ALL and not asked):
        topics = [_described(broker, topic) for topic in broker.store.topics.values()]
    else:
        may_create = request.allow_auto_topic_creation and broker.settings.value("auto.create.topics.enable")
        topics = [_asked(broker, item, may_create) for item in asked]
    for described in topics:
        described["topic_authorized_operations"] = operations
    cluster_operations = getattr(request, "include_cluster_authorized_operations", False)
    return {
        "brokers": brokers(broker),
        "cluster_id": broker.store.cluster_id,
        "controller_id": broker.store.node_id,
        "topics": topics,
        "cluster_authorized_operations": CLUSTER_OPERATIONS if cluster_operations else NOT_ASKED,
    }


def brokers(broker: Broker) -> list[dict[str, Any]]:
    """The one node."""
    return [
        {
            "node_id": broker.store.node_id,
            "broker_id": broker.store.node_id,
            "host": broker.advertised_host,
            "port": broker.advertised_port,
            "rack": broker.settings.value("broker.rack"),
        }
    ]


def partition_metadata(broker: Broker, topic: Topic, index: int) -> dict[str, Any]:
    """One partition, which this node leads."""
    node = [broker.store.node_id]
    return {
        "error_code": error_codes.NONE,
        "partition_index": index,
        "leader_id": broker.store.node_id,
        "leader_epoch": topic.partitions[index].leader_epoch,
        "replica_nodes": node,
        "isr_nodes": node,
        "offline_replicas": [],
    }


def _is_by_id(item: Any) -> bool:
    return item.name is None or item.topic_id != NO_UUID


def _refused(asked: list[Any]) -> dict[str, Any]:
    """The fields for topic ids came two versions before they were of use: a request that sets them is answered so."""
    topics = [_unknown(item.name or "", error_codes.INVALID_REQUEST, item.topic_id) for item in asked]
    for described in topics:
        described["topic_authorized_operations"] = NOT_ASKED
    return {
        "brokers": [],
        "cluster_id": None,
        "controller_id": -1,
        "topics": topics,
        "cluster_authorized_operations": NOT_ASKED,
    }


def _asked(broker: Broker, item: Any, may_create: bool) -> dict[str, Any]:
    if item.topic_id != NO_UUID:
        topic, code = broker.find_topic(item.topic_id)
        if topic is None:
            return _unknown(None, code, item.topic_id)
        return _described(broker, topic)
    topic = broker.store.topics.get(item.name)
    if topic is not None:
        return _described(broker, topic)
    try:
        ensure_topic_name(item.name or "")
        if may_create:
            return _described(broker, _create(broker, item.name))
    except HeadraceError as error:
        return _unknown(item.name, error.kafka_code)
    return _unknown(item.name, error_codes.UNKNOWN_TOPIC_OR_PARTITION)


def _create(broker: Broker, name: str) -> Topic:
    coordinator = broker.coordinator_of(name)
    if coordinator is not None:
        coordinator.ensure_log()
        return broker.store.topic(name)
    topic = broker.store.create_topic(name, broker.settings.value("num.partitions"))
    _logger.info("created topic %r because a client asked for it", name)
    return topic


def _described(broker: Broker, topic: Topic) -> dict[str, Any]:
    return {
        "error_code": error_codes.NONE,
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": topic.internal,
        "partitions": [partition_metadata(broker, topic, index) for index in range(len(topic.partitions))],
    }


def _unknown(name: str | None, code: int, topic_id: Any = NO_UUID) -> dict[str, Any]:
    return {
        "error_code": code,
        "name": name,
        "topic_id": topic_id,
        "is_internal": name in (OFFSETS_TOPIC, STATE_TOPIC),
        "partitions": [],
    }
