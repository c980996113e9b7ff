"""CreatePartitions: more partitions for a topic that is there."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.broker.handlers.create_topics import MAX_PARTITIONS, ensure_assignment
from headrace.broker.refused import Refused, code_of
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 37
VERSIONS: Final = (0, 3)


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Each topic on its own."""
    counts = Counter(item.name for item in request.topics)
    results = []
    for item in {item.name: item for item in request.topics}.values():
        result = {"name": item.name, "error_code": error_codes.NONE, "error_message": None}
        try:
            if counts[item.name] > 1:
                raise Refused(error_codes.INVALID_REQUEST, "Duplicate topic name.")
            _add(broker, item, request.validate_only)
        except HeadraceError as error:
            result["error_code"], result["error_message"] = code_of(error), str(error)
        results.append(result)
    return {"results": results}


def _add(broker: Broker, item: Any, validate_only: bool) -> None:
    topic = broker.store.topic(item.name)
    more = item.count - len(topic.partitions)
    if more <= 0:
        raise Refused(
            error_codes.INVALID_PARTITIONS,
            f"topic '{item.name}' has {len(topic.partitions)} partitions; it can only get more, not {item.count}",
        )
    if more > MAX_PARTITIONS:
        raise Refused(error_codes.INVALID_PARTITIONS, f"a request may not make more than {MAX_PARTITIONS} partitions")
    if item.assignments is not None:
        if len(item.assignments) != more:
            raise Refused(
                error_codes.INVALID_REPLICA_ASSIGNMENT,
                f"{more} partitions are to be added, and {len(item.assignments)} are assigned",
            )
        for assignment in item.assignments:
            ensure_assignment(broker, assignment.broker_ids)
    if not validate_only:
        broker.store.add_partitions(item.name, item.count)
