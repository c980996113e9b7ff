"""DeleteTopics, by name or (from version 6) by id."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.broker.primitives import NO_UUID
from headrace.broker.refused import Refused, code_of
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext
    from headrace.log.store import Topic

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 20
VERSIONS: Final = (1, 6)

_BY_ID_SINCE: Final = 6
_DISABLED_SINCE: Final = 3


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Each topic on its own."""
    if context.version >= _BY_ID_SINCE:
        asked = [(item.name, item.topic_id) for item in request.topics]
    else:
        asked = [(name, NO_UUID) for name in request.topic_names]
    counts = Counter(asked)
    answers = []
    for name, topic_id in counts:
        answer = {"name": name, "topic_id": topic_id, "error_code": error_codes.NONE, "error_message": None}
        try:
            if counts[name, topic_id] > 1:
                raise Refused(error_codes.INVALID_REQUEST, "Duplicate topic name.")
            topic = _delete(broker, name, topic_id, context.version)
            answer["name"], answer["topic_id"] = topic.name, topic.id
        except HeadraceError as error:
            answer["error_code"], answer["error_message"] = code_of(error), str(error)
        answers.append(answer)
    return {"responses": answers}


def _delete(broker: Broker, name: str | None, topic_id: Any, version: int) -> Topic:
    if not broker.settings.value("delete.topic.enable"):
        disabled = version >= _DISABLED_SINCE
        code = error_codes.TOPIC_DELETION_DISABLED if disabled else error_codes.INVALID_REQUEST
        raise Refused(code, "topics cannot be deleted: delete.topic.enable is false")
    if (name is None) == (topic_id == NO_UUID):
        raise Refused(error_codes.INVALID_REQUEST, "a topic is deleted by its name or by its id, one of them")
    topic = broker.store.topic_by_id(topic_id) if name is None else broker.store.topic(name)
    broker.store.delete_topic(topic.name)
    broker.groups.on_topic_deleted(topic.name)
    broker.transactions.on_topic_deleted(topic.name)
    broker.shares.on_topic_deleted(topic)
    return topic
