"""What consumers of the classic protocol tell each other, as far as the broker must understand it.

::

    subscription  version i16, i32 topics of string, user data bytes?,
                  1: i32 owned of (topic string, i32 partitions of i32), 2: generation i32, 3: rack string?
    assignment    version i16, i32 of (topic string, i32 partitions of i32), user data bytes?

A version's number stands before the fields that it added. ``topics_of`` reads only how every version begins.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from headrace.broker.groups.fields import I16, I32, Reader, string
from headrace.errors import CorruptMessage

__all__ = [
    "CONSUMER_PROTOCOL",
    "EmbeddedAssignment",
    "EmbeddedSubscription",
    "decode_assignment",
    "decode_subscription",
    "encode_assignment",
    "topics_of",
]

CONSUMER_PROTOCOL = "consumer"

_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")
_OWNED_FROM, _GENERATION_FROM, _RACK_FROM = 1, 2, 3

TopicPartitions = dict[str, tuple[int, ...]]


class EmbeddedSubscription(NamedTuple):
    """A consumer's subscription."""

    version: int
    topics: tuple[str, ...]
    owned: TopicPartitions
    rack_id: str | None


class EmbeddedAssignment(NamedTuple):
    """What a leader gave a consumer, and what its assignor wants to remember."""

    partitions: TopicPartitions
    user_data: bytes


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


def decode_subscription(data: bytes) -> EmbeddedSubscription:
    """A whole subscription; CorruptMessage if it is none."""
    reader = Reader(data, "the consumer protocol")
    version = reader.i16()
    if version < 0:
        raise reader.corrupt(f"has version {version}")
    topics = tuple(reader.string() for _ in range(_count(reader, data)))
    reader.bytes_()
    owned = _read_partitions(reader, data) if version >= _OWNED_FROM else {}
    if version >= _GENERATION_FROM:
        reader.i32()
    return EmbeddedSubscription(version, topics, owned, reader.optional_string() if version >= _RACK_FROM else None)


def decode_assignment(data: bytes) -> EmbeddedAssignment:
    """A whole assignment; CorruptMessage if it is none. Nothing at all is an empty one."""
    if not data:
        return EmbeddedAssignment({}, b"")
    reader = Reader(data, "the consumer protocol")
    if (version := reader.i16()) < 0:
        raise reader.corrupt(f"has version {version}")
    return EmbeddedAssignment(_read_partitions(reader, data), reader.bytes_())


def encode_assignment(version: int, partitions: Mapping[str, tuple[int, ...]]) -> bytes:
    """An assignment in the version that a consumer's subscription has."""
    parts = [I16.pack(min(version, _RACK_FROM)), I32.pack(len(partitions))]
    for topic, numbers in sorted(partitions.items()):
        parts += (string(topic), I32.pack(len(numbers)), *map(I32.pack, sorted(numbers)))
    return b"".join((*parts, I32.pack(-1)))


def _read_partitions(reader: Reader, data: bytes) -> TopicPartitions:
    found: TopicPartitions = {}
    for _ in range(_count(reader, data)):
        topic = reader.string()
        found[topic] = tuple(reader.i32() for _ in range(_count(reader, data)))
    return found


def _count(reader: Reader, data: bytes) -> int:
    count = reader.i32()
    if not 0 <= count <= len(data):
        raise CorruptMessage("a message of the consumer protocol has a list that is longer than itself")
    return count
