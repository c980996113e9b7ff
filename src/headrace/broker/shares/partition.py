"""One partition as one group shares it: its window over the log, what members take from it and say of it."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace import _kernel
from headrace.broker.shares.batches import Batches, split
from headrace.broker.shares.records import DeadLetters, ShareChange, ShareKey, ShareState
from headrace.broker.shares.window import AckBatch, Acquired, Dead, Rules, Span, State, Window
from headrace.log.batch import BatchHeader

if TYPE_CHECKING:
    from headrace.clock import Clock
    from headrace.log.partition import PartitionLog

__all__ = ["Mode", "SharePartition", "Taken", "Wish"]

_LOOKS: Final = 256
_LEAST_BYTES: Final = 64 << 10
_HASH_BYTES: Final = 8
_HASHES_BEHIND: Final = 4096


class Mode(NamedTuple):
    """How a group shares: the rules of its window, and what else its settings say."""

    rules: Rules = Rules()
    committed: bool = False
    may_renew: bool = True
    key_ordered: bool = False


class Wish(NamedTuple):
    """What a member asks for. ``strict``: no record more, even if that cuts a batch."""

    records: int
    max_bytes: int
    min_one: bool = True
    strict: bool = False
    batch_size: int = 0


class Taken(NamedTuple):
    """Bytes of whole batches, and which of their offsets the member has now."""

    data: list[memoryview]
    acquired: list[Acquired]
    records: int

    @property
    def size(self) -> int:
        """Bytes of batches."""
        return sum(map(len, self.data))


class SharePartition:
    """``mode`` is replaced when the group's settings change. ``ready`` once its beginning is on disk."""

    def __init__(
        self, key: ShareKey, log: PartitionLog, mode: Mode, clock: Clock, state: ShareState | None, start: int
    ) -> None:
        self.key = key
        self.log = log
        self.mode = mode
        self.ready = state is not None
        self.gone = False
        self.listeners: set[Callable[[], None]] = set()
        self.dead: DeadLetters | None = state.dead if state else None
        self.window = Window(start) if state is None else _restored(state, log)
        self.state_epoch = state.state_epoch if state else 0
        self.timer_at: float | None = None
        self._clock = clock
        self._epoch = state.epoch if state else 0
        self._created_ms = state.created_ms if state else clock.now_ms()
        self._record_bytes = 256.0
        self._hashes = bytearray()
        self._hashed_from = self._hashed_to = -1

    def __repr__(self) -> str:
        return f"<SharePartition {self.key.group} {self.log.name} {self.window.start}..{self.window.end}>"

    def change(self) -> ShareChange:
        """How it is now, as it is kept."""
        if self.gone:
            return ShareChange(self.key, None)
        self._epoch += 1
        window = self.window
        state = ShareState(
            self._epoch,
            self.state_epoch,
            self.log.leader_epoch,
            window.start,
            self._created_ms,
            self._clock.now_ms(),
            tuple(window.kept()),
            window.settled,
            self.dead,
        )
        return ShareChange(self.key, state)

    def notify(self) -> None:
        """Tell those who wait that there may be something for them."""
        for listener in tuple(self.listeners):
            listener()

    @property
    def lag(self) -> int:
        """How many records are not settled."""
        return max(self.log.high_watermark - self.window.start - self.window.settled, 0)

    def reset(self, start: int) -> None:
        """Begin anew from an offset, as an operator wants it."""
        self.window = Window(start)
        self.state_epoch += 1
        self._forget_hashes()

    def follow_log_start(self) -> None:
        """What is gone from the log is nobody's any more."""
        self.window.move_start(self.log.log_start)

    # Taking ----------------------------------------------------------------------------------------------------

    def has_work(self, now: float) -> int:
        """Where a member may find something, or -1. It may turn out that there is nothing to deliver."""
        if not self.ready or self.gone or self.log.deleted:
            return -1
        self.follow_log_start()
        offset = self.window.next_offset(self.mode.rules, now)
        return -1 if offset is None or offset >= self.log.read_limit(self.mode.committed) else offset

    def take(self, member: str, wish: Wish, now: float) -> Taken | None:
        """Give a member what it may have; None if there is nothing. Raises if the log cannot be read."""
        for _ in range(_LOOKS):
            offset = self.has_work(now)
            if offset < 0:
                return None
            spans: list[Span] | None = None
            if self.mode.key_ordered:
                spans = self._in_order(wish.records, now)
                offset = spans[0][0] if spans else self.window.end
                if not spans and not self._may_look_at(offset):
                    return None
            batches = self._read(offset, wish)
            if batches is None:
                return None
            last = self._look(batches, offset, wish)
            if spans is None:
                spans = batches.spans
            acquired = self._acquire(member, batches, _clipped(spans, offset, last), wish, now)
            if acquired:
                count = sum(one.last - one.first + 1 for one in acquired)
                return Taken(batches.holding(acquired), split(acquired, batches.ends, wish.batch_size), count)
        return None

    def _read(self, offset: int, wish: Wish) -> Batches | None:
        """About as much as was asked for."""
        guess = max(int(wish.records * self._record_bytes * 1.25), _LEAST_BYTES)
        result = self.log.read(offset, min(wish.max_bytes, guess), committed=self.mode.committed, min_one=wish.min_one)
        if not result.data:
            return None
        batches = Batches.of(result)
        if batches.records:
            self._record_bytes += (len(batches.data) / batches.records - self._record_bytes) / 4
        return batches

    def _acquire(self, member: str, batches: Batches, spans: list[Span], wish: Wish, now: float) -> list[Acquired]:
        ends = () if wish.strict or self.mode.key_ordered else batches.ends
        return self.window.acquire(member, spans, wish.records, self.mode.rules, now, ends=ends)

    def _may_look_at(self, offset: int) -> bool:
        return bool(self.window.room(self.mode.rules)) and offset < self.log.read_limit(self.mode.committed)

    def _look(self, batches: Batches, offset: int, wish: Wish) -> int:
        """Take what was read into the window, as far as needed and allowed; the last offset that was looked at."""
        window, rules = self.window, self.mode.rules
        end, last = window.end, batches.ends[-1]
        room = window.room(rules)
        limit = end - 1 + (room if self.mode.key_ordered else min(room, wish.records))
        if last > limit:
            last = limit if wish.strict or limit < end else batches.ends[bisect.bisect_left(batches.ends, limit)]
        window.extend(last)
        for gap in batches.gaps(offset, last):
            window.skip(*gap)
        return last

    # Order of keys ---------------------------------------------------------------------------------------------

    def _in_order(self, limit: int, now: float) -> list[Span]:
        """The offsets of the window that can be handed out without changing the order of any key."""
        self._hash_window()
        unsettled = [
            (run.first, run.last, run.state is State.AVAILABLE and run.until <= now)
            for run in self.window.runs
            if run.state in (State.AVAILABLE, State.ACQUIRED)
        ]
        return _kernel.first_of_keys(self._hashes, self._hashed_from, unsettled, limit)

    def _hash_window(self) -> None:
        """Know the hashes of all keys in the window."""
        start, end = self.window.start, self.window.end
        if not self._hashed_from <= start <= self._hashed_to:
            self._hashed_from = self._hashed_to = start
            self._hashes.clear()
        while self._hashed_to < end:
            data = self.log.read(self._hashed_to, _LEAST_BYTES, committed=self.mode.committed).data
            if not data:
                return
            (*_, header) = _kernel.scan(data, crc=False)[0]
            to = min(end, BatchHeader._make(header).next_offset)
            self._hashes += _kernel.key_hashes(data, self._hashed_to, to)
            self._hashed_to = to
        if start - self._hashed_from > _HASHES_BEHIND:
            del self._hashes[: (start - self._hashed_from) * _HASH_BYTES]
            self._hashed_from = start

    def _forget_hashes(self) -> None:
        self._hashes.clear()
        self._hashed_from = self._hashed_to = -1

    # Saying ----------------------------------------------------------------------------------------------------

    def acknowledge(self, member: str, batches: Sequence[AckBatch], now: float) -> list[Dead]:
        """Take a member's acknowledgements; what is thereby given up. Raises AckRefused."""
        return self.window.acknowledge(member, batches, self.mode.rules, now, may_renew=self.mode.may_renew)


def _restored(state: ShareState, log: PartitionLog) -> Window:
    """The window as it was kept; what the log lost in a crash of the machine will be written anew."""
    end = log.end_offset
    if state.start >= end:
        return Window(min(state.start, end))
    return Window.restored(
        state.start, [run._replace(last=min(run.last, end - 1)) for run in state.runs if run.first < end]
    )


def _clipped(spans: Sequence[Span], first: int, last: int) -> list[Span]:
    return [(max(begin, first), min(end, last)) for begin, end in spans if begin <= last and end >= first]
