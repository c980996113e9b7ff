"""ListTransactions: all transactional ids, or those in some states, of some producers, begun long ago, named alike."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.broker.transactions.records import Phase

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext
    from headrace.broker.transactions.records import Transaction

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 66
VERSIONS: Final = (0, 2)

_LABELS: Final = {phase.label: phase for phase in Phase}
_PASSING: Final = ("Dead", "PrepareEpochFence")
"""States that Kafka knows and nobody is seen in here."""


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """States that do not exist are told apart."""
    unknown = [name for name in request.state_filters if name not in _LABELS and name not in _PASSING]
    phases = {_LABELS[name] for name in request.state_filters if name in _LABELS}
    producers = set(request.producer_id_filters)
    pattern = None
    if request.transactional_id_pattern:
        try:
            pattern = re.compile(request.transactional_id_pattern)
        except re.error:
            return {"error_code": error_codes.INVALID_REGULAR_EXPRESSION, "transaction_states": []}

    def wanted(name: str, found: Transaction) -> bool:
        if request.state_filters and found.phase not in phases:
            return False
        if producers and found.producer_id not in producers:
            return False
        if broker.transactions.age_ms(found) <= request.duration_filter:
            return False
        return pattern is None or pattern.fullmatch(name) is not None

    return {
        "error_code": error_codes.NONE,
        "unknown_state_filters": unknown,
        "transaction_states": [
            {"transactional_id": name, "producer_id": found.producer_id, "transaction_state": found.phase.label}
            for name, found in broker.transactions.transactions().items()
            if wanted(name, found)
        ],
    }
