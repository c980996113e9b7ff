"""One group on a bench: the clock is moved by hand, and what the group wants stored is stored at once or held back."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Iterable

from headrace.broker.groups.codes import Code
from headrace.broker.groups.group import ClassicGroup
from headrace.broker.groups.member import NEVER
from headrace.broker.groups.messages import (
    Answer,
    Effect,
    JoinAnswer,
    JoinRequest,
    Leaver,
    Store,
    SyncAnswer,
    SyncRequest,
)
from headrace.broker.groups.records import GroupMetadata
from headrace.broker.groups.settings import GroupSettings
from headrace.testing.clock import ManualClock


def subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


class Waiting:
    """A request that waits; ``answer`` is None until it is answered."""

    def __init__(self) -> None:
        self.answer: JoinAnswer | SyncAnswer | None = None

    @property
    def code(self) -> Code | None:
        return None if self.answer is None else self.answer.code

    @property
    def joined(self) -> JoinAnswer:
        assert isinstance(self.answer, JoinAnswer)
        return self.answer

    @property
    def synced(self) -> SyncAnswer:
        assert isinstance(self.answer, SyncAnswer)
        return self.answer


class Lab:
    def __init__(self, settings: GroupSettings | None = None, stored: GroupMetadata | None = None) -> None:
        self.clock = ManualClock()
        self.settings = settings or GroupSettings(initial_rebalance_delay_ms=3000)
        self.numbers = itertools.count(1)
        self.group = self.new_group(stored)
        self.stored: list[GroupMetadata] = []
        self.held: list[Store] = []
        self.hold = False

    def new_group(self, stored: GroupMetadata | None) -> ClassicGroup:
        return ClassicGroup("g", self.settings, self.clock, lambda: str(next(self.numbers)), stored)

    # --- requests ---

    def join(
        self,
        member_id: str = "",
        *,
        client: str = "c",
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("range", subscription("t")),),
        protocol_type: str = "consumer",
        must_know_id: bool = True,
        may_skip: bool = True,
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
    ) -> Waiting:
        waiting = Waiting()
        request = JoinRequest(
            member_id,
            instance,
            client,
            "/host",
            session_ms,
            rebalance_ms,
            protocol_type,
            protocols,
            must_know_id,
            may_skip,
        )
        self.run(self.group.join(request, waiting))
        return waiting

    def join_dynamic(self, **options: object) -> tuple[str, Waiting]:
        """Both steps of a new member: ask for an id, join with it."""
        first = self.join(**options)  # type: ignore[arg-type]
        assert first.code is Code.MEMBER_ID_REQUIRED
        member_id = first.joined.member_id
        return member_id, self.join(member_id, **options)  # type: ignore[arg-type]

    def sync(
        self,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        *,
        generation: int | None = None,
        instance: str | None = None,
        protocol_type: str | None = "consumer",
        protocol: str | None = "range",
    ) -> Waiting:
        waiting = Waiting()
        asked = self.group.generation if generation is None else generation
        request = SyncRequest(member_id, instance, asked, protocol_type, protocol, assignments or {})
        self.run(self.group.sync(request, waiting))
        return waiting

    def heartbeat(self, member_id: str, generation: int | None = None, instance: str | None = None) -> Code:
        return self.group.heartbeat(member_id, instance, self.group.generation if generation is None else generation)

    def leave(self, *leavers: str | Leaver) -> list[Code]:
        codes, effects = self.group.leave([Leaver(each, None) if isinstance(each, str) else each for each in leavers])
        self.run(effects)
        return codes

    # --- time and storage ---

    def run(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Answer):
                assert isinstance(effect.ticket, Waiting)
                assert effect.ticket.answer is None, "answered twice"
                effect.ticket.answer = effect.response
            elif self.hold:
                self.held.append(effect)
            else:
                self.finish(effect)

    def finish(self, store: Store, code: Code = Code.NONE) -> None:
        if code is Code.NONE:
            self.stored.append(store.metadata)
        self.run(self.group.stored(store, code))

    def release(self, code: Code = Code.NONE) -> None:
        held, self.held = self.held, []
        for store in held:
            self.finish(store, code)

    def pass_time(self, ms: int) -> None:
        """Let time pass, calling ``tick`` whenever the group wants it."""
        end = self._now() + ms
        while (wake_at := math.ceil(self.group.wake_at * 1000) if self.group.wake_at != NEVER else end + 1) <= end:
            self.clock.advance(max(wake_at - self._now(), 0))
            self.run(self.group.tick())
        self.clock.advance(end - self._now())

    def wait_for(self, joins: list[Waiting]) -> None:
        """Let the time pass that it takes until all of them have joined, and no more."""
        while any(waiting.answer is None for waiting in joins):
            self.pass_time(100)
        assert all(waiting.code is Code.NONE for waiting in joins)

    def _now(self) -> int:
        return round(self.clock.monotonic() * 1000)

    # --- whole stories ---

    def stable(self, count: int = 2, **options: object) -> list[str]:
        """A stable group of so many members; the first leads. Member i has assignment ``b"i"``."""
        joins = [self.join_dynamic(**options) for _ in range(count)]
        self.wait_for([waiting for _, waiting in joins])
        members = [member_id for member_id, _ in joins]
        self.sync_all(members)
        return members

    def sync_all(self, members: list[str]) -> None:
        assignments = {member_id: str(number).encode() for number, member_id in enumerate(members)}
        leader = self.group.leader
        syncs = [self.sync(each, assignments if each == leader else None) for each in members]
        assert all(waiting.code is Code.NONE for waiting in syncs)
