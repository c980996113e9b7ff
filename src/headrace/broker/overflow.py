"""Producers wait for slow groups: topics with ``headrace.overflow=block``.

While a group that the topic names is further behind than the topic allows, what producers send is still taken, but they
are slowed down, each connection by itself:

1. The answer tells the client to send nothing for a while (Kafka's throttle time), and what it sends before that is
   over waits.
2. When the lag goes on for longer than a second, the answer itself waits: until the group has caught up, but no
   longer than a few seconds, as a client gives a request up after 30. Nothing else of this connection is read
   meanwhile (its answers could not overtake this one anyway), and other connections are not touched.
3. Then everything that the client had under way is taken and answered at once, so that no request waits twice, and it
   starts again. So a producer that never stops still gets through what it has under way once per wait.

The lag is what lies between the group's offset and the high watermark, over all partitions of the topic. A group that
has no offset in a partition counts as being at the log start, also if there is no such group (yet).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from headrace.broker.connection import Connection
    from headrace.log.partition import PartitionLog
    from headrace.log.store import Topic

__all__ = ["HOLD_S", "OPEN_S", "Brake", "Overflow", "Pace", "Verdict", "judge", "lag"]

HOLD_S: Final = 5.0
"""The longest that an answer waits."""
OPEN_S: Final = 0.05
"""How long after a wait everything is let through: enough to take all that the sockets hold."""
_PATIENCE_S: Final = 1.0
_FIRST_THROTTLE_S: Final = 0.1
_LONGEST_THROTTLE_S: Final = 1.0
_LOOK_EVERY_S: Final = 0.05


class Pace(NamedTuple):
    """How a connection has been slowed down since its topic overflowed; times of a monotonic clock."""

    began: float
    quiet_until: float
    """It was told to send nothing before."""
    open_until: float
    """A wait is just over: nothing waits before."""


class Verdict(NamedTuple):
    """What one request gets."""

    throttle_ms: int
    hold_s: float


def judge(pace: Pace | None, now: float) -> tuple[Pace, Verdict]:
    """How to treat a request to a topic that has overflowed, and the pace from then on.

    Who has kept quiet for long starts anew.
    """
    if pace is None or now > pace.quiet_until + HOLD_S:
        pace = Pace(now, now, now)
    going_on = now - pace.began
    throttle_s = min(max(going_on, _FIRST_THROTTLE_S), _LONGEST_THROTTLE_S)
    if now < pace.open_until:
        hold_s = 0.0
    elif going_on > _PATIENCE_S:
        hold_s = HOLD_S
    else:
        hold_s = max(pace.quiet_until - now, 0.0)
    end = now + hold_s
    open_until = end + OPEN_S if hold_s == HOLD_S else pace.open_until
    return Pace(pace.began, end + throttle_s, open_until), Verdict(int(throttle_s * 1000), hold_s)


class _Place(Protocol):
    """What the lag is counted in: a partition."""

    @property
    def index(self) -> int:
        """The partition's number."""
        ...

    @property
    def log_start(self) -> int:
        """The first offset that can be read."""
        ...

    @property
    def high_watermark(self) -> int:
        """The offset after the last one that can be read."""
        ...


def lag(places: Iterable[_Place], position: Callable[[int], int | None]) -> int:
    """How many offsets a group has not read, whose position in a partition is given (None if it has none)."""
    behind = 0
    for place in places:
        at = position(place.index)
        behind += max(0, place.high_watermark - max(at or 0, place.log_start))
    return behind


class _Timer(Protocol):
    """A call that is to come."""

    def cancel(self) -> None:
        """It shall not come."""
        ...


class _Loop(Protocol):
    """The time, and calls later: an event loop."""

    def time(self) -> float:
        """Now, by a monotonic clock."""
        ...

    def call_later(self, delay: float, callback: Callable[[], None], /) -> _Timer:
        """Call after so many seconds."""
        ...


