"""Consumer groups and share groups on a bench: no log, no time of their own, and clients that may be told of.

``Lab`` is the broker's side: the state is the fold of the changes, as in the log. ``Reader`` is a client that does what
an honest consumer does: it lets go before it takes, and starts anew when it is fenced.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from uuid import UUID

from headrace.broker.groups.codes import Code, Refusal
from headrace.broker.groups.consumer_group import ConsumerGroup
from headrace.broker.groups.modern_group import ModernSettings, Surroundings, TopicInfo
from headrace.broker.groups.modern_messages import JOIN, LEAVE, HeartbeatAnswer, HeartbeatRequest
from headrace.broker.groups.modern_records import GroupType, ModernChange, Partitions
from headrace.broker.groups.modern_state import ModernState
from headrace.broker.groups.share_group import ShareGroup

Place = tuple[UUID, int]


class Topics:
    """Topics of a lab; an id is never used twice."""

    def __init__(self, **counts: int) -> None:
        self._ids = itertools.count(1)
        self.known: dict[str, TopicInfo] = {}
        for name, count in counts.items():
            self.set(name, count)

    def set(self, name: str, count: int) -> None:
        """Make a topic, or give it more partitions; with none it is gone."""
        if count == 0:
            self.known.pop(name, None)
        elif name in self.known:
            self.known[name] = self.known[name]._replace(partitions=max(count, self.known[name].partitions))
        else:
            self.known[name] = TopicInfo(UUID(int=next(self._ids)), count)

    def find(self, name: str) -> TopicInfo | None:
        return self.known.get(name)

    def name_of(self, topic_id: UUID) -> str | None:
        return next((name for name, info in self.known.items() if info.id == topic_id), None)

    def names(self) -> Iterable[str]:
        return list(self.known)

    def places(self, names: Iterable[str]) -> set[Place]:
        return {
            (info.id, number)
            for name in names
            if (info := self.known.get(name)) is not None
            for number in range(info.partitions)
        }


class Lab:
    def __init__(self, topics: Topics, kind: GroupType = GroupType.CONSUMER, settings: ModernSettings | None = None):
        self.topics = topics
        self.kind = kind
        self.settings = settings or ModernSettings(assignment_interval_ms=0)
        self.state = ModernState(kind)
        self.log: list[ModernChange] = []
        self.now_ms = 1_000_000
        self._ids = itertools.count(1)

    def work(self) -> ConsumerGroup:
        around = Surroundings(self.topics, self.settings, self.now_ms, lambda: f"id{next(self._ids)}")
        return ConsumerGroup("g", self.state, around)

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        group: ConsumerGroup | ShareGroup = self.work()
        if self.kind is GroupType.SHARE:
            group = ShareGroup("g", self.state, group.around)
        try:
            if isinstance(group, ConsumerGroup) and request.member_epoch < JOIN:
                answer = self._leave(group, request)
            else:
                answer = group.heartbeat(request)
        except Refusal as refusal:
            return HeartbeatAnswer(refusal.code, refusal.message)
        self.write(group.changes)
        return answer

    def _leave(self, group: ConsumerGroup, request: HeartbeatRequest) -> HeartbeatAnswer:
        member_id = group.leaving(request)
        if request.member_epoch != LEAVE:
            return group.go_for_a_while(member_id)
        group.go([member_id])
        return HeartbeatAnswer(Code.NONE, None, member_id, LEAVE)

    def write(self, changes: Iterable[ModernChange]) -> None:
        for change in changes:
            self.state.apply(change)
            self.log.append(change)

    def replayed(self) -> ModernState:
        state = ModernState(self.kind)
        for change in self.log:
            state.apply(change)
        return state


class Reader:
    """A consumer. ``owned`` is what it reads; nobody else may."""

    def __init__(self, lab: Lab, member_id: str, topics: tuple[str, ...] = (), regex: str | None = None) -> None:
        self.lab = lab
        self.member_id = member_id
        self.topics = topics
        self.regex = regex
        self.epoch = JOIN
        self.owned: Partitions = {}

    @property
    def places(self) -> set[Place]:
        return {(topic, number) for topic, numbers in self.owned.items() for number in numbers}

    def beat(self, *, lost: bool = False) -> HeartbeatAnswer:
        """A heartbeat that says everything; its answer may get lost."""
        answer = self.lab.heartbeat(
            HeartbeatRequest(
                self.member_id,
                self.epoch,
                "c",
                "/h",
                rebalance_timeout_ms=60_000,
                topics=self.topics,
                regex=self.regex,
                owned=self.owned,
            )
        )
        if not lost:
            self.hear(answer)
        return answer

    def hear(self, answer: HeartbeatAnswer) -> None:
        if answer.code in (Code.FENCED_MEMBER_EPOCH, Code.UNKNOWN_MEMBER_ID):
            self.epoch, self.owned = JOIN, {}
        elif answer.code is Code.NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = answer.assignment

    def leave(self) -> None:
        self.lab.heartbeat(HeartbeatRequest(self.member_id, LEAVE, "c", "/h"))
        self.epoch, self.owned = JOIN, {}
