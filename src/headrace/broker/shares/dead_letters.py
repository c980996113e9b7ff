"""Dead letters: records that a group gave up are copied to its dead-letter topic, each exactly once.

First the state says what is to be copied (on disk before anyone is told), then the copies are written, and when they
are on disk the state says that nothing is left. After a crash in between the dead-letter topic is searched, from where
it ended when the first of them was given up, so nothing is copied twice. A topic that cannot be written to holds up
nobody: what is to be copied waits outside the window, is tried again, and the operator is told.

A copy has the original's key, value and headers, byte for byte, and then headers under the names that Kafka 4.4 uses.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from headrace import _kernel
from headrace.broker.group_configs import GroupConfigs
from headrace.broker.groups.alarms import Timers
from headrace.broker.journal import Done
from headrace.broker.shares.partition import SharePartition
from headrace.broker.shares.records import DeadLetters
from headrace.broker.shares.window import Dead, Reason
from headrace.errors import HeadraceError, StorageError
from headrace.log.group_commit import GroupCommit
from headrace.log.partition import Origin, PartitionLog
from headrace.log.store import LogStore

__all__ = ["HEADER_PREFIX", "DeadLetterOffice"]

log = logging.getLogger(__name__)

HEADER_PREFIX: Final = "__dlq.errors."
_TOPIC, _PARTITION, _OFFSET, _GROUP, _ATTEMPTS, _REASON, _TIMESTAMP = (
    f"{HEADER_PREFIX}{name}".encode()
    for name in ("topic", "partition", "offset", "group", "delivery.count", "message", "timestamp")
)
_REASONS: Final = {Reason.REJECTED: b"rejected by a consumer", Reason.TRIED_TOO_OFTEN: b"delivered too often"}
_NO_TOPIC_ID: Final = bytes(16)
_READ_BYTES: Final = 1 << 20
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 60.0


class DeadLetterOffice:
    """Copies what groups give up. ``save`` keeps the state of a share partition."""

    def __init__(
        self,
        store: LogStore,
        commit: GroupCommit,
        configs: GroupConfigs,
        timers: Timers,
        save: Callable[[SharePartition, Done | None], None],
        partitions: int,
    ) -> None:
        self._store = store
        self._commit = commit
        self._configs = configs
        self._timers = timers
        self._save = save
        self._partitions = partitions
        self.copied: Counter[str] = Counter()
        """Records by group, since the start."""
        self._writing: set[SharePartition] = set()
        self._pauses: dict[SharePartition, float] = {}

    # What comes in ---------------------------------------------------------------------------------------------

    def give_up(self, share: SharePartition, dead: Sequence[Dead]) -> None:
        """Note what is to be copied, if the group has a topic for it; the caller keeps the state, then ``deliver``s."""
        topic = self._configs.value(share.key.group, "headrace.dead.letter.topic")
        if share.dead is not None:
            share.dead = share.dead._replace(runs=(*share.dead.runs, *dead))
        elif topic == share.log.topic:
            log.error("group %r: %s cannot be its own dead-letter topic; records are dropped", share.key.group, topic)
        elif topic:
            share.dead = self._addressed(share, topic, dead)

    def recover(self, share: SharePartition) -> None:
        """After a start: what is in the topic already need not be copied, once it is sure to stay there."""
        waiting = share.dead
        target = None if waiting is None else self._existing_target(waiting)
        if waiting is None or target is None:
            self.readdress(share)
            return
        share.dead = waiting._replace(since=min(waiting.since, target.end_offset))
        there = self._found(share, waiting, target)
        self._writing.add(share)

        def synced(error: HeadraceError | None) -> None:
            self._writing.discard(share)
            if error is None and share.dead is not None:
                share.dead = _without(share.dead, there)
                self._save(share, None)
            self.readdress(share)

        self._commit.when_durable(target, target.end_offset, synced)

    def readdress(self, share: SharePartition) -> None:
        """The group's topic may be another one now: then what waits goes there."""
        waiting = share.dead
        if waiting is None or share in self._writing:
            return
        topic = self._configs.value(share.key.group, "headrace.dead.letter.topic")
        if topic and topic not in (waiting.topic, share.log.topic):
            share.dead = self._addressed(share, topic, waiting.runs)
        self.deliver_once_kept(share)

    def _addressed(self, share: SharePartition, topic: str, dead: Sequence[Dead]) -> DeadLetters:
        """Where the copies will go, and from where on to look for them after a crash."""
        found = self._store.topics.get(topic)
        if found is None:
            return DeadLetters(topic, _NO_TOPIC_ID, share.log.index % self._partitions, 0, tuple(dead))
        index = share.log.index % len(found.partitions)
        return DeadLetters(topic, found.id.bytes, index, found.partitions[index].end_offset, tuple(dead))

    def _existing_target(self, waiting: DeadLetters) -> PartitionLog | None:
        topic = self._store.topics.get(waiting.topic)
        return (
            None if topic is None or waiting.partition >= len(topic.partitions) else topic.partitions[waiting.partition]
        )

    def _found(self, share: SharePartition, waiting: DeadLetters, target: PartitionLog) -> set[int]:
        """The offsets whose copies are there."""
        since = waiting.since if target.topic_id.bytes == waiting.topic_id else 0
        mine = {
            _TOPIC.decode(): share.log.topic.encode(),
            _PARTITION.decode(): b"%d" % share.log.index,
            _GROUP.decode(): share.key.group.encode(),
        }
        found = set()
        for header, records in target.replay_batches(since):
            for *_, headers in [] if header.is_control else records:
                said = dict(headers)
                if mine.items() <= said.items():
                    found.add(int(said.get(_OFFSET.decode()) or b"-1"))
        return found

    # What goes out ---------------------------------------------------------------------------------------------

    def deliver_once_kept(self, share: SharePartition) -> None:
        """Copy what waits as soon as it is on disk that it does."""

        def kept(error: HeadraceError | None) -> None:
            if error is None:
                self.deliver(share)

        self._save(share, kept)

    def deliver(self, share: SharePartition) -> None:
        """Copy what waits, piece by piece; it must be on disk that it waits."""
        if share.dead is None or share in self._writing or share.gone:
            return
        self._writing.add(share)
        try:
            target = self._target(share.dead)
            batch, taken = self._copies(share, share.dead.runs)
            if not batch:
                self._delivered(share, taken, None)
                return
            info = target.append(batch, acks_all=True, origin=Origin.COORDINATOR)
            self.copied[share.key.group] += info.last_offset - info.base_offset + 1
        except HeadraceError as error:
            self._writing.discard(share)
            self._try_later(share, error)
            return
        self._commit.when_durable(target, info.last_offset + 1, lambda error: self._delivered(share, taken, error))

    def _target(self, waiting: DeadLetters) -> PartitionLog:
        topic = self._store.topics.get(waiting.topic)
        if topic is None:
            topic = self._store.create_topic(waiting.topic, self._partitions, {"retention.ms": "-1"})
        return topic.partitions[waiting.partition % len(topic.partitions)]

    def _copies(self, share: SharePartition, runs: Sequence[Dead]) -> tuple[bytearray, int]:
        """A batch of copies of the first records that wait (empty if they are gone), and of how many offsets."""
        first, end, start = runs[0].first, runs[0].last + 1, share.log.log_start
        if not start <= first < share.log.high_watermark:
            log.error("%r: records from offset %d on were deleted before they could be copied", share, first)
            return bytearray(), (min(start, end) if first < start else end) - first
        result = share.log.read(first, _READ_BYTES)
        picks, taken = [], 0
        for run in runs:
            if not first <= run.first < result.next_offset:
                break
            last = min(run.last, result.next_offset - 1)
            picks.append((run.first, last, self._headers(share, run)))
            taken += last - run.first + 1
            if last < run.last:
                break
        try:
            batch, _ = _kernel.copy_records(
                result.data,
                picks,
                now_ms=self._store.clock.now_ms(),
                offset_header=_OFFSET,
                timestamp_header=_TIMESTAMP,
            )
        except _kernel.BadBatch as bad:
            raise StorageError(f"records of {share.log.name} cannot be read: {bad}") from None
        return batch, taken

    def _headers(self, share: SharePartition, run: Dead) -> list[tuple[bytes, bytes]]:
        return [
            (_TOPIC, share.log.topic.encode()),
            (_PARTITION, b"%d" % share.log.index),
            (_GROUP, share.key.group.encode()),
            (_ATTEMPTS, b"%d" % run.attempts),
            (_REASON, _REASONS[run.reason]),
        ]

    def _delivered(self, share: SharePartition, taken: int, error: HeadraceError | None) -> None:
        self._writing.discard(share)
        if error is not None:
            self._try_later(share, error)
            return
        if share.dead is not None:
            share.dead = _after(share.dead, taken)
            self._pauses.pop(share, None)
            self._save(share, None)
            self.deliver(share)

    def _try_later(self, share: SharePartition, error: HeadraceError) -> None:
        pause = self._pauses.get(share)
        if pause is None:
            log.error("%r: dead letters wait, the topic cannot be written to: %s", share, error)
        self._pauses[share] = pause = min((pause or _FIRST_PAUSE / 2) * 2, _LONGEST_PAUSE)
        self._timers.call_later(pause, lambda: self.deliver(share))


def _after(waiting: DeadLetters, taken: int) -> DeadLetters | None:
    """What is left when so many offsets from the front are done."""
    runs = list(waiting.runs)
    while runs and taken:
        size = runs[0].last - runs[0].first + 1
        if size > taken:
            runs[0] = runs[0]._replace(first=runs[0].first + taken)
            break
        taken -= size
        del runs[0]
    return waiting._replace(runs=tuple(runs)) if runs else None


def _without(waiting: DeadLetters, offsets: Iterable[int]) -> DeadLetters | None:
    """What is left without these."""
    there = set(offsets)
    runs = [
        run._replace(first=offset, last=offset)
        for run in waiting.runs
        for offset in range(run.first, run.last + 1)
        if offset not in there
    ]
    return waiting._replace(runs=tuple(runs)) if runs else None
