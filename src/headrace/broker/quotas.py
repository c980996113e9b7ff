"""Quotas: how many bytes a second a client may send (``producer_byte_rate``) and receive (``consumer_byte_rate``).

A client is a client id: there is no authentication, so there are no users to limit. What is set for a client id counts,
else what is set for all others, and each client id has its rate for itself. All is as Kafka does it. A rate is measured
over eleven windows of a second, the last one under way, so a client may send ten seconds' worth at once. Who is over is
told to wait for so long that the rate is right again (``throttle_time_ms``), and meanwhile its connection is not read.
What it sent is taken. A fetch that is over is answered without records; one that is larger than would ever be allowed
gets them if the client has had nothing else within the windows (with Kafka it never would). A fetch of a share group
is always answered with its records, as they are acquired; then the client is silent for all that was over.

They are kept in the data folder (``client-quotas``, a checked file: JSON of ``[[client id or null, {name: rate}]]``).
As long as none is set, a request costs one look at a flag.
"""

from __future__ import annotations

import json
import logging
from collections import Counter, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from headrace.errors import StorageError
from headrace.log.checked_file import DamagedFile, read_checked, write_checked

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.broker.connection import Connection
    from headrace.clock import Clock
    from headrace.log.files import Files

__all__ = ["CONSUMER", "PRODUCER", "WINDOWS", "WINDOW_S", "Quotas", "Rate", "client_id_of", "throttle_ms"]

_logger = logging.getLogger(__name__)

PRODUCER: Final = "producer_byte_rate"
CONSUMER: Final = "consumer_byte_rate"
WINDOWS: Final = 11
WINDOW_S: Final = 1.0
_SPAN_S: Final = (WINDOWS - 1) * WINDOW_S
_MOST_CLIENTS: Final = 10_000
"""So many client ids are told apart; whoever was silent for longest is forgotten first."""
_FILE: Final = "client-quotas"
_CLIENT_ID_AT: Final = 10

Rates = Mapping[str, float]