class Brake:
    """What slows one request down. While it is on, its connection is not read and its answer waits."""

    __slots__ = ("_least_ms", "_on", "_then", "throttle_ms")

    def __init__(self, throttle_ms: int, *, on: bool) -> None:
        self.throttle_ms = throttle_ms
        self._least_ms = 0
        self._on = on
        self._then: Callable[[], None] | None = None

    def at_least(self, throttle_ms: int) -> Brake:
        """The same, for a client that is over its quota too."""
        self._least_ms = throttle_ms
        self.throttle_ms = max(self.throttle_ms, throttle_ms)
        return self

    def when_off(self, then: Callable[[], None]) -> None:
        """Call once it is off; at once if it is."""
        if self._on:
            self._then = then
        else:
            then()

    def release(self, *, caught_up: bool) -> None:
        """Turn it off."""
        self._on = False
        if caught_up:
            self.throttle_ms = self._least_ms
        if self._then is not None:
            self._then()


class _Held(NamedTuple):
    brake: Brake
    until: float
    topics: Sequence[Topic]


class Overflow:
    """Knows which topics have overflowed and slows their producers down."""

    def __init__(self, position: Callable[[str, PartitionLog], int | None], loop: _Loop) -> None:
        self._position = position
        self._loop = loop
        self._paces: dict[Connection, Pace] = {}
        self._held: dict[Connection, _Held] = {}
        self._timer: _Timer | None = None
        self.slowed: Counter[str] = Counter()
        """How many requests have been slowed down, by topic."""

    def lag(self, group: str, topic: Topic) -> int:
        """How far a group is behind in a topic."""
        partitions = topic.partitions
        return lag(partitions, lambda index: self._position(group, partitions[index]))

    def is_over(self, topic: Topic) -> bool:
        """Whether producers to this topic have to wait for a group."""
        config = topic.config
        return config.blocks and any(
            self.lag(group, topic) > config.overflow_max_lag for group in config.overflow_groups
        )

    def brake(self, connection: Connection, topics: Sequence[Topic]) -> Brake | None:
        """What slows down a request that wrote to these topics; None if nothing does."""
        over = [topic for topic in topics if self.is_over(topic)]
        if not over:
            self._paces.pop(connection, None)
            return None
        for topic in over:
            self.slowed[topic.name] += 1
        now = self._loop.time()
        pace, verdict = judge(self._paces.get(connection), now)
        self._paces[connection] = pace
        connection.on_close[self] = lambda: self._forget(connection)
        brake = Brake(verdict.throttle_ms, on=verdict.hold_s > 0)
        if verdict.hold_s > 0:
            connection.hold()
            self._held[connection] = _Held(brake, now + verdict.hold_s, over)
            if self._timer is None:
                self._timer = self._loop.call_later(_LOOK_EVERY_S, self._look)
        return brake

    def held(self) -> Counter[str]:
        """How many connections wait now, by topic."""
        return Counter(topic.name for held in self._held.values() for topic in held.topics)

    def close(self) -> None:
        """Answer everyone who waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in list(self._held):
            self._release(connection, caught_up=True)

    def _look(self) -> None:
        """Let those go on whose groups have caught up, and those who have waited long enough."""
        self._timer = None
        now = self._loop.time()
        over = {topic.name: self.is_over(topic) for held in self._held.values() for topic in held.topics}
        for connection, held in list(self._held.items()):
            caught_up = not any(over[topic.name] for topic in held.topics)
            if caught_up or now >= held.until:
                self._release(connection, caught_up=caught_up)
        if self._held and self._timer is None:
            self._timer = self._loop.call_later(_LOOK_EVERY_S, self._look)

    def _release(self, connection: Connection, *, caught_up: bool) -> None:
        held = self._held.pop(connection)
        if caught_up:
            self._paces.pop(connection, None)
        held.brake.release(caught_up=caught_up)
        connection.let_go()

    def _forget(self, connection: Connection) -> None:
        self._paces.pop(connection, None)
        self._held.pop(connection, None)
