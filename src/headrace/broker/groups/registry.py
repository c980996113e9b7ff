"""All groups of the node: where they are found, how their changes get to the log, and when they are woken.

Classic groups are objects that live as long as they are in use (``group.py``); of consumer groups and share groups
there is nothing but the fold of the log and their deadlines.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from uuid import uuid4

from headrace.broker.groups.alarms import Alarms, Timers
from headrace.broker.groups.codes import Code
from headrace.broker.groups.deadlines import Deadlines
from headrace.broker.groups.group import ClassicGroup
from headrace.broker.groups.journal import Journal
from headrace.broker.groups.messages import Answer, Effect, Phase, Store
from headrace.broker.groups.modern_group import ModernSettings
from headrace.broker.groups.modern_records import GroupType
from headrace.broker.groups.modern_state import ModernState
from headrace.broker.groups.records import Change, GroupChange, GroupMetadata, OffsetChange
from headrace.broker.groups.settings import GroupSettings
from headrace.broker.groups.store_topics import StoreTopics
from headrace.clock import Clock
from headrace.errors import HeadraceError, InvalidRequest, StorageError, UnknownTopic
from headrace.log.group_commit import GroupCommit
from headrace.log.store import LogStore

__all__ = ["DAMAGED", "GroupRegistry", "SettingsOf", "code_of", "fits"]

log = logging.getLogger(__name__)

SettingsOf = Callable[[GroupType, str], ModernSettings]

DAMAGED = Code.UNKNOWN_SERVER_ERROR
"""What is answered about a group with a record that cannot be read: clients report it, and do not try for ever."""

_MAX_NAME = 0x7FFF


class GroupRegistry:
    """Groups by id, and what is done with all kinds of them."""

    def __init__(
        self,
        store: LogStore,
        commit: GroupCommit,
        clock: Clock,
        timers: Timers,
        settings: GroupSettings | None = None,
        new_id: Callable[[], str] = lambda: str(uuid4()),
        settings_of: SettingsOf = lambda group_type, group_id: ModernSettings(),
    ) -> None:
        self.settings = settings or GroupSettings()
        self.journal = Journal(store, commit, self.settings)
        self.topics = StoreTopics(store)
        self._store = store
        self._clock = clock
        self._timers = timers
        self._new_id = new_id
        self._settings_of = settings_of
        self._groups: dict[str, ClassicGroup] = {}
        self._deadlines: dict[str, Deadlines] = {}
        self._alarms = Alarms(clock, timers, self._wake)
        self._closed = False
        self.rebalances = 0
        """How many generations and targets groups have agreed on."""

    # --- finding ---

    def is_damaged(self, group_id: str) -> bool:
        """Whether a record of this group cannot be read, so that nobody knows its state."""
        return group_id in self.journal.damaged

    def modern(self, group_id: str) -> ModernState | None:
        """A consumer group or share group, with all that was appended; only to look at."""
        return self.journal.latest.modern.get(group_id)

    def _find(self, group_id: str) -> ClassicGroup | None:
        group = self._groups.get(group_id)
        if group is None:
            metadata = self.journal.latest.groups.get(group_id)
            if metadata is None:
                return None
            group = self._groups[group_id] = self._new_group(group_id, metadata)
            self._watch(group)
        return group

    def _new_group(self, group_id: str, metadata: GroupMetadata | None) -> ClassicGroup:
        return ClassicGroup(group_id, self.settings, self._clock, self._new_id, metadata)

    def _removal(self, group_id: str) -> list[Change]:
        """The changes that remove a group of any kind, and its offsets."""
        latest = self.journal.latest
        changes: list[Change] = [OffsetChange(group_id, *place, None) for place in latest.offsets.get(group_id, {})]
        if group_id in latest.groups:
            changes.append(GroupChange(group_id, None))
        if group_id in latest.modern:
            changes += latest.modern[group_id].removal(group_id)
        return changes

    def _drop(self, group: ClassicGroup, code: Code) -> None:
        """Forget a classic group's volatile side."""
        self._groups.pop(group.group_id, None)
        self._alarms.forget(group.group_id)
        self._carry_out(group, group.close(code))

    def _drop_deadlines(self, group_id: str) -> None:
        """Forget a newer group's volatile side."""
        if self._deadlines.pop(group_id, None) is not None:
            self._alarms.forget(group_id)

    # --- writing ---

    def _carry_out(
        self, group: ClassicGroup, effects: Sequence[Effect], stored: asyncio.Future[Code] | None = None
    ) -> bool:
        """Do what the group wants done; True if something is being stored (``stored`` is told how that went)."""
        storing = False
        for effect in effects:
            if isinstance(effect, Store):
                storing = True
                self._store_metadata(group, effect, stored)
            else:
                _answer(effect)
        self._watch(group)
        return storing

    def _store_metadata(self, group: ClassicGroup, store: Store, stored: asyncio.Future[Code] | None) -> None:
        def done(error: HeadraceError | None) -> None:
            code = Code.NONE if error is None else code_of(error)
            if not code and (before is None or before.generation != store.metadata.generation):
                self.rebalances += 1
            if group.phase is not Phase.DEAD:
                self._carry_out(group, group.stored(store, code))
            if stored is not None and not stored.done():
                stored.set_result(code)

        before = self.journal.latest.groups.get(group.group_id)
        try:
            self.journal.write([GroupChange(group.group_id, store.metadata)], done)
        except HeadraceError as error:
            log.warning("group %s could not be stored: %s", group.group_id, error)
            done(error)

    async def _store_all(self, changes: Sequence[Change]) -> Code:
        try:
            await self.journal.store(changes)
        except HeadraceError as error:
            return code_of(error)
        return Code.NONE

    async def settle(self) -> Code:
        """Wait until all that has been appended so far is durable."""
        try:
            await self.journal.settle()
        except HeadraceError as error:
            return code_of(error)
        return Code.NONE

    def _write_quietly(self, changes: Sequence[Change], what: str) -> None:
        def done(error: HeadraceError | None) -> None:
            if error is not None:
                log.warning("%s could not be written: %s", what, error)

        try:
            self.journal.write(changes, done)
        except HeadraceError as error:
            done(error)

    # --- waking ---

    def _watch(self, group: ClassicGroup | Deadlines) -> None:
        known = self._groups if isinstance(group, ClassicGroup) else self._deadlines
        if not self._closed and known.get(group.group_id) is group:
            self._alarms.watch(group)

    def _wake(self, group_id: str) -> None:
        group = self._groups.get(group_id)
        if group is not None:
            self._carry_out(group, group.tick())
        elif group_id in self._deadlines:
            self._tick(group_id)

    def _tick(self, group_id: str) -> None:
        """A consumer group or share group wants to be woken."""
        raise NotImplementedError


def _answer(answer: Answer) -> None:
    future = answer.ticket
    assert isinstance(future, asyncio.Future)
    if not future.done():
        future.set_result(answer.response)


def code_of(error: HeadraceError) -> Code:
    """What a client is told when the log refused: one that makes it look for the coordinator again and retry."""
    if isinstance(error, StorageError):
        return Code.NOT_COORDINATOR
    if isinstance(error, UnknownTopic):
        return Code.COORDINATOR_NOT_AVAILABLE
    return Code.INVALID_REQUEST if isinstance(error, InvalidRequest) else Code.UNKNOWN_SERVER_ERROR


def fits(name: str, suffix: int = 0) -> bool:
    """Whether a name fits into a record, also with a suffix."""
    most = _MAX_NAME - suffix
    return len(name) * 4 <= most or (len(name) <= most and len(name.encode()) <= most)
