"""ElectLeaders: every partition has its leader, which is the only one it can have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.errors import HeadraceError, InvalidRequest

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 43
VERSIONS: Final = (0, 2)

_PREFERRED, _UNCLEAN = 0, 1


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Not needed, for each partition that was named; nothing to say where all were meant."""
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        raise InvalidRequest(f"an election of type {request.election_type}")
    return {
        "replica_election_results": [
            {"topic": item.topic, "partition_result": [_result(broker, item.topic, index) for index in item.partitions]}
            for item in request.topic_partitions or ()
        ]
    }


def _result(broker: Broker, name: str, index: int) -> dict[str, Any]:
    code, message = error_codes.ELECTION_NOT_NEEDED, "there is one node, and it leads every partition"
    try:
        broker.store.partition(name, index)
    except HeadraceError as error:
        code, message = error.kafka_code, str(error)
    return {"partition_id": index, "error_code": code, "error_message": message}
