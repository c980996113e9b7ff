"""Share groups of KIP-932: membership."""

from __future__ import annotations

from tests.contract.members import Member, describe, ready_group
from tests.contract.schema import Tree
from tests.contract.session import Session, in_every_version


def _joined(s: Session, member: Member, count: int) -> None:
    """Kafka hands partitions out only after it has prepared its share state, so the way there is not compared."""

    def has() -> bool:
        member.heartbeat(note=False)
        return member.size == count

    s.until(has, f"{count} partitions")


@in_every_version("share_group_heartbeat")
def a_member_joins_stays_and_leaves(s: Session) -> None:
    topic, group = s.topic(partitions=3), ready_group(s, kind="share")
    member = Member(s, group, "m1", "share", s.version)
    member.join(topic, note=False)
    _joined(s, member, 3)
    s.note("has", member.has)
    again = member.heartbeat(note=False)
    s.note("again", again["assignment"])
    member.leave()
    member.heartbeat(note=False)
    member.heartbeat(3)


@in_every_version("share_group_describe")
def groups_are_described(s: Session) -> None:
    topic, group = s.topic(partitions=2), ready_group(s, kind="share")
    member = Member(s, group, "m1", "share")
    member.join(topic, note=False, rack_id="r")
    _joined(s, member, 2)
    asked = [group, s.name("none")]
    answer = s.ask("share_group_describe", s.version, group_ids=asked, include_authorized_operations=True)
    for found in answer["groups"]:
        for of in (found, *found["members"]):
            for name in ("group_epoch", "assignment_epoch", "member_epoch"):
                of.pop(name, None)
    s.note("described", answer)


def heartbeats_that_cannot_be(s: Session) -> None:
    topic, group = s.topic(), ready_group(s, kind="share")
    full = {"subscribed_topic_names": [topic.name]}
    member = Member(s, group, "m1", "share")
    bodies: list[Tree] = [
        full | {"group_id": ""},
        full | {"member_id": ""},
        full | {"rack_id": ""},
        full | {"subscribed_topic_names": []},
        full | {"subscribed_topic_names": None},
        full | {"member_epoch": -2},
        full | {"member_epoch": 1},
        {"member_epoch": -1},
    ]
    for body in bodies:
        s.call("share_group_heartbeat", 1, **(member.body(0) | body))
    describe(s, group, "share")


def strangers_and_stale_epochs_are_refused(s: Session) -> None:
    topic, group = s.topic(), ready_group(s, kind="share")
    member, stranger = Member(s, group, "m1", "share"), Member(s, group, "m2", "share")
    member.join(topic, note=False)
    _joined(s, member, 1)
    stranger.heartbeat(3)
    stranger.leave()
    member.heartbeat(member.epoch + 1)
    member.heartbeat(member.epoch + 7)


def members_share_partitions(s: Session) -> None:
    topic, group = s.topic(partitions=2), ready_group(s, kind="share")
    members = [Member(s, group, f"m{number}", "share") for number in range(4)]
    for member in members:
        member.join(topic, note=False)

    def settled() -> bool:
        for member in members:
            member.heartbeat(note=False)
        return [member.size for member in members] == [1, 1, 1, 1]

    s.until(settled, "a partition for each")
    spread = sorted(partition for member in members for topic in member.has for partition in topic["partitions"])
    s.note("spread", spread)


def commits_are_not_for_share_groups(s: Session) -> None:
    topic, group = s.topic(), ready_group(s, kind="share")
    member = Member(s, group, "m1", "share")
    member.join(topic, note=False)
    _joined(s, member, 1)
    partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    topics = [{"name": topic.name, "topic_id": topic.id, "partitions": [partition]}]
    for name, epoch in (("m1", 3), ("", -1)):
        body = {"group_id": group, "generation_id_or_member_epoch": epoch, "member_id": name, "topics": topics}
        s.call("offset_commit", 9, **body)
    s.call("offset_delete", group_id=group, topics=[{"name": topic.name, "partitions": [{"partition_index": 0}]}])
    s.call("describe_groups", 6, groups=[group])
    s.call("consumer_group_describe", 1, group_ids=[group])
    s.call("delete_groups", groups_names=[group])
    answer = s.ask("list_groups", 5, types_filter=["share"])
    s.note("listed", [one for one in answer["groups"] if one["group_id"] == group])
