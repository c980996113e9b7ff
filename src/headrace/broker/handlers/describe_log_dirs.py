"""DescribeLogDirs: the data folder, how large partitions are and how much room there is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 35
VERSIONS: Final = (1, 5)


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """All partitions, or those that were asked for and exist."""
    store = broker.store
    wanted: dict[str, set[int] | None]
    if request.topics is None:
        wanted = dict.fromkeys(store.topics)
    else:
        wanted = {topic.topic: set(topic.partitions) for topic in request.topics}
    topics = []
    for name, indexes in wanted.items():
        topic = store.topics.get(name)
        if topic is None:
            continue
        partitions = [
            {"partition_index": index, "partition_size": partition.size, "offset_lag": 0, "is_future_key": False}
            for index, partition in enumerate(topic.partitions)
            if indexes is None or index in indexes
        ]
        if partitions:
            topics.append({"name": name, "partitions": partitions})
    total, usable = _room(str(store.path))
    folder = {
        "error_code": error_codes.NONE,
        "log_dir": str(store.path.absolute()),
        "topics": topics,
        "total_bytes": total,
        "usable_bytes": usable,
    }
    return {"results": [folder]}


def _room(path: str) -> tuple[int, int]:
    try:
        stat = os.statvfs(path)
    except OSError:
        return -1, -1
    return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize
