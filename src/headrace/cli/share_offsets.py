"""Share groups and where they stand. The Kafka client has no calls for that, so they are asked for over plain sockets:
ListGroups (version 5) and DescribeShareGroupOffsets (version 0). A server that knows no share groups has none.

::

    request     size i32, key i16, version i16, correlation id i32, client id (null), tags; the body
    response    size i32, correlation id i32, tags; the body

In a body lengths are varints, one more than they say (0 is null), and structs end with tags.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from headrace.cli.cluster import REQUEST_TIMEOUT_S, Partition

if TYPE_CHECKING:
    from headrace.cli.cluster import Cluster

__all__ = ["share_groups", "share_offsets"]

T = TypeVar("T")
Address = tuple[str, int]

_LIST_GROUPS, _LIST_VERSION = 16, 5
_DESCRIBE_OFFSETS, _DESCRIBE_VERSION = 90, 0
_NO_TAGS = b"\0"
_NULL = b"\0"


def share_groups(cluster: Cluster) -> list[str]:
    """The share groups that there are, sorted."""
    body = _array([]) + _array([_string("share")]) + _NO_TAGS
    found: set[str] = set()
    for address in cluster.addresses():
        answer = _asked(address, _LIST_GROUPS, _LIST_VERSION, body)
        if answer is not None:
            answer.skip(4 + 2)
            found.update(answer.array(_listed))
    return sorted(found)


def share_offsets(cluster: Cluster, group: str) -> dict[Partition, int]:
    """Before which offset a share group has settled everything, where that is known."""
    body = _array([_string(group) + _NULL + _NO_TAGS]) + _NO_TAGS
    offsets: dict[Partition, int] = {}
    for address in cluster.addresses():
        answer = _asked(address, _DESCRIBE_OFFSETS, _DESCRIBE_VERSION, body)
        if answer is not None:
            answer.skip(4)
            for places in answer.array(_described):
                offsets.update(places)
    return offsets


def _listed(answer: _Answer) -> str:
    name = answer.string()
    answer.string(), answer.string(), answer.string()
    answer.tags()
    return name


def _described(answer: _Answer) -> dict[Partition, int]:
    answer.string()
    offsets = {place: start for topic in answer.array(_topic) for place, start in topic.items()}
    answer.skip(2)
    answer.string()
    answer.tags()
    return offsets


def _topic(answer: _Answer) -> dict[Partition, int]:
    name = answer.string()
    answer.skip(16)
    partitions = answer.array(_partition)
    answer.tags()
    return {(name, index): start for index, start in partitions if start >= 0}


def _partition(answer: _Answer) -> tuple[int, int]:
    index, start, _, _ = struct.unpack(">iqih", answer.take(18))
    answer.string()
    answer.tags()
    return index, start


class _Answer:
    """The body of a response, read from front to back."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        if len(part) < size:
            raise ConnectionError("an answer that is cut short")
        self._at += size
        return part

    def skip(self, size: int) -> None:
        self.take(size)

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def string(self) -> str:
        return self.take(max(self.varint() - 1, 0)).decode()

    def array(self, item: Callable[[_Answer], T]) -> list[T]:
        return [item(self) for _ in range(self.varint() - 1)]

    def tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.skip(self.varint())


def _asked(address: Address, key: int, version: int, body: bytes) -> _Answer | None:
    """The answer; None if the server closes the connection, as it does on what it does not know."""
    request = struct.pack(">hhih", key, version, 0, -1) + _NO_TAGS + body
    try:
        with socket.create_connection(address, REQUEST_TIMEOUT_S) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", _received(connection, 4))
            answer = _Answer(_received(connection, size))
    except OSError:
        return None
    answer.skip(4)
    answer.tags()
    return answer


def _received(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the server closed the connection")
        data += part
    return data


def _string(text: str) -> bytes:
    data = text.encode()
    return _varint(len(data) + 1) + data


def _array(items: Iterable[bytes]) -> bytes:
    parts = list(items)
    return _varint(len(parts) + 1) + b"".join(parts)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
