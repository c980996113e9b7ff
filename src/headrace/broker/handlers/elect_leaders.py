"""ElectLeaders: every partition has its leader, which is the only one it can have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 43
VERSIONS: Final = (0, 2)

_PREFERRED, _UNCLEAN = 0, 1


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Not needed, for each partition that was named; nothing to say where all were meant."""
    if request.topic_partitions is None:
        return {"replica_election_results": [{"topic": name, "partition_result": []} for name in broker.store.topics]}
    is_known = request.election_type in (_PREFERRED, _UNCLEAN)
    return {
        "error_code": error_codes.NONE if is_known else error_codes.INVALID_REQUEST,
        "replica_election_results": [
            {
                "topic": item.topic,
                "partition_result": [
                    {"partition_id": index, **_result(broker, item.topic, index, is_known)} for index in item.partitions
                ],
            }
            for item in request.topic_partitions
        ],
    }


def _result(broker: Broker, name: str, index: int, is_known: bool) -> dict[str, Any]:
    if not is_known:
        return {"error_code": error_codes.INVALID_REQUEST, "error_message": "there is no election of this type"}
    try:
        broker.store.partition(name, index)
    except HeadraceError as error:
        return {"error_code": error.kafka_code, "error_message": str(error)}
    return {"error_code": error_codes.ELECTION_NOT_NEEDED, "error_message": "there is one node, and it leads all"}
