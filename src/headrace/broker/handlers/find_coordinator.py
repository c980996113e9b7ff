"""FindCoordinator: who looks after a group, a transaction or a share partition. On one machine always this node."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.groups.codes import Code

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

API_KEY: Final = 10
VERSIONS: Final = (0, 6)

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_BATCHED_FROM, _SHARE_FROM = 4, 6
_BAD_TYPE = "This most likely occurs because of a request being malformed by the client library."


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Versions below 4 ask for one key and get one answer, later ones ask for many."""
    if context.version < _BATCHED_FROM:
        return _coordinator(broker, request.key_type, request.key, context.version)
    answers = [_coordinator(broker, request.key_type, key, context.version) for key in request.coordinator_keys]
    return {"coordinators": answers}


def _coordinator(broker: Broker, key_type: int, key: str, version: int) -> dict[str, Any]:
    if not _is_valid(key_type, key, version):
        return {
            "key": key,
            "node_id": -1,
            "host": "",
            "port": -1,
            "error_code": Code.INVALID_REQUEST,
            "error_message": _BAD_TYPE,
        }
    if key_type == _GROUP:
        broker.groups.ensure_log()
    elif key_type == _TRANSACTION:
        broker.transactions.ensure_log()
    return {
        "key": key,
        "node_id": broker.store.node_id,
        "host": broker.advertised_host,
        "port": broker.advertised_port,
        "error_code": Code.NONE,
        "error_message": "NONE" if version < _BATCHED_FROM else "",
    }


def _is_valid(key_type: int, key: str, version: int) -> bool:
    if key_type == _SHARE:
        return version >= _SHARE_FROM and _is_share_partition(key)
    return key_type in (_GROUP, _TRANSACTION)


def _is_share_partition(key: str) -> bool:
    """``group:topic id:partition``; the group's id may have colons."""
    parts = key.rsplit(":", 2)
    if len(parts) != 3 or not parts[0] or not parts[2].isdecimal():
        return False
    try:
        return len(urlsafe_b64decode(parts[1] + "==")) == 16
    except ValueError:
        return False
