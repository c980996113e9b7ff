"""DeleteShareGroupOffsets: a group without members forgets where it was in some topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.broker.primitives import NO_UUID
from headrace.broker.refused import Refused, code_of
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 92
VERSIONS: Final = (0, 0)


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Each topic on its own, if the group has no members."""
    broker.shares.ensure_may_alter(request.group_id)
    return {"responses": [await _delete(broker, request.group_id, item.topic_name) for item in request.topics]}


async def _delete(broker: Broker, group: str, name: str) -> dict[str, Any]:
    topic = broker.store.topics.get(name)
    try:
        if topic is None:
            raise Refused(error_codes.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")
        if not broker.shares.indexes(group, topic.id.bytes):
            raise Refused(error_codes.UNKNOWN_TOPIC_OR_PARTITION, "the group has nothing of this topic")
        await broker.shares.forget(group, topic.id.bytes)
    except HeadraceError as error:
        return {
            "topic_name": name,
            "topic_id": NO_UUID,
            "error_code": code_of(error),
            "error_message": str(error),
        }
    return {"topic_name": name, "topic_id": topic.id, "error_code": error_codes.NONE}
