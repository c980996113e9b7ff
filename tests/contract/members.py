"""Members of consumer groups and share groups, as scenarios speak of them."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from tests.contract.schema import Tree
from tests.contract.session import Session, Topic

GROUP, SET = 32, 0


def ready_group(s: Session, suffix: str = "g", kind: str = "consumer") -> str:
    """The name of a group whose coordinator answers, and that assigns without a pause."""
    group = s.name(suffix)

    def loaded() -> bool:
        s.ask("find_coordinator", 4, key_type=0, coordinator_keys=[group])
        answer = s.ask(f"{kind}_group_describe", 1, group_ids=[group])["groups"][0]
        return bool(answer["error_code"] == "group_id_not_found")

    s.until(loaded, "coordinator")
    name = f"{kind}.assignment.interval.ms"
    change = {"name": name, "config_operation": SET, "value": "0"}
    s.ask(
        "incremental_alter_configs",
        1,
        resources=[{"resource_type": GROUP, "resource_name": group, "configs": [change]}],
        validate_only=False,
    )

    def applied() -> bool:
        asked = [{"resource_type": GROUP, "resource_name": group, "configuration_keys": [name]}]
        (found,) = s.ask("describe_configs", 4, resources=asked)["results"]
        return bool(found["configs"] and found["configs"][0]["value"] == "0")

    s.until(applied, "the group's settings")
    return group


def owned(partitions: dict[Topic, list[int]]) -> list[Tree]:
    return [{"topic_id": topic.id, "partitions": numbers} for topic, numbers in partitions.items()]


@dataclass
class Member:
    """A member of a consumer group or share group; it follows the epochs that it is told."""

    s: Session
    group: str
    id: str
    kind: str = "consumer"
    version: int = 1
    epoch: int = 0
    has: list[Tree] = field(default_factory=list)

    def body(self, epoch: int, **more: Any) -> Tree:
        return {"group_id": self.group, "member_id": self.id, "member_epoch": epoch, **more}

    def heartbeat(self, epoch: int | None = None, *, note: bool = True, whole: bool = True, **more: Any) -> Tree:
        """Records the answer, or (not whole) only how many partitions it has."""
        asked = self.epoch if epoch is None else epoch
        answer = self.s.ask(f"{self.kind}_group_heartbeat", self.version, **self.body(asked, **more))
        if note:
            label = f"{len(self.s.transcript.entries)} {self.kind}_group_heartbeat"
            self.s.note(label, _readable(self.s, answer) if whole else _counted(answer))
        if answer["error_code"] == "none" and answer["member_epoch"] >= 0:
            self.id, self.epoch = answer["member_id"], answer["member_epoch"]
            if answer["assignment"] is not None:
                self.has = answer["assignment"]["topic_partitions"]
        return answer

    def join(self, *topics: Topic | str, **more: Any) -> Tree:
        names = [topic.name if isinstance(topic, Topic) else topic for topic in topics]
        body: Tree = {"subscribed_topic_names": names}
        if self.kind == "consumer":
            body |= {"rebalance_timeout": 30_000, "topic_partitions": []}
        return self.heartbeat(0, **(body | more))

    def confirm(self, **more: Any) -> Tree:
        """A heartbeat that says that it owns just what it was given."""
        return self.heartbeat(topic_partitions=self.has, **more)

    def leave(self, epoch: int = -1, **more: Any) -> Tree:
        return self.heartbeat(epoch, **more)

    @property
    def size(self) -> int:
        return sum(len(topic["partitions"]) for topic in self.has)


def _readable(s: Session, tree: Any) -> Any:
    """Partitions by the topic's name: the order of topic ids means nothing."""
    if isinstance(tree, dict):
        topics = tree.get("topic_partitions")
        if topics is not None:
            names = s.transcript.names.known
            return {str(names.get(one["topic_id"], one["topic_id"])): sorted(one["partitions"]) for one in topics}
        return {
            key: sorted(value) if key == "subscribed_topic_names" else _readable(s, value)
            for key, value in tree.items()
        }
    return [_readable(s, each) for each in tree] if isinstance(tree, list) else tree


def _counted(answer: Tree) -> Tree:
    assignment = answer["assignment"]
    if assignment is None:
        return answer
    return answer | {"assignment": sum(len(topic["partitions"]) for topic in assignment["topic_partitions"])}


def describe(s: Session, group: str, kind: str = "consumer", *, whole: bool = True, version: int = 1) -> Tree:
    """Records a group's description, or (not whole) only states, epochs and sizes."""
    (answer,) = s.ask(f"{kind}_group_describe", version, group_ids=[group])["groups"]
    noted = _readable(s, answer)
    if not whole:
        for member in noted["members"]:
            for key in ("assignment", "target_assignment"):
                if key in member:
                    member[key] = sum(map(len, member[key].values()))
    s.note(f"{len(s.transcript.entries)} {kind}_group_describe", noted)
    return answer


def subscription(*topics: Topic, version: int = 1, owns: dict[Topic, list[int]] | None = None) -> bytes:
    """What a consumer of the classic protocol says when it joins."""
    data = struct.pack(">hi", version, len(topics)) + b"".join(_string(topic.name) for topic in topics)
    data += struct.pack(">i", -1)
    if version >= 1:
        data += _partitions(owns or {})
    return data


def assignment(partitions: dict[Topic, list[int]], version: int = 1, user_data: bytes = b"") -> bytes:
    tail = struct.pack(">i", len(user_data)) + user_data if user_data else struct.pack(">i", -1)
    return struct.pack(">h", version) + _partitions(partitions) + tail


def _partitions(partitions: dict[Topic, list[int]]) -> bytes:
    data = struct.pack(">i", len(partitions))
    for topic, numbers in partitions.items():
        data += _string(topic.name) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return data


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
