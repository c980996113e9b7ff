"""Questions in the protocol itself: those that the client library cannot ask.

Only over plaintext connections, and of every broker, because each one answers for what it keeps.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headrace.operations.cluster import REQUEST_TIMEOUT_S

if TYPE_CHECKING:
    from headrace.operations.cluster import Cluster

__all__ = ["ask", "brokers"]


def brokers(cluster: Cluster) -> Iterator[tuple[socket.socket, str]]:
    """A connection to each broker and its address; one that goes away or does not know the question is left out."""
    for host, port in cluster.addresses():
        with (
            contextlib.suppress(OSError, EOFError),
            socket.create_connection((host, port), REQUEST_TIMEOUT_S) as connection,
        ):
            yield connection, f"{host}:{port}"


def ask(connection: socket.socket, api_key: int, version: int, request: dict[str, Any]) -> Any:
    """The answer to one question; EOFError if the broker hangs up, as it does when it does not know it."""
    from headrace.broker import wire

    body = wire.encode_request(api_key, version, request)
    head = struct.pack(">hhih", api_key, version, 1, -1) + b"\0"
    connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
    (size,) = struct.unpack(">i", _receive(connection, 4))
    return wire.decode_response(api_key, version, _receive(connection, size), 5)


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data
