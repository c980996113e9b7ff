"""One connection to a broker, and the brokers of a cluster as a thread uses them: requests in the protocol itself.

The client library sends records, not batches, and no transaction without records; a move needs both. Nothing here is
shared between threads.
"""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError

from headrace.broker import wire
from headrace.errors import HeadraceError, InvalidConfig, ServerAway
from headrace.move.security import Security

__all__ = ["Brokers", "Connection", "Refused", "check"]

TIMEOUT_S = 60.0
_PATIENCE_S = 60.0
_METADATA, _METADATA_VERSION = 3, 12
_FIND_COORDINATOR, _FIND_VERSION = 10, 4
_HANDSHAKE, _AUTHENTICATE = 17, 36
_CLIENT_ID = b"headrace-move"
GROUP, TRANSACTION = 0, 1
"""Kinds of coordinators."""

_PASSING = frozenset({3, 5, 6, 7, 8, 9, 13, 14, 15, 16, 19, 20, 51, 56, 72, 74, 75, 78, 100})
"""Errors that go away: leaders and coordinators that move or load, replicas behind, a transaction that is ending."""

T = TypeVar("T")


class Refused(HeadraceError):
    """A broker answered an error."""

    def __init__(self, doing: str, code: int, told: str | None = None) -> None:
        super().__init__(f"{doing}: {(told or KafkaError(code).str()).rstrip('.')} (error {code}).")
        self.code = code

    @property
    def passes(self) -> bool:
        """Whether it helps to wait and ask again."""
        return self.code in _PASSING


def check(doing: str, code: int, told: str | None = None) -> None:
    """Raise Refused if a code is an error."""
    if code:
        raise Refused(doing, code, told)


class Connection:
    """A connection to one broker; requests are answered in their order."""

    def __init__(self, host: str, port: int, security: Security) -> None:
        self.place = f"{host}:{port}"
        try:
            plain = socket.create_connection((host, port), TIMEOUT_S)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = security.wrapped(plain, host)
        except OSError as error:
            raise ServerAway(f"{host}:{port} does not answer: {error}.") from None
        self._ids = itertools.count(1)
        self._waiting: list[tuple[int, int]] = []
        if security.mechanism is not None:
            self._authenticate(security, security.mechanism)

    def call(self, api: int, version: int, request: Mapping[str, Any]) -> Any:
        """Send a request and wait for its answer."""
        self.send(api, version, request)
        return self.receive()

    def send(self, api: int, version: int, request: Mapping[str, Any]) -> None:
        """Send a request whose answer is fetched later."""
        head = struct.pack(">hhih", api, version, next(self._ids) & 0x7FFFFFFF, len(_CLIENT_ID)) + _CLIENT_ID
        head += b"\0" if wire.request_codec(api, version).flexible else b""
        body = wire.encode_request(api, version, dict(request))
        try:
            self._socket.sendall(struct.pack(">i", len(head) + len(body)) + head)
            self._socket.sendall(body)
        except OSError as error:
            raise ServerAway(f"the connection to a broker broke: {error}.") from None
        self._waiting.append((api, version))

    def receive(self) -> Any:
        """The answer to the oldest request that was not answered yet."""
        api, version = self._waiting.pop(0)
        (size,) = struct.unpack(">i", self._exactly(4))
        frame = self._exactly(size)
        return wire.decode_response(api, version, frame, 5 if wire.response_codec(api, version).header_tags else 4)

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def _exactly(self, size: int) -> memoryview:
        data = memoryview(bytearray(size))
        got = 0
        while got < size:
            try:
                part = self._socket.recv_into(data[got:])
            except OSError as error:
                raise ServerAway(f"a broker did not answer: {error}.") from None
            if not part:
                raise ServerAway("a broker closed the connection.")
            got += part
        return data

    def _authenticate(self, security: Security, mechanism: str) -> None:
        answer = self.call(_HANDSHAKE, 1, {"mechanism": mechanism})
        if answer.error_code:
            offered = ", ".join(answer.mechanisms)
            raise InvalidConfig(f"the broker does not take SASL mechanism {mechanism}.", detail=f"it takes {offered}")

        def exchange(said: bytes) -> bytes:
            told = self.call(_AUTHENTICATE, 2, {"auth_bytes": said})
            if told.error_code:
                raise InvalidConfig(f"the broker does not let us in: {told.error_message}.")
            return bytes(told.auth_bytes)

        security.authenticate(exchange)


class Brokers:
    """The brokers of a cluster, found by what they are wanted for."""

    def __init__(self, bootstrap: str, settings: Mapping[str, str]) -> None:
        self.bootstrap = bootstrap
        self._security = Security(settings)
        self._open: dict[tuple[str, int], Connection] = {}
        self._leaders: dict[tuple[str, int], tuple[tuple[str, int], int]] = {}

    def leader(self, topic: str, partition: int) -> tuple[Connection, int]:
        """The connection to a partition's leader, and its leader epoch."""
        found = self._leaders.get((topic, partition))
        if found is None:
            self._learn(topic)
            found = self._leaders[topic, partition]
        return self._at(*found[0]), found[1]

    def coordinator(self, kind: int, name: str) -> Connection:
        """The connection to the coordinator of a group or a transactional id."""
        asked = {"key_type": kind, "coordinator_keys": [name]}
        [found] = self.any().call(_FIND_COORDINATOR, _FIND_VERSION, asked).coordinators
        check(f"the coordinator of {name!r} could not be found", found.error_code, found.error_message)
        return self._at(found.host, found.port)

    def all(self) -> list[Connection]:
        """Connections to all brokers."""
        asked = {"topics": [], "allow_auto_topic_creation": False}
        told = self.any().call(_METADATA, _METADATA_VERSION, asked)
        return [self._at(broker.host, broker.port) for broker in told.brokers]

    def any(self) -> Connection:
        """A connection to some broker."""
        if self._open:
            return next(iter(self._open.values()))
        away: ServerAway | None = None
        for address in self.bootstrap.split(","):
            host, _, port = address.strip().rpartition(":")
            try:
                return self._at(host.strip("[]") or address.strip(), int(port) if host else 9092)
            except ServerAway as error:
                away = error
        raise away or ServerAway(f"no broker answers at {self.bootstrap}.")

    def patiently(self, ask: Callable[[], T]) -> T:
        """What is answered; leaders and coordinators that move or load are waited for."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return ask()
            except (ServerAway, Refused) as error:
                if (isinstance(error, Refused) and not error.passes) or time.monotonic() > deadline:
                    raise
            self.close()
            time.sleep(0.2)

    def close(self) -> None:
        """Close all connections, and forget who leads what."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()
        self._leaders.clear()

    def _at(self, host: str, port: int) -> Connection:
        if (host, port) not in self._open:
            self._open[host, port] = Connection(host, port, self._security)
        return self._open[host, port]

    def _learn(self, topic: str) -> None:
        asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        told = self.any().call(_METADATA, _METADATA_VERSION, asked)
        places = {broker.node_id: (broker.host, broker.port) for broker in told.brokers}
        for found in told.topics:
            check(f"topic {topic!r} could not be found", found.error_code)
            for partition in found.partitions:
                check(f"{topic}[{partition.partition_index}] has no leader", partition.error_code)
                where = places[partition.leader_id], partition.leader_epoch
                self._leaders[topic, partition.partition_index] = where
