"""DescribeCluster: the one node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker.authorized import CLUSTER_OPERATIONS, NOT_ASKED
from headrace.broker.handlers.metadata import brokers

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 60
VERSIONS: Final = (0, 2)

_BROKERS, _CONTROLLERS = 1, 2
_MISMATCHED_ENDPOINT_TYPE, _UNSUPPORTED_ENDPOINT_TYPE = 114, 115


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Brokers; controllers have no endpoints of their own here."""
    kind = request.endpoint_type
    if kind != _BROKERS:
        known = kind == _CONTROLLERS
        return {
            "error_code": _MISMATCHED_ENDPOINT_TYPE if known else _UNSUPPORTED_ENDPOINT_TYPE,
            "error_message": f"endpoints of type {kind} are not to be had from a broker",
        }
    asked = request.include_cluster_authorized_operations
    return {
        "cluster_id": broker.store.cluster_id,
        "controller_id": broker.store.node_id,
        "brokers": brokers(broker),
        "cluster_authorized_operations": CLUSTER_OPERATIONS if asked else NOT_ASKED,
    }
