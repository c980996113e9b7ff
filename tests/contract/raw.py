"""A connection that speaks any Kafka API in any version, one request at a time or many in flight."""

from __future__ import annotations

import itertools
import socket
import struct
from typing import Any

from tests.contract import schema
from tests.contract.schema import Tree


class Disconnected(Exception):
    """The server closed the connection."""


class Connection:
    """One TCP connection to a broker."""

    def __init__(self, bootstrap: str, *, client_id: str | None = "contract", timeout: float = 30.0) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.client_id = client_id
        self._ids = itertools.count(1)
        self._waiting: dict[int, tuple[str, int]] = {}

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def call(self, api: str, version: int, /, **body: Any) -> Tree:
        """Sends a request and returns the tree of its response."""
        sent = self.send(api, version, **body)
        got, tree = self.receive()
        assert got == sent, f"response {got} to request {sent}"
        return tree

    def send(self, api: str, version: int, /, **body: Any) -> int:
        """Sends a request; returns its correlation id."""
        schema.check_names(api, body)
        message = schema.request(api, version)
        return self.send_bytes(api, version, schema.encode(message, body))

    def send_bytes(self, api: str, version: int, body: bytes, *, key: int | None = None) -> int:
        correlation = next(self._ids)
        head = struct.pack(">hhi", schema.KEYS[api] if key is None else key, version, correlation)
        name = None if self.client_id is None else self.client_id.encode()
        head += b"\xff\xff" if name is None else struct.pack(">h", len(name)) + name
        if schema.request(api, min(version, max_version(api))).header_version == 2:
            head += b"\0"
        self.send_frame(head + body)
        self._waiting[correlation] = (api, version)
        return correlation

    def send_frame(self, frame: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def receive(self) -> tuple[int, Tree]:
        """The next response: its correlation id and tree."""
        source = schema.Source(self.receive_frame())
        correlation = source.number(">i")
        api, version = self._waiting.pop(correlation)
        message = schema.response(api, version)
        if message.header_version == 1:
            assert source.uvarint() == 0, "tagged fields in a response header"
        return correlation, schema.decode(message, source.data[source.at :])

    def closed(self, within: float = 10.0) -> bool:
        """True when the server closes the connection in that time without sending anything."""
        self.socket.settimeout(within)
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            try:
                part = self.socket.recv(size - len(parts))
            except ConnectionResetError:
                part = b""
            if not part:
                raise Disconnected(f"after {len(parts)} of {size} bytes")
            parts += part
        return bytes(parts)


def max_version(api: str) -> int:
    return max(int(version) for version in schema.schema_name_map[api])
