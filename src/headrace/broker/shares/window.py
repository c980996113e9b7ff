"""What a share group knows of one partition: runs of offsets, each in one state. Pure; time and settings are given.

::

    start (SPSO)                                     end                     the log's end
      | acknowledged | acquired by m | available, tried | ... |  not looked at yet  |

Everything below ``start`` is settled for good; from ``start`` to ``end`` runs lie side by side without a gap; from
``end`` on all is available and was never tried. Neighbours that say the same are one run, and settled runs at the front
are dropped, so there are as many runs as there are differences, however many records.

An offset goes from *available* to *acquired* (which counts an attempt), and from there to *acknowledged* (accepted),
*archived* (rejected, a gap, or tried too often), or back to *available* (released, its lock timed out, or its member is
gone).
"""

from __future__ import annotations

import bisect
import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from headrace.broker import error_codes

__all__ = [
    "Ack",
    "AckBatch",
    "AckRefused",
    "Acquired",
    "Dead",
    "Kept",
    "Reason",
    "Rules",
    "Run",
    "Span",
    "State",
    "Window",
]

Span = tuple[int, int]
"""First and last offset."""


class State(IntEnum):
    """The state of a run; the numbers are those of the records in ``__share_group_state``."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


class Ack(IntEnum):
    """What a member says of a record, as the protocol numbers it."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Reason(IntEnum):
    """Why a record was given up."""

    REJECTED = 1
    TRIED_TOO_OFTEN = 2


class AckBatch(NamedTuple):
    """Acknowledgements of a range: one type for all, or one for each offset, as bytes."""

    first: int
    last: int
    types: bytes


class Acquired(NamedTuple):
    """Offsets that a member got, and the how-manieth attempt it is."""

    first: int
    last: int
    attempts: int


class Dead(NamedTuple):
    """Offsets that were given up after so many attempts."""

    first: int
    last: int
    attempts: int
    reason: Reason


class Kept(NamedTuple):
    """A run as it is kept on disk."""

    first: int
    last: int
    state: State
    attempts: int


class AckRefused(Exception):
    """Acknowledgements that are not taken, none of them."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Rules:
    """The group's settings, in milliseconds. After each further attempt the back-off doubles, up to its maximum."""

    delivery_limit: int = 5
    lock_ms: int = 30_000
    max_locks: int = 2000
    backoff_ms: int = 0
    backoff_max_ms: int = 60_000

    def pause(self, count: int) -> int:
        """How long a record waits after so many attempts."""
        if not self.backoff_ms:
            return 0
        return min(self.backoff_ms << min(max(count - 1, 0), 40), self.backoff_max_ms)


@dataclass(slots=True)
class Run:
    """Neighbouring offsets of one state. ``until``: the end of the lock, or of the back-off if they are available."""

    first: int
    last: int
    state: State
    count: int = 0
    member: str = ""
    until: float = 0

    def says_the_same(self, other: Run) -> bool:
        """Whether the two may become one."""
        if self.state is not other.state:
            return False
        if self.state in _SETTLED:
            return True
        return self.count == other.count and self.until == other.until and self.member == other.member


_FIRST = operator.attrgetter("first")
_SETTLED: Final = (State.ACKNOWLEDGED, State.ARCHIVED)
_EQUAL_TYPES: Final = re.compile(rb"(.)\1*", re.DOTALL)


