"""One group, two protocols: members of the classic and of the consumer protocol together, and on the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.contract.members import Member, assignment, describe, ready_group, subscription
from tests.contract.raw import Connection
from tests.contract.schema import Tree
from tests.contract.session import Session, Topic


@dataclass
class Classic:
    """A consumer of the classic protocol, on a connection of its own."""

    s: Session
    group: str
    topics: tuple[Topic, ...]
    protocol_type: str = "consumer"
    instance: str | None = None
    id: str = ""
    generation: int = -1
    protocol: str = "range"
    leads: bool = False
    connection: Connection = field(init=False)

    def __post_init__(self) -> None:
        self.connection = self.s.connect()

    def _note(self, what: str, answer: Tree) -> Tree:
        self.s.note(f"{len(self.s.transcript.entries)} {what}", answer)
        return answer

    def join(self, *, note: bool = True, owns: dict[Topic, list[int]] | None = None, **more: Any) -> Tree:
        body = {
            "group_id": self.group,
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "member_id": self.id,
            "group_instance_id": self.instance,
            "protocol_type": self.protocol_type,
            "protocols": [{"name": "range", "metadata": subscription(*self.topics, owns=owns)}],
        } | more
        answer = self.connection.call("join_group", 9, **body)
        if answer["error_code"] == "member_id_required":
            if note:
                self._note("join_group", answer)
            answer = self.connection.call("join_group", 9, **(body | {"member_id": answer["member_id"]}))
        if note:
            self._note("join_group again", answer | {"members": len(answer["members"])})
        if answer["error_code"] == "none":
            self.id, self.generation = answer["member_id"], answer["generation_id"]
            self.leads = answer["leader"] == self.id
        return answer

    def sync(self, given: dict[str, bytes] | None = None, *, note: bool = True, **more: Any) -> Tree:
        body = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.id,
            "group_instance_id": self.instance,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol,
            "assignments": [{"member_id": name, "assignment": data} for name, data in (given or {}).items()],
        } | more
        answer = self.connection.call("sync_group", 5, **body)
        return self._note("sync_group", answer) if note else answer

    def heartbeat(self, *, note: bool = True, **more: Any) -> Tree:
        body = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.id,
            "group_instance_id": self.instance,
        } | more
        answer = self.connection.call("heartbeat", 4, **body)
        return self._note("heartbeat", answer) if note else answer

    def leave(self, **more: Any) -> Tree:
        member = {"member_id": self.id, "group_instance_id": self.instance} | more
        return self._note("leave_group", self.connection.call("leave_group", 5, group_id=self.group, members=[member]))

    def alone(self, topic: Topic, partitions: list[int]) -> None:
        """Makes a stable group of itself."""
        self.join()
        self.sync({self.id: assignment({topic: partitions})})


def _commit(s: Session, group: str, topic: Topic, member: str, generation: int) -> None:
    partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    s.call(
        "offset_commit",
        9,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[{"name": topic.name, "topic_id": topic.id, "partitions": [partition]}],
    )


def a_classic_group_is_upgraded_and_downgraded(s: Session) -> None:
    topic, group = s.topic(partitions=4), ready_group(s)
    old = Classic(s, group, (topic,))
    old.alone(topic, [0, 1, 2, 3])
    new = Member(s, group, "m1")
    new.join(topic)
    describe(s, group, whole=False)
    s.call("describe_groups", 6, groups=[group])
    old.heartbeat()
    _commit(s, group, topic, old.id, old.generation)
    old.join(owns={topic: [0, 1, 2, 3]})
    old.sync(note=False)
    old.heartbeat()
    old.join(owns={})
    old.heartbeat()
    new.heartbeat(whole=False)
    new.confirm(whole=False)
    old.sync(note=False)
    old.heartbeat()
    _commit(s, group, topic, old.id, old.generation)
    _commit(s, group, topic, old.id, old.generation - 2)
    describe(s, group, whole=False)
    new.leave()
    describe(s, group)
    old.heartbeat()
    old.join()
    s.note("leads", old.leads)
    old.sync({old.id: assignment({topic: [0, 1, 2, 3]})})
    old.heartbeat()
    s.call("describe_groups", 6, groups=[group])


def a_classic_member_joins_a_consumer_group(s: Session) -> None:
    topic, group = s.topic(partitions=2), ready_group(s)
    new = Member(s, group, "m1")
    new.join(topic)
    old = Classic(s, group, (topic,))
    old.join()
    old.sync()
    new.heartbeat(whole=False)
    old.heartbeat()
    new.confirm(whole=False)
    old.heartbeat()
    old.join()
    s.note("size", len(old.sync(note=False)["assignment"]))
    old.heartbeat()
    describe(s, group, whole=False)
    old.leave()
    describe(s, group, whole=False)
    new.heartbeat()


def classic_requests_that_a_consumer_group_refuses(s: Session) -> None:
    topic, group = s.topic(), ready_group(s)
    new = Member(s, group, "m1")
    new.join(topic)
    old = Classic(s, group, (topic,))
    old.join(protocol_type="connect")
    old.join(protocols=[])
    old.heartbeat(member_id="no-such", generation_id=2)
    old.heartbeat(member_id="m1", generation_id=2)
    old.sync(member_id="no-such", generation_id=2)
    old.sync(member_id="m1", generation_id=2)
    old.leave(member_id="no-such")
    old.leave(member_id="", group_instance_id="no-such")
    old.join()
    old.heartbeat(generation_id=old.generation + 1)
    old.heartbeat(group_instance_id="no-such")
    old.sync(generation_id=old.generation + 1)
    old.sync(protocol_name="other")
    old.sync(protocol_type="connect")


def groups_that_cannot_be_upgraded(s: Session) -> None:
    topic = s.topic()
    connect = ready_group(s, "connect")
    worker = Classic(s, connect, (topic,), protocol_type="connect")
    worker.join()
    worker.sync({worker.id: b"work"})
    Member(s, connect, "m1").join(topic)
    custom = ready_group(s, "custom")
    consumer = Classic(s, custom, (topic,))
    consumer.join()
    consumer.sync({consumer.id: assignment({topic: [0]}, user_data=b"mine")})
    Member(s, custom, "m1").join(topic)
    broken = ready_group(s, "broken")
    other = Classic(s, broken, (topic,))
    other.join()
    other.sync({other.id: b"\x00"})
    Member(s, broken, "m1").join(topic)


def empty_groups_change_their_kind(s: Session) -> None:
    topic, group = s.topic(), ready_group(s)
    old = Classic(s, group, (topic,))
    old.alone(topic, [0])
    _commit(s, group, topic, old.id, old.generation)
    old.leave()
    new = Member(s, group, "m1")
    new.join(topic)
    describe(s, group)
    new.leave()
    again = Classic(s, group, (topic,))
    again.alone(topic, [0])
    s.call("describe_groups", 6, groups=[group])
    s.call("offset_fetch", 9, groups=[{"group_id": group, "topics": None}])


def a_group_of_offsets_only_becomes_a_consumer_group(s: Session) -> None:
    topic, group = s.topic(), ready_group(s)
    _commit(s, group, topic, "", -1)
    new = Member(s, group, "m1")
    new.join(topic)
    describe(s, group)
    s.call("offset_fetch", 9, groups=[{"group_id": group, "topics": None}])


def static_members_change_the_protocol(s: Session) -> None:
    topic, group = s.topic(partitions=2), ready_group(s)
    old = Classic(s, group, (topic,), instance="i")
    old.alone(topic, [0, 1])
    new = Member(s, group, "m1")
    new.join(topic, instance_id="i")
    describe(s, group)
    old.heartbeat()
    old.sync()
    back = Classic(s, group, (topic,), instance="i")
    back.join(note=False)
    s.note("back", back.generation > 0)
    s.call("consumer_group_describe", 1, group_ids=[group])


def share_groups_do_not_migrate(s: Session) -> None:
    topic, shares, group = s.topic(), ready_group(s, "share", "share"), ready_group(s)
    Member(s, shares, "m1", "share").join(topic, note=False)
    Member(s, shares, "m2").join(topic)
    stranger = Classic(s, shares, (topic,))
    stranger.join()
    stranger.heartbeat(member_id="m1", generation_id=1)
    stranger.sync(member_id="m1", generation_id=1)
    stranger.leave(member_id="m1")
    Member(s, group, "m1").join(topic)
    Member(s, group, "m2", "share").join(topic)
    old = Classic(s, s.name("classic"), (topic,))
    old.alone(topic, [0])
    Member(s, s.name("classic"), "m2", "share").join(topic)
