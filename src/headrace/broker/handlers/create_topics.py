"""CreateTopics: each topic on its own; what was created is answered with its real settings."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.broker.described_configs import topic_configs
from headrace.broker.primitives import NO_UUID
from headrace.broker.refused import Refused, code_of
from headrace.errors import HeadraceError, InvalidConfig

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

__all__ = ["API_KEY", "VERSIONS", "ensure_assignment", "handle"]

API_KEY: Final = 19
VERSIONS: Final = (2, 7)

MAX_PARTITIONS: Final = 10_000
_DEFAULT: Final = -1
_METADATA_TOPIC: Final = "__cluster_metadata"


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """A name that comes twice is an error, once."""
    counts = Counter(item.name for item in request.topics)
    answers = []
    left = MAX_PARTITIONS
    for item in {item.name: item for item in request.topics}.values():
        try:
            if counts[item.name] > 1:
                raise Refused(error_codes.INVALID_REQUEST, "Duplicate topic name.")
            if item.name == _METADATA_TOPIC:
                raise Refused(error_codes.INVALID_REQUEST, f"the name '{_METADATA_TOPIC}' is reserved")
            partitions = _partitions(broker, item)
            left -= partitions
            if left < 0:
                raise Refused(
                    error_codes.POLICY_VIOLATION, f"a request may not make more than {MAX_PARTITIONS} partitions"
                )
            answers.append(_create(broker, item, partitions, request.validate_only))
        except HeadraceError as error:
            answers.append(_failed(item.name, error))
    return {"topics": answers}


def _create(broker: Broker, item: Any, partitions: int, validate_only: bool) -> dict[str, Any]:
    overrides = _overrides(item)
    topic_id = NO_UUID
    if validate_only:
        broker.store.check_new_topic(item.name, partitions, overrides)
    elif (coordinator := broker.coordinator_of(item.name)) is not None:
        broker.store.check_new_topic(item.name, partitions, overrides)
        coordinator.ensure_log()
        topic_id = broker.store.topic(item.name).id
    else:
        topic_id = broker.store.create_topic(item.name, partitions, overrides).id
    return {
        "name": item.name,
        "topic_id": topic_id,
        "error_code": error_codes.NONE,
        "error_message": None,
        "num_partitions": partitions,
        "replication_factor": 1,
        "configs": topic_configs(broker.dynamic_settings, overrides),
    }


def _overrides(item: Any) -> dict[str, str]:
    overrides = {}
    for config in item.configs:
        if config.value is None:
            raise InvalidConfig(f"setting '{config.name}' has no value")
        overrides[config.name] = config.value
    return overrides


def _partitions(broker: Broker, item: Any) -> int:
    """How many partitions are asked for; what is asked of replicas must be possible on one node."""
    if item.assignments:
        if item.replication_factor != _DEFAULT:
            raise Refused(error_codes.INVALID_REQUEST, "a topic with an assignment must have replication factor -1")
        if item.num_partitions != _DEFAULT:
            raise Refused(error_codes.INVALID_REQUEST, "a topic with an assignment must have -1 partitions")
        indexes = sorted(assignment.partition_index for assignment in item.assignments)
        if indexes != list(range(len(indexes))):
            raise Refused(error_codes.INVALID_REPLICA_ASSIGNMENT, "partitions must be assigned from 0 on, each once")
        for assignment in item.assignments:
            ensure_assignment(broker, assignment.broker_ids)
        return len(indexes)
    if item.replication_factor < _DEFAULT or item.replication_factor == 0:
        raise Refused(error_codes.INVALID_REPLICATION_FACTOR, "the replication factor must be 1, or -1 for the default")
    if item.num_partitions < _DEFAULT or item.num_partitions == 0:
        raise Refused(error_codes.INVALID_PARTITIONS, "a topic needs at least one partition, or -1 for the default")
    if item.replication_factor > 1:
        raise Refused(
            error_codes.INVALID_REPLICATION_FACTOR,
            f"a replication factor of {item.replication_factor} cannot be reached: there is one broker",
        )
    default: int = broker.settings.value("num.partitions")
    return default if item.num_partitions == _DEFAULT else int(item.num_partitions)


def ensure_assignment(broker: Broker, broker_ids: list[int]) -> None:
    """Refuse replicas that a single node cannot have."""
    if broker_ids != [broker.store.node_id]:
        raise Refused(
            error_codes.INVALID_REPLICA_ASSIGNMENT, f"replicas {broker_ids}: the only broker is {broker.store.node_id}"
        )


def _failed(name: str, error: HeadraceError) -> dict[str, Any]:
    return {
        "name": name,
        "error_code": code_of(error),
        "error_message": str(error),
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": [],
    }
