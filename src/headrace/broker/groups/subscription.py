"""The only look inside what members tell each other: the topics that a consumer's subscription names.

::

    version i16, i32 topics of string, ...        (every version of the consumer protocol begins like this)
"""

from __future__ import annotations

import struct

__all__ = ["CONSUMER_PROTOCOL", "topics_of"]

CONSUMER_PROTOCOL = "consumer"

_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def topics_of(subscription: bytes) -> frozenset[str] | None:
    """Topic names in a subscription; None if it cannot be read."""
    try:
        version, count = _HEAD.unpack_from(subscription)
        if version < 0 or not 0 <= count <= len(subscription) // 2:
            return None
        topics, at = [], _HEAD.size
        for _ in range(count):
            (size,) = _LENGTH.unpack_from(subscription, at)
            start, at = at + 2, at + 2 + size
            if size < 0 or at > len(subscription):
                return None
            topics.append(subscription[start:at].decode())
        return frozenset(topics)
    except (struct.error, UnicodeDecodeError):
        return None
