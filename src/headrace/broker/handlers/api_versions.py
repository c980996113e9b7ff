"""ApiVersions: what this broker can do, made from the handlers themselves.

Finalized features steer clients (``transaction.version`` switches on newer transactions, ``group.version`` the new
group protocol), so only what works is listed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.broker.handlers import produce

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 18
VERSIONS: Final = (0, 4)

FEATURES: Final[dict[str, tuple[int, int]]] = {
    "group.version": (0, 1),
    "metadata.version": (7, 30),
    "share.version": (0, 1),
    "transaction.version": (0, 2),
}
"""Features by name, with the range that is supported; the upper end is what is finalized."""

_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_SOFTWARE_SINCE: Final = 3


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """The table, unless the client has a name that cannot be."""
    if context.version >= _SOFTWARE_SINCE and not (
        _SOFTWARE_NAME.fullmatch(request.client_software_name)
        and _SOFTWARE_NAME.fullmatch(request.client_software_version)
    ):
        return {"error_code": error_codes.INVALID_REQUEST, "api_keys": []}
    return {
        "api_keys": [
            {
                "api_key": api.key,
                "min_version": produce.ADVERTISED_MIN if api.key == produce.API_KEY else api.min_version,
                "max_version": api.max_version,
            }
            for api in broker.apis.values()
        ],
        "supported_features": [
            {"name": name, "min_version": low, "max_version": high} for name, (low, high) in FEATURES.items()
        ],
        "finalized_features_epoch": 0,
        "finalized_features": [
            {"name": name, "min_version_level": high, "max_version_level": high} for name, (_, high) in FEATURES.items()
        ],
    }
