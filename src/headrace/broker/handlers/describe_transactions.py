"""DescribeTransactions: what is known of transactional ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.broker.transactional import failure_code
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 65
VERSIONS: Final = (0, 0)


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Each id on its own."""
    return {"transaction_states": [_describe(broker, name) for name in request.transactional_ids]}


def _describe(broker: Broker, name: str) -> dict[str, Any]:
    code = error_codes.TRANSACTIONAL_ID_NOT_FOUND
    found = None
    try:
        found = broker.transactions.describe(name)
    except HeadraceError as error:
        code = failure_code(error, knows_fenced=True)
    if found is None:
        return {"transactional_id": name, "error_code": code, "transaction_state": "", "topics": []}
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(found.partitions):
        topics.setdefault(topic, []).append(index)
    return {
        "transactional_id": name,
        "error_code": error_codes.NONE,
        "transaction_state": found.phase.label,
        "transaction_timeout_ms": found.timeout_ms,
        "transaction_start_time_ms": found.started_ms,
        "producer_id": found.producer_id,
        "producer_epoch": found.epoch,
        "topics": [{"topic": topic, "partitions": partitions} for topic, partitions in topics.items()],
    }
