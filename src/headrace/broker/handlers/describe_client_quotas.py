"""DescribeClientQuotas: what is set for which client ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.broker.refused import Refused

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

__all__ = ["API_KEY", "CLIENT_ID", "IP", "USER", "VERSIONS", "handle"]

API_KEY: Final = 48
VERSIONS: Final = (0, 1)
CLIENT_ID, USER, IP = "client-id", "user", "ip"

_EXACT, _DEFAULT, _ANY = 0, 1, 2
_MATCHES: Final = {_EXACT: "EXACT", _DEFAULT: "DEFAULT", _ANY: "SPECIFIED"}


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Those that the filter is about; all, without one."""
    try:
        _ensure_filter(request.components)
    except Refused as refused:
        return {"error_code": refused.code, "error_message": refused.message, "entries": None}
    entries = [
        {
            "entity": [{"entity_type": CLIENT_ID, "entity_name": client_id}],
            "values": [{"key": key, "value": rate} for key, rate in broker.quotas.all[client_id].items()],
        }
        for client_id in _found(broker, request.components)
    ]
    return {"error_message": None, "entries": entries}


def _found(broker: Broker, components: Sequence[Any]) -> Iterator[str | None]:
    """What is set is for client ids alone: whoever asks for more than that finds nothing."""
    if any(one.entity_type != CLIENT_ID for one in components):
        return
    for client_id in broker.quotas.all:
        if all(_matches(one, client_id) for one in components):
            yield client_id


def _matches(component: Any, client_id: str | None) -> bool:
    if component.match_type == _ANY:
        return True
    return bool(client_id == (component.match if component.match_type == _EXACT else None))


def _ensure_filter(components: Sequence[Any]) -> None:
    seen: set[str] = set()
    for one in components:
        kind = one.entity_type
        if not kind:
            raise Refused(error_codes.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in seen:
            raise Refused(
                error_codes.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter."
            )
        if kind not in (CLIENT_ID, USER, IP):
            raise Refused(error_codes.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        seen.add(kind)
        if one.match_type not in _MATCHES:
            raise Refused(error_codes.INVALID_REQUEST, f"Unknown match type {one.match_type}")
        if (one.match is None) == (one.match_type == _EXACT):
            raise Refused(error_codes.INVALID_REQUEST, f"match type {_MATCHES[one.match_type]} and match {one.match!r}")
    if IP in seen and len(seen) > 1:
        raise Refused(error_codes.INVALID_REQUEST, "Invalid entity filter component combination.")
