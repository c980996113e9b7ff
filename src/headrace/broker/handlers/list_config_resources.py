"""ListConfigResources: what has settings. Version 0 asks only for client metrics, of which there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.broker.described_configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 74
VERSIONS: Final = (0, 1)

_KNOWN: Final = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Those of the kinds asked for; all kinds if none was named."""
    kinds = {CLIENT_METRICS} if context.version == 0 else set(request.resource_types) or set(_KNOWN)
    if not kinds <= set(_KNOWN):
        return {"error_code": error_codes.UNSUPPORTED_VERSION, "config_resources": []}
    node = str(broker.store.node_id)
    names = {
        TOPIC: list(broker.store.topics),
        BROKER: [node],
        BROKER_LOGGER: [node],
        GROUP: broker.group_configs.groups(),
    }
    return {
        "config_resources": [
            {"resource_name": name, "resource_type": kind} for kind in sorted(kinds) for name in names.get(kind, [])
        ]
    }
