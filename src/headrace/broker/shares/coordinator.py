"""The share coordinator: all share partitions of the node, their log, their locks and their clocks.

Handlers call it. A share partition is made when its group first fetches it; it begins where ``share.auto.offset.reset``
says, and gives nothing away before that is on disk. Everything runs on the event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol
from uuid import UUID

from headrace.broker import error_codes
from headrace.broker.group_configs import GroupConfigs, duration_ms
from headrace.broker.groups.alarms import Timer, Timers
from headrace.broker.groups.coordinator import GroupCoordinator
from headrace.broker.groups.modern_records import GroupType
from headrace.broker.journal import Done
from headrace.broker.refused import Refused
from headrace.broker.shares.dead_letters import DeadLetterOffice
from headrace.broker.shares.journal import STATE_TOPIC, Saver, ShareJournal
from headrace.broker.shares.partition import Mode, SharePartition, Taken, Wish
from headrace.broker.shares.records import ShareChange, ShareKey
from headrace.broker.shares.sessions import ShareSession, ShareSessions
from headrace.broker.shares.window import AckBatch, Dead, Rules
from headrace.clock import Clock
from headrace.errors import HeadraceError, UnknownTopicId
from headrace.log.group_commit import GroupCommit
from headrace.log.partition import PartitionLog
from headrace.log.store import LogStore, Topic
from headrace.settings import BrokerSettings

__all__ = ["Loop", "ShareCoordinator"]

log = logging.getLogger(__name__)

_BY_DURATION = "by_duration:"


class Loop(Timers, Protocol):
    """Calls back soon and later: an event loop, or a test's."""

    def call_soon(self, callback: Callable[[], None], /) -> object:
        """Call when all that happens now has happened."""
        ...


