"""What share groups have settled, as the topic ``__share_group_state`` says: the same on Headrace and on Apache Kafka.

Headrace writes whole snapshots; Kafka also writes updates of them (key type 1), which are laid over what was known::

    update  i16 0, snapshot epoch i32, leader epoch i32, start offset i64 (-1: as before), compact array of (first i64,
            last i64, state i8, delivery count i16, tags), tags: 0 number of settled offsets i32

Which records a consumer holds at the moment is not kept anywhere but in the broker's memory.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.broker.primitives import Cursor
from headrace.broker.shares.records import ShareKey, ShareState, decode, decode_key
from headrace.broker.shares.window import Kept, State
from headrace.errors import InvalidRecord
from headrace.operations.cluster import Cluster, Partition
from headrace.operations.ranges import messages_in

__all__ = ["STATE_TOPIC", "Shared", "laid_over", "shared_by"]

STATE_TOPIC = "__share_group_state"

_UPDATE = struct.Struct(">hiiq")
_RUN = struct.Struct(">qqbh")
_UPDATE_KEY = b"\0\1"
_SETTLED = (State.ACKNOWLEDGED, State.ARCHIVED)


@dataclass(frozen=True, slots=True)
class Shared:
    """A partition as a group shares it. ``end`` is where the partition ends now."""

    group: str
    topic: str
    partition: int
    start: int
    end: int
    runs: tuple[Kept, ...]
    waiting_dead: int = 0
    """Records that wait to be copied to the dead-letter topic."""

    @property
    def lag(self) -> int:
        """Records that are not settled."""
        settled = sum(run.last - run.first + 1 for run in self.runs if run.state in _SETTLED)
        return max(0, self.end - self.start - settled)

    @property
    def retried(self) -> int:
        """Records that were tried, and are to be tried again."""
        return sum(run.last - run.first + 1 for run in self.runs if run.state is State.AVAILABLE and run.attempts)

    def state_of(self, offset: int) -> tuple[str, int]:
        """A record's state and its attempts, as far as they are kept."""
        for run in self.runs:
            if run.first <= offset <= run.last:
                return run.state.name.lower(), run.attempts
        return State.AVAILABLE.name.lower(), 0


def shared_by(cluster: Cluster, group: str | None = None) -> list[Shared]:
    """What groups share, of one group or of all."""
    names = cluster.topic_names()
    if STATE_TOPIC not in names:
        return []
    states = {key: state for key, state in _states(cluster).items() if group in (None, key.group)}
    topics = {_id_of(one): one.name for one in cluster.describe([name for name in names if name != STATE_TOPIC])}
    places = {key: (topics[key.topic_id], key.partition) for key in states if key.topic_id in topics}
    bounds = cluster.offsets(dict.fromkeys(places.values()))
    found = []
    for key, place in sorted(places.items(), key=lambda item: (item[0].group, item[1])):
        state, bound = states[key], bounds[place]
        if state.start < 0:
            continue
        dead = sum(run.last - run.first + 1 for run in state.dead.runs) if state.dead else 0
        start = max(state.start, bound.start)
        found.append(Shared(key.group, *place, start, bound.end, _from(state.runs, start), dead))
    return found


def _states(cluster: Cluster) -> dict[ShareKey, ShareState]:
    places: list[Partition] = cluster.partitions(STATE_TOPIC)
    bounds = cluster.offsets(places)
    states: dict[ShareKey, ShareState] = {}
    for message in messages_in(cluster, {place: (bounds[place].start, bounds[place].end) for place in places}):
        key, value = message.key() or b"", message.value()
        if key.startswith(_UPDATE_KEY):
            share = decode_key(b"\0\0" + key[2:])
            if share in states and value is not None:
                states[share] = _updated(states[share], value)
            continue
        change = decode(key, value)
        if change is not None and change.value is not None:
            states[change.key] = change.value
        elif change is not None:
            states.pop(change.key, None)
    return states


def _updated(state: ShareState, value: bytes) -> ShareState:
    cursor = Cursor(memoryview(value))
    version, _, leader_epoch, start = _UPDATE.unpack_from(cursor.view, cursor.take(_UPDATE.size))
    if version != 0:
        raise InvalidRecord(f"{STATE_TOPIC} has records of version {version}, which this command does not know.")
    runs = state.runs
    for _ in range(cursor.varint() - 1):
        first, last, kind, attempts = _RUN.unpack_from(cursor.view, cursor.take(_RUN.size))
        cursor.skip_tags()
        runs = laid_over(runs, Kept(first, last, State(kind), attempts))
    start = state.start if start < 0 else start
    return replace(state, leader_epoch=leader_epoch, start=start, runs=_from(runs, start))


def laid_over(runs: Sequence[Kept], new: Kept) -> tuple[Kept, ...]:
    """The runs with a newer one in place of what they said of its offsets."""
    rest = [run for run in runs if run.last < new.first or run.first > new.last]
    for run in runs:
        if run.last < new.first or run.first > new.last:
            continue
        if run.first < new.first:
            rest.append(run._replace(last=new.first - 1))
        if run.last > new.last:
            rest.append(run._replace(first=new.last + 1))
    return tuple(sorted([*rest, new]))


def _from(runs: Sequence[Kept], start: int) -> tuple[Kept, ...]:
    return tuple(run._replace(first=max(run.first, start)) for run in runs if run.last >= start)


def _id_of(topic: Any) -> bytes:
    found = topic.topic_id
    mask = (1 << 64) - 1
    return struct.pack(">QQ", found.get_most_significant_bits() & mask, found.get_least_significant_bits() & mask)