class Window:
    """The runs of one partition for one group."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.runs: list[Run] = []

    @classmethod
    def restored(cls, start: int, kept: Iterable[Kept]) -> Window:
        """As it was kept; what lies between what was kept was never tried."""
        window = cls(start)
        for first, last, state, count in kept:
            if last >= window.start:
                window.extend(max(first, window.start) - 1)
                window.runs.append(Run(max(first, window.end), last, State(state), count))
        window._advance()
        return window

    def kept(self) -> list[Kept]:
        """What is to be kept on disk. Acquired offsets are kept as they were before: a crash gives them back."""
        kept: list[Kept] = []
        for run in self.runs:
            state, count = run.state, run.count
            if state is State.ACQUIRED:
                state, count = State.AVAILABLE, count - 1
            if state in _SETTLED:
                count = 0
            if state is State.AVAILABLE and not count:
                continue
            if kept and kept[-1].last == run.first - 1 and kept[-1][2:] == (state, count):
                kept[-1] = kept[-1]._replace(last=run.last)
            else:
                kept.append(Kept(run.first, run.last, state, count))
        return kept

    # What it is ------------------------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """The offset after the last one that was looked at."""
        return self.runs[-1].last + 1 if self.runs else self.start

    @property
    def settled(self) -> int:
        """How many offsets from the start on are settled."""
        return sum(run.last - run.first + 1 for run in self.runs if run.state in _SETTLED)

    @property
    def held(self) -> int:
        """How many offsets members hold."""
        return sum(run.last - run.first + 1 for run in self.runs if run.state is State.ACQUIRED)

    def room(self, rules: Rules) -> int:
        """How many more offsets may be looked at."""
        return max(self.start + rules.max_locks - self.end, 0)

    def available(self, now: float) -> Iterator[Run]:
        """Runs that can be acquired now."""
        return (run for run in self.runs if run.state is State.AVAILABLE and run.until <= now)

    def next_offset(self, rules: Rules, now: float) -> int | None:
        """Where there may be something to acquire; None if there is not."""
        first = next(self.available(now), None)
        if first is not None:
            return first.first
        return self.end if self.room(rules) else None

    def next_moment(self) -> float | None:
        """When a lock or a back-off ends, the earliest; None if there is none."""
        moments = [run.until for run in self.runs if run.until and run.state not in _SETTLED]
        return min(moments, default=None)

    def at(self, first: int, last: int) -> Iterator[Run]:
        """The runs that have a part of this range."""
        index = max(bisect.bisect_right(self.runs, first, key=_FIRST) - 1, 0)
        while index < len(self.runs) and self.runs[index].first <= last:
            if self.runs[index].last >= first:
                yield self.runs[index]
            index += 1

    # Looking at more -------------------------------------------------------------------------------------------

    def extend(self, last: int) -> None:
        """Look at all offsets up to ``last``."""
        end = self.end
        if last >= end:
            self.runs.append(Run(end, last, State.AVAILABLE))
            self._join(len(self.runs) - 1, len(self.runs))

    def skip(self, first: int, last: int) -> bool:
        """There is nothing to deliver here: what nobody has of it is archived. Whether that changed anything."""
        first, last = max(first, self.start), min(last, self.end - 1)
        if first > last:
            return False
        found = [(max(run.first, first), min(run.last, last)) for run in self.at(first, last) if _is_free(run)]
        for one in found:
            self._set(*one, Run(0, 0, State.ARCHIVED))
        self._advance()
        return bool(found)

    def move_start(self, offset: int) -> bool:
        """Everything below is gone from the log, or given up; whether that changed anything."""
        if offset <= self.start:
            return False
        if offset >= self.end:
            self.runs.clear()
        else:
            del self.runs[: self._cut(offset)]
        self.start = offset
        self._advance()
        return True

    # Acquiring -------------------------------------------------------------------------------------------------

    def acquire(
        self, member: str, spans: Sequence[Span], limit: int, rules: Rules, now: float, *, ends: Sequence[int] = ()
    ) -> list[Acquired]:
        """Give a member what is available of these ranges, in order, ``limit`` at most.

        ``ends`` are the last offsets of batches: if there are any, the limit is stretched to the end of a batch. The
        last attempt of a record is made with that record alone, so that one that cannot be processed does not drag
        others along.
        """
        got: list[Acquired] = []
        left, until = limit, now + rules.lock_ms
        for first, last in spans:
            for run in list(self.at(first, last)):
                if left <= 0:
                    return got
                if run.state is not State.AVAILABLE or run.until > now:
                    continue
                begin = max(first, run.first)
                end = min(last, run.last, _stretched(begin + left - 1, ends))
                count = run.count + 1
                if count >= rules.delivery_limit > 2:
                    if got:
                        return got
                    end = begin
                    left = 0
                left -= end - begin + 1
                self._set(begin, end, Run(0, 0, State.ACQUIRED, count, member, until))
                got.append(Acquired(begin, end, count))
        return got

    # Settling --------------------------------------------------------------------------------------------------

    def acknowledge(
        self, member: str, batches: Sequence[AckBatch], rules: Rules, now: float, *, may_renew: bool = True
    ) -> list[Dead]:
        """Take a member's acknowledgements, all or none; what is thereby given up. Raises AckRefused."""
        parts = []
        for batch in batches:
            for first, last, kind in self._typed(batch):
                if kind is Ack.RENEW and not may_renew:
                    raise AckRefused(error_codes.INVALID_RECORD_STATE, "locks of this group cannot be renewed")
                self._ensure_owner(member, first, last)
                parts.append((first, last, kind))
        dead: list[Dead] = []
        for first, last, kind in parts:
            dead += self._settle(first, last, kind, rules, now)
        self._advance()
        return dead

    def release_member(self, member: str, rules: Rules, now: float) -> list[Dead]:
        """A member is gone: others get what it had. What is given up, because it was tried too often."""
        return self._release([run for run in self.runs if _is_held(run) and run.member == member], rules, now)

    def expire(self, rules: Rules, now: float) -> list[Dead]:
        """Locks that timed out: others get the records. What is given up, because it was tried too often."""
        for run in self.runs:
            if run.state is State.AVAILABLE and 0 < run.until <= now:
                run.until = 0
        return self._release([run for run in self.runs if _is_held(run) and run.until <= now], rules, now)

    def _release(self, runs: list[Run], rules: Rules, now: float) -> list[Dead]:
        dead: list[Dead] = []
        for first, last in [(run.first, run.last) for run in runs]:
            dead += self._settle(first, last, Ack.RELEASE, rules, now)
        self._advance()
        return dead

    def _typed(self, batch: AckBatch) -> Iterator[tuple[int, int, Ack]]:
        """The batch in parts of one type each, without what lies below the start: that is settled."""
        if batch.last < self.start:
            return
        if batch.last >= self.end:
            raise AckRefused(error_codes.INVALID_REQUEST, "these offsets were never acquired")
        if len(batch.types) == 1:
            yield max(batch.first, self.start), batch.last, Ack(batch.types[0])
            return
        for part in _EQUAL_TYPES.finditer(batch.types):
            first, last = batch.first + part.start(), batch.first + part.end() - 1
            if last >= self.start:
                yield max(first, self.start), last, Ack(part[0][0])

    def _ensure_owner(self, member: str, first: int, last: int) -> None:
        for run in self.at(first, last):
            if run.state is not State.ACQUIRED:
                raise AckRefused(error_codes.INVALID_RECORD_STATE, f"offset {max(run.first, first)} is not acquired")
            if run.member != member:
                raise AckRefused(error_codes.INVALID_RECORD_STATE, f"another member has offset {max(run.first, first)}")

    def _settle(self, first: int, last: int, kind: Ack, rules: Rules, now: float) -> list[Dead]:
        if kind is Ack.ACCEPT:
            self._set(first, last, Run(0, 0, State.ACKNOWLEDGED))
            return []
        if kind is Ack.GAP:
            self._set(first, last, Run(0, 0, State.ARCHIVED))
            return []
        dead: list[Dead] = []
        for run in list(self.at(first, last)):
            begin, end = max(first, run.first), min(last, run.last)
            if kind is Ack.RENEW:
                new = Run(0, 0, State.ACQUIRED, run.count, run.member, now + rules.lock_ms)
            elif kind is Ack.REJECT or run.count >= rules.delivery_limit:
                reason = Reason.REJECTED if kind is Ack.REJECT else Reason.TRIED_TOO_OFTEN
                dead.append(Dead(begin, end, run.count, reason))
                new = Run(0, 0, State.ARCHIVED)
            else:
                pause = rules.pause(run.count)
                new = Run(0, 0, State.AVAILABLE, run.count, "", now + pause if pause else 0)
            self._set(begin, end, new)
        return dead

    # Runs ------------------------------------------------------------------------------------------------------

    def _cut(self, offset: int) -> int:
        """Make a run begin at this offset; its index."""
        runs = self.runs
        at = bisect.bisect_left(runs, offset, key=_FIRST)
        if at and runs[at - 1].last >= offset:
            old = runs[at - 1]
            runs.insert(at, Run(offset, old.last, old.state, old.count, old.member, old.until))
            old.last = offset - 1
        return at

    def _set(self, first: int, last: int, like: Run) -> None:
        """Make one run of a range."""
        begin = self._cut(first)
        end = self._cut(last + 1)
        like.first, like.last = first, last
        self.runs[begin:end] = [like]
        self._join(begin, begin + 1)

    def _join(self, begin: int, end: int) -> None:
        """Make one run of neighbours that say the same, from the one before ``begin`` to the one at ``end``."""
        runs = self.runs
        for at in range(min(end, len(runs) - 1), max(begin - 1, 0), -1):
            if runs[at - 1].says_the_same(runs[at]):
                runs[at - 1].last = runs[at].last
                del runs[at]

    def _advance(self) -> None:
        """Drop what is settled at the front."""
        runs = self.runs
        settled = 0
        while settled < len(runs) and runs[settled].state in _SETTLED:
            self.start = runs[settled].last + 1
            settled += 1
        del runs[:settled]


def _stretched(offset: int, ends: Sequence[int]) -> int:
    at = bisect.bisect_left(ends, offset)
    return ends[at] if at < len(ends) else offset


def _is_held(run: Run) -> bool:
    return run.state is State.ACQUIRED


def _is_free(run: Run) -> bool:
    return run.state is State.AVAILABLE
