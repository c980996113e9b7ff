"""DeleteGroups: groups without members go, with their offsets and with what they share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.broker.refused import code_of
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

API_KEY: Final = 42
VERSIONS: Final = (0, 2)


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Each group has its own result."""
    shared = [group for group in dict.fromkeys(request.groups_names) if broker.shares.topics(group)]
    codes = {group: await _forget(broker, group) for group in shared}
    rest = [group for group in request.groups_names if not codes.get(group)]
    for group_id, code in (await broker.groups.delete_groups(rest)).items():
        if group_id not in codes or code != error_codes.GROUP_ID_NOT_FOUND:
            codes[group_id] = code
    results = [(group_id, codes[group_id]) for group_id in dict.fromkeys(request.groups_names)]
    return {"results": [{"group_id": group_id, "error_code": code} for group_id, code in results]}


async def _forget(broker: Broker, group: str) -> int:
    """Forget what a group shares."""
    try:
        broker.shares.ensure_may_alter(group)
        await broker.shares.forget(group)
    except HeadraceError as error:
        return code_of(error)
    return error_codes.NONE
