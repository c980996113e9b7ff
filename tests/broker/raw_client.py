"""A client that sends exactly what it is told: for requests that no ordinary client would send."""

from __future__ import annotations

import itertools
import socket
import struct
from types import TracebackType
from typing import Any

from headrace.broker import wire


class RawClient:
    """One blocking connection to a broker on this machine."""

    def __init__(self, port: int, *, timeout: float = 10.0, client_id: str | None = "raw") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id
        self._ids = itertools.count(1)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def call(self, api_key: int, version: int, request: Any = None) -> Any:
        """Send a request and wait for its answer."""
        correlation_id = self.send(api_key, version, request)
        return self.receive(api_key, version, correlation_id)

    def send(self, api_key: int, version: int, request: Any = None) -> int:
        frame, correlation_id = self.frame(api_key, version, request)
        self.socket.sendall(frame)
        return correlation_id

    def frame(self, api_key: int, version: int, request: Any = None) -> tuple[bytes, int]:
        correlation_id = next(self._ids)
        body = wire.encode_request(api_key, version, request or {})
        return self.frame_of(api_key, version, bytes(body), correlation_id), correlation_id

    def frame_of(self, api_key: int, version: int, body: bytes, correlation_id: int = 0) -> bytes:
        name = self._client_id
        encoded = struct.pack(">h", -1) if name is None else struct.pack(">h", len(name)) + name.encode()
        tags = b"\0" if wire.request_codec(api_key, version).flexible else b""
        content = struct.pack(">hhi", api_key, version, correlation_id) + encoded + tags + body
        return struct.pack(">i", len(content)) + content

    def receive(self, api_key: int, version: int, correlation_id: int) -> Any:
        frame = self.receive_frame()
        assert frame[:4] == struct.pack(">i", correlation_id), "responses are out of order"
        return wire.decode_response(
            api_key, version, frame, 5 if wire.response_codec(api_key, version).header_tags else 4
        )

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._receive_exactly(4))
        return self._receive_exactly(size)

    def is_closed(self) -> bool:
        """Whether the broker closes the connection (waits for it) without sending anything more."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _receive_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return bytes(data)
