"""AlterPartitionReassignments: a partition can stay where it is, on the one node, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.broker.handlers.create_topics import ensure_assignment
from headrace.broker.refused import Refused, code_of
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 45
VERSIONS: Final = (0, 1)


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Each partition on its own."""
    return {
        "responses": [
            {"name": topic.name, "partitions": [_alter(broker, topic.name, item) for item in topic.partitions]}
            for topic in request.topics
        ]
    }


def _alter(broker: Broker, name: str, item: Any) -> dict[str, Any]:
    answer = {"partition_index": item.partition_index, "error_code": error_codes.NONE, "error_message": None}
    try:
        broker.store.partition(name, item.partition_index)
        if item.replicas is None:
            raise Refused(error_codes.NO_REASSIGNMENT_IN_PROGRESS, "nothing is being moved")
        ensure_assignment(broker, item.replicas)
    except HeadraceError as error:
        answer["error_code"], answer["error_message"] = code_of(error), str(error)
    return answer