class ShareCoordinator:
    """All that the share requests need; ``load`` it first."""

    def __init__(
        self,
        store: LogStore,
        commit: GroupCommit,
        groups: GroupCoordinator,
        configs: GroupConfigs,
        clock: Clock,
        loop: Loop,
        settings: BrokerSettings,
    ) -> None:
        self.journal = ShareJournal(store, commit, settings.value("share.coordinator.state.topic.segment.bytes"))
        self.sessions = ShareSessions(settings.value("group.share.max.share.sessions"))
        self.saver = Saver(self.journal, loop.call_soon)
        self.dead_letters = DeadLetterOffice(
            store, commit, configs, loop, self.saver.save, settings.value("num.partitions")
        )
        self._store = store
        self._groups = groups
        self._configs = configs
        self._clock = clock
        self._loop = loop
        self._partitions: dict[ShareKey, SharePartition] = {}
        self._modes: dict[str, Mode] = {}
        self._timers: dict[SharePartition, Timer] = {}
        self._closed = False
        configs.listeners.append(self._on_settings)

    # Life ------------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Take up where the log says we were; what belongs to topics that are gone is forgotten."""
        self.journal.load()
        gone = [key for key in self.journal.durable.partitions if self._log_of(key) is None]
        self._forget(gone)
        for key, state in list(self.journal.durable.partitions.items()):
            if state.dead is not None:
                self.dead_letters.recover(self.find(*key))

    def ensure_log(self) -> None:
        """Make ``__share_group_state`` if there is none."""
        self.journal.partition()

    def close(self) -> None:
        """Stop the clocks."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def now(self) -> float:
        """Milliseconds that never go back: what locks are counted in."""
        return self._clock.monotonic() * 1000

    # Partitions ------------------------------------------------------------------------------------------------

    def find(self, group: str, topic_id: bytes, index: int) -> SharePartition:
        """The partition as the group shares it, made if it is new to the group. Refused if there is none."""
        key = ShareKey(group, topic_id, index)
        share = self._partitions.get(key)
        if share is not None and not share.log.deleted:
            return share
        partition = self._log_of(key)
        if partition is None:
            raise self._why_none(key)
        if key in self.journal.damaged:
            raise Refused(error_codes.KAFKA_STORAGE_ERROR, f"what was kept of group {group!r} cannot be read")
        return self._make(key, partition)

    def _make(self, key: ShareKey, partition: PartitionLog) -> SharePartition:
        mode = self.mode(key.group)
        state = self.journal.latest.partitions.get(key)
        start = self._first_offset(key.group, partition) if state is None else 0
        share = SharePartition(key, partition, mode, self._clock, state, start)
        self._partitions[key] = share
        if state is None:
            self.saver.save(share, lambda error: self._on_made(share, error))
        return share

    def _on_made(self, share: SharePartition, error: HeadraceError | None) -> None:
        if error is None:
            share.ready = True
        elif self._partitions.get(share.key) is share:
            del self._partitions[share.key]
            share.gone = True
        share.notify()

    def look(self, key: ShareKey) -> SharePartition | None:
        """The partition as the group shares it; None if it never did. Refused if what was kept cannot be read."""
        if key not in self.journal.durable.partitions or self._log_of(key) is None:
            return None
        return self.find(*key)

    def position(self, group: str, partition: PartitionLog) -> int | None:
        """The offset before which a group has settled everything; None if it does not share the partition."""
        key = ShareKey(group, partition.topic_id.bytes, partition.index)
        share = None if key in self.journal.damaged else self.look(key)
        return None if share is None else share.window.start

    def groups(self) -> list[str]:
        """The groups that share something."""
        return list(dict.fromkeys(key.group for key in self.journal.durable.partitions))

    def in_flight(self, group: str) -> int:
        """How many records of what a group shares its consumers hold at the moment."""
        return sum(share.window.held for share in self._partitions.values() if share.key.group == group)

    def topics(self, group: str) -> list[Topic]:
        """The topics that a group shares, or that a member of it may."""
        ids = {key.topic_id for key in self.journal.durable.partitions if key.group == group}
        ids |= {topic_id.bytes for topic_id in self._assigned(group)}
        return [topic for topic in self._store.topics.values() if topic.id.bytes in ids]

    def indexes(self, group: str, topic_id: bytes) -> list[int]:
        """The partitions of a topic that a group shares."""
        keys = self.journal.durable.partitions
        known = {key.partition for key in keys if key.group == group and key.topic_id == topic_id}
        return sorted(known | self._assigned(group).get(UUID(bytes=topic_id), set()))

    def _assigned(self, group: str) -> dict[UUID, set[int]]:
        """What members of the group may fetch."""
        state = self._groups.describe_modern(group)
        assigned: dict[UUID, set[int]] = {}
        if state is not None and state.type is GroupType.SHARE:
            for member in state.subscriptions:
                for topic_id, partitions in state.current_of(member).assigned.items():
                    assigned.setdefault(topic_id, set()).update(partitions)
        return assigned

    def mode(self, group: str) -> Mode:
        """How a group shares, by its settings."""
        mode = self._modes.get(group)
        if mode is None:
            mode = self._modes[group] = _mode(self._configs, group)
        return mode

    def _on_settings(self, group: str) -> None:
        self._modes.pop(group, None)
        for share in [share for share in self._partitions.values() if share.key.group == group]:
            share.mode = self.mode(group)
            self.dead_letters.readdress(share)
            share.notify()

    def _log_of(self, key: ShareKey) -> PartitionLog | None:
        try:
            topic = self._store.topic_by_id(key.topic_id)
        except UnknownTopicId:
            return None
        return topic.partitions[key.partition] if 0 <= key.partition < len(topic.partitions) else None

    def _why_none(self, key: ShareKey) -> Refused:
        try:
            topic = self._store.topic_by_id(key.topic_id)
        except UnknownTopicId as error:
            return Refused(error_codes.UNKNOWN_TOPIC_ID, str(error))
        return Refused(error_codes.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name!r} has no partition {key.partition}")

    def _first_offset(self, group: str, partition: PartitionLog) -> int:
        reset: str = self._configs.value(group, "share.auto.offset.reset")
        if reset == "earliest":
            return partition.log_start
        if reset.startswith(_BY_DURATION):
            since = self._clock.now_ms() - (duration_ms(reset.removeprefix(_BY_DURATION)) or 0)
            found = partition.offset_for_timestamp(since)
            if found is not None:
                return found[0]
        return partition.high_watermark

    # What members do -------------------------------------------------------------------------------------------

    def take(self, share: SharePartition, session: ShareSession, wish: Wish) -> Taken | None:
        """Give a member what it may have of a partition; None if there is nothing."""
        now = self.now()
        taken = share.take(session.member, wish, now)
        if taken is not None:
            session.held.add(share)
            self._watch(share, now + share.mode.rules.lock_ms)
        return taken

    def acknowledge(self, share: SharePartition, member: str, batches: Sequence[AckBatch], done: Done) -> None:
        """Take a member's acknowledgements; ``done`` is called when they are durable. Raises AckRefused."""
        share.follow_log_start()
        dead = share.acknowledge(member, batches, self.now())
        self._changed(share, dead, done)

    def drop(self, session: ShareSession) -> None:
        """The connection of a session is lost."""
        if self.sessions.drop(session):
            self.release(session)

    def release(self, session: ShareSession) -> None:
        """A session has ended: its member's records are for others now."""
        held, session.held = session.held, set()
        for share in held:
            if not share.gone:
                self._changed(share, share.window.release_member(session.member, share.mode.rules, self.now()))

    def _changed(self, share: SharePartition, dead: list[Dead], done: Done | None = None) -> None:
        """Keep what has changed, and look whether others can go on."""
        self.saver.save(share, done)
        self._bury(share, dead)
        if share.mode.rules.backoff_ms:
            moment = share.window.next_moment()
            if moment is not None:
                self._watch(share, moment)
        share.notify()

    def _bury(self, share: SharePartition, dead: list[Dead]) -> None:
        if dead:
            self.dead_letters.give_up(share, dead)
            self.dead_letters.deliver_once_kept(share)

    # Clocks ----------------------------------------------------------------------------------------------------

    def _watch(self, share: SharePartition, moment: float) -> None:
        """Look at a partition's locks and back-offs at this moment at the latest."""
        if self._closed or (share.timer_at is not None and share.timer_at <= moment):
            return
        timer = self._timers.pop(share, None)
        if timer is not None:
            timer.cancel()
        share.timer_at = moment
        delay = max(moment - self.now(), 0) / 1000
        self._timers[share] = self._loop.call_later(delay, lambda: self._on_time(share))

    def _on_time(self, share: SharePartition) -> None:
        self._timers.pop(share, None)
        share.timer_at = None
        if share.gone or self._closed:
            return
        now = self.now()
        before = share.window.kept()
        dead = share.window.expire(share.mode.rules, now)
        self._bury(share, dead)
        if share.window.kept() != before:
            self.saver.save(share)
        share.notify()
        moment = share.window.next_moment()
        if moment is not None:
            self._watch(share, max(moment, now + 1))

    # What operators do -----------------------------------------------------------------------------------------

    def ensure_may_alter(self, group: str) -> None:
        """Refuse to move a group that has members, or that is of another kind."""
        state = self._groups.modern(group)
        if (state is None and self._groups.describe(group)) or (state and state.type is not GroupType.SHARE):
            raise Refused(error_codes.GROUP_ID_NOT_FOUND, f"group {group!r} is not a share group")
        if state.subscriptions if state else self.sessions.of_group(group):
            raise Refused(error_codes.NON_EMPTY_GROUP, f"group {group!r} has members")

    async def reset(self, group: str, topic_id: bytes, index: int, start: int) -> None:
        """Begin a partition anew from an offset (below 0: where its settings say); returns when that is durable."""
        share = self.find(group, topic_id, index)
        if start < 0:
            start = self._first_offset(group, share.log)
        share.reset(min(max(start, share.log.log_start), share.log.high_watermark))
        share.notify()
        await self.saver.saved(share)

    async def forget(self, group: str, topic_id: bytes | None = None) -> None:
        """Forget what a group shares, of a topic or at all; returns when that is durable."""
        keys = [key for key in self.journal.latest.partitions if key.group == group]
        if topic_id is not None:
            keys = [key for key in keys if key.topic_id == topic_id]
        self._forget(keys)
        await self.journal.settle()

    def on_topic_deleted(self, topic: Topic) -> None:
        """A topic is gone, and with it all that groups had of it; if it is the state itself, all is gone."""
        if topic.name != STATE_TOPIC:
            self._forget([key for key in self.journal.latest.partitions if key.topic_id == topic.id.bytes])
            return
        for share in list(self._partitions.values()):
            share.gone = True
            share.notify()
        self._partitions.clear()
        self.journal.reset()

    def _forget(self, keys: Sequence[ShareKey]) -> None:
        for key in keys:
            share = self._partitions.pop(key, None)
            if share is not None:
                share.gone = True
                share.notify()
        if keys:
            self.journal.write([ShareChange(key, None) for key in keys], _log_failure)


def _log_failure(error: HeadraceError | None) -> None:
    if error is not None:
        log.error("what is gone could not be forgotten: %s", error)


def _mode(configs: GroupConfigs, group: str) -> Mode:
    rules = Rules(
        delivery_limit=configs.value(group, "share.delivery.count.limit"),
        lock_ms=configs.value(group, "share.record.lock.duration.ms"),
        max_locks=configs.value(group, "share.partition.max.record.locks"),
        backoff_ms=configs.value(group, "headrace.backoff.ms"),
        backoff_max_ms=configs.value(group, "headrace.backoff.max.ms"),
    )
    return Mode(
        rules,
        committed=configs.value(group, "share.isolation.level") == "read_committed",
        may_renew=configs.value(group, "share.renew.acknowledge.enable"),
        key_ordered=configs.value(group, "headrace.key.ordered"),
    )