class Rate:
    """Bytes a second over the last windows. Times are of a monotonic clock, in seconds."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[list[float]] = deque()
        """When each window began, and what was counted in it."""

    def add(self, size: float, now: float) -> None:
        """Count bytes; fewer than none takes back what was counted just now."""
        if not self._samples or now - self._samples[-1][0] >= WINDOW_S:
            self._samples.append([now, 0.0])
            if len(self._samples) > WINDOWS:
                self._samples.popleft()
        self._samples[-1][1] += size

    def is_empty(self, now: float) -> bool:
        """Whether nothing was counted within the windows."""
        self._forget(now)
        return not any(size for _, size in self._samples)

    def value(self, now: float) -> float:
        """Bytes a second now."""
        self._forget(now)
        return sum(size for _, size in self._samples) / self.span(now)

    def span(self, now: float) -> float:
        """The seconds that the rate is taken over: at least all windows but the one under way."""
        began = self._samples[0][0] if self._samples else now
        elapsed = now - began
        return elapsed + max(0.0, WINDOWS - 1 - elapsed // WINDOW_S) * WINDOW_S

    def _forget(self, now: float) -> None:
        while self._samples and now - self._samples[0][0] >= WINDOWS * WINDOW_S:
            self._samples.popleft()


def throttle_ms(rate: Rate, allowed: float, now: float) -> int:
    """How long a client has to be silent until its rate is what is allowed; 0 if it is."""
    over = rate.value(now) - allowed
    return round(over / allowed * rate.span(now) * 1000) if over > 0 else 0


def client_id_of(frame: memoryview) -> str:
    """The client id in the header of a request."""
    size = int.from_bytes(frame[8:_CLIENT_ID_AT], "big", signed=True)
    return bytes(frame[_CLIENT_ID_AT : _CLIENT_ID_AT + max(0, size)]).decode(errors="replace")


class Quotas:
    """What is set, and what clients have used."""

    def __init__(self, clock: Clock, files: Files, folder: Path) -> None:
        self.limits_producers = False
        self.limits_consumers = False
        self.throttled: Counter[str] = Counter()
        """How many requests had to wait, by the name of the quota."""
        self._clock = clock
        self._files = files
        self._path = folder / _FILE
        self._set: dict[str | None, dict[str, float]] = {}
        self._rates: dict[tuple[str, str], Rate] = {}

    def load(self) -> None:
        """Read what was set before."""
        try:
            payload = read_checked(self._files, self._path)
        except DamagedFile as damaged:
            _logger.error("%s; no client has a quota", damaged)
            return
        if payload is not None:
            self._use(dict(json.loads(payload)))

    @property
    def all(self) -> Mapping[str | None, Rates]:
        """What is set, by client id; None stands for all that have nothing of their own."""
        return self._set

    def change(self, client_id: str | None, rates: Mapping[str, float | None]) -> None:
        """Set what is given, and take away where it is None; kept on disk, then in effect."""
        now = {name: rate for name, rate in {**self._set.get(client_id, {}), **rates}.items() if rate is not None}
        changed = {name: known for name, known in self._set.items() if name != client_id}
        if now:
            changed[client_id] = now
        try:
            write_checked(self._files, self._path, json.dumps(list(changed.items())).encode(), keep_previous=True)
        except OSError as error:
            raise StorageError(f"the quotas could not be written: {error.strerror or error}") from error
        self._use(changed)

    def allowed(self, kind: str, client_id: str) -> float | None:
        """Bytes a second that a client may; None if nothing is set."""
        own = self._set.get(client_id, {}).get(kind)
        return self._set.get(None, {}).get(kind) if own is None else own

    def produced(self, connection: Connection, frame: memoryview) -> int:
        """A request to write was taken: for how long its client is to be silent (ms), and will not be read."""
        client_id = client_id_of(frame)
        allowed = self.allowed(PRODUCER, client_id)
        if allowed is None:
            return 0
        now = self._clock.monotonic()
        rate = self._rate(PRODUCER, client_id)
        rate.add(len(frame), now)
        return self._muted(connection, PRODUCER, throttle_ms(rate, allowed, now))

    def fetched(self, connection: Connection, client_id: str, size: int) -> tuple[int, bool]:
        """So many bytes of records are to be sent: how long the client is to be silent, and whether it gets them."""
        allowed = self.allowed(CONSUMER, client_id)
        if allowed is None or not size:
            return 0, True
        now = self._clock.monotonic()
        rate = self._rate(CONSUMER, client_id)
        may = rate.is_empty(now)
        rate.add(size, now)
        wait_ms = throttle_ms(rate, allowed, now)
        if wait_ms and not may:
            rate.add(-size, now)
        return self._muted(connection, CONSUMER, wait_ms), may or not wait_ms

    def shared(self, connection: Connection, client_id: str, size: int) -> int:
        """So many bytes of records were acquired and are sent: how long the client is to be silent."""
        allowed = self.allowed(CONSUMER, client_id)
        if allowed is None or not size:
            return 0
        now = self._clock.monotonic()
        rate = self._rate(CONSUMER, client_id)
        rate.add(size, now)
        return self._muted(connection, CONSUMER, throttle_ms(rate, allowed, now))

    def most_at_once(self, client_id: str) -> int | None:
        """What one fetch may bring at most so that it does not go over by itself."""
        allowed = self.allowed(CONSUMER, client_id)
        return None if allowed is None else max(1, int(allowed * _SPAN_S))

    def _muted(self, connection: Connection, kind: str, wait_ms: int) -> int:
        if wait_ms:
            self.throttled[kind] += 1
            connection.hold()
            connection.server.broker.loop.call_later(wait_ms / 1000, connection.let_go)
        return wait_ms

    def _rate(self, kind: str, client_id: str) -> Rate:
        rate = self._rates.pop((kind, client_id), None) or Rate()
        self._rates[kind, client_id] = rate
        if len(self._rates) > _MOST_CLIENTS:
            del self._rates[next(iter(self._rates))]
        return rate

    def _use(self, found: dict[str | None, dict[str, float]]) -> None:
        self._set = found
        self.limits_producers = any(PRODUCER in rates for rates in found.values())
        self.limits_consumers = any(CONSUMER in rates for rates in found.values())
