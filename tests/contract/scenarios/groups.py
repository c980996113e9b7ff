"""Classic consumer groups: coordinator, membership, offsets."""

from __future__ import annotations

import threading
import time
from typing import Any

from tests.contract.raw import Connection
from tests.contract.schema import Tree
from tests.contract.session import Session, Topic, in_every_version

PROTOCOLS = [{"name": "range", "metadata": b"r"}, {"name": "roundrobin", "metadata": b"rr"}]


def _coordinator(s: Session, group: str) -> None:
    def ready() -> bool:
        found = s.ask("find_coordinator", 4, key_type=0, coordinator_keys=[group])["coordinators"][0]
        return bool(found["error_code"] == "none")

    s.until(ready, "coordinator")

    def loaded() -> bool:
        answer = s.ask("describe_groups", 5, groups=[group])["groups"][0]
        return answer["error_code"] not in (
            "coordinator_not_available",
            "coordinator_load_in_progress",
            "not_coordinator",
        )

    s.until(loaded, "group loaded")


def _join_body(group: str, member: str = "", **more: Any) -> Tree:
    return {
        "group_id": group,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": PROTOCOLS,
        **more,
    }


def _join(s: Session, connection: Connection, group: str, version: int = 9, **more: Any) -> Tree:
    """Joins, with the second step that asks for the given member id where the version has it; records both."""
    answer = connection.call("join_group", version, **_join_body(group, **more))
    s.note("join_group", answer)
    if answer["error_code"] == "member_id_required":
        answer = connection.call("join_group", version, **_join_body(group, **{**more, "member": answer["member_id"]}))
        s.note("join_group again", answer)
    return answer


def _sync(s: Session, connection: Connection, group: str, joined: Tree, version: int = 5, **more: Any) -> Tree:
    leads = joined["leader"] == joined["member_id"]
    members = [one["member_id"] for one in joined["members"]] if leads else []
    body = {
        "group_id": group,
        "generation_id": joined["generation_id"],
        "member_id": joined["member_id"],
        "protocol_type": joined.get("protocol_type") or "consumer",
        "protocol_name": joined["protocol_name"],
        "assignments": [{"member_id": member, "assignment": b"work"} for member in members],
        **more,
    }
    answer = connection.call("sync_group", version, **body)
    s.note("sync_group", answer)
    return answer


def _alone(s: Session, suffix: str = "g", **more: Any) -> tuple[str, Tree, Connection]:
    """A stable group with one member."""
    group = s.name(suffix)
    _coordinator(s, group)
    connection = s.connect()
    joined = _join(s, connection, group, **more)
    _sync(s, connection, group, joined)
    return group, joined, connection


def _commit_body(
    group: str,
    topic: Topic,
    offsets: dict[int, int],
    generation: int = -1,
    member: str = "",
    metadata: str | None = "m",
) -> Tree:
    return {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member,
        "topics": [
            {
                "name": topic.name,
                "topic_id": topic.id,
                "partitions": [
                    {"partition_index": index, "committed_offset": offset, "committed_metadata": metadata}
                    for index, offset in offsets.items()
                ],
            }
        ],
    }


def _committed(s: Session, group: str, topic: Topic | None, partitions: list[int], version: int = 9) -> Tree:
    topics = None if topic is None else [{"name": topic.name, "topic_id": topic.id, "partition_indexes": partitions}]
    if version >= 8:
        return s.call("offset_fetch", version, groups=[{"group_id": group, "topics": topics}])
    return s.call("offset_fetch", version, group_id=group, topics=topics)


def _describe(s: Session, group: str, version: int = 5) -> None:
    answer = s.ask("describe_groups", version, groups=[group])
    for one in answer["groups"]:
        for member in one["members"]:
            member["client_host"] = member["client_host"].lstrip("/")
    s.note("describe_groups", answer)


@in_every_version("find_coordinator")
def a_group_has_a_coordinator(s: Session) -> None:
    _coordinator(s, s.name("g"))
    if s.version >= 4:
        s.call("find_coordinator", s.version, key_type=0, coordinator_keys=[s.name("g"), s.name("h")])
        s.call("find_coordinator", s.version, key_type=0, coordinator_keys=[])
    else:
        s.call("find_coordinator", s.version, key=s.name("g"), key_type=0)


def coordinators_of_unknown_kinds(s: Session) -> None:
    for kind in (3, 9, -1):
        s.call("find_coordinator", 4, key_type=kind, coordinator_keys=["x"])


def a_group_without_a_name_has_a_coordinator_too(s: Session) -> None:
    _coordinator(s, s.name("g"))
    s.call("find_coordinator", 4, key_type=0, coordinator_keys=[""])


@in_every_version("join_group")
def one_member_joins(s: Session) -> None:
    group = s.name("g")
    _coordinator(s, group)
    _join(s, s.connect(), group, s.version)


@in_every_version("join_group")
def joins_that_are_refused(s: Session) -> None:
    group = s.name("g")
    _coordinator(s, group)
    for more in (
        {"member": "nobody"},
        {"session_timeout": 1},
        {"session_timeout": 10**8},
        {"protocols": []},
        {"protocol_type": ""},
        {"group_id": ""},
    ):
        body = {**_join_body(group, **{key: value for key, value in more.items() if key != "group_id"})}
        body.update({key: value for key, value in more.items() if key == "group_id"})
        body.pop("member", None)
        s.note(str(sorted(more)), s.connect().call("join_group", s.version, **body))


@in_every_version("sync_group")
def the_leader_hands_out_the_work(s: Session) -> None:
    group = s.name("g")
    _coordinator(s, group)
    connection = s.connect()
    joined = _join(s, connection, group)
    _sync(s, connection, group, joined, s.version)
    _sync(s, connection, group, joined, s.version)


@in_every_version("sync_group")
def syncs_that_are_refused(s: Session) -> None:
    group, joined, connection = _alone(s)
    for change in (
        {"member_id": "nobody"},
        {"generation_id": 99},
        {"generation_id": -1},
        {"group_id": s.name("other")},
        {"group_id": ""},
        {"protocol_type": "connect"},
        {"protocol_name": "sticky"},
    ):
        _sync(s, connection, group, joined, s.version, **change)


@in_every_version("heartbeat")
def heartbeats(s: Session) -> None:
    group, joined, connection = _alone(s)
    right = {"group_id": group, "generation_id": joined["generation_id"], "member_id": joined["member_id"]}
    s.note("right", connection.call("heartbeat", s.version, **right))
    for change in (
        {"member_id": "nobody"},
        {"generation_id": 99},
        {"generation_id": -1},
        {"group_id": s.name("x")},
        {"group_id": ""},
    ):
        s.note(str(change), connection.call("heartbeat", s.version, **{**right, **change}))


@in_every_version("leave_group")
def a_member_leaves(s: Session) -> None:
    group, joined, connection = _alone(s)

    def leave(name: str, member: str) -> None:
        body: Tree = {"member_id": member} if s.version < 3 else {"members": [{"member_id": member}]}
        s.note("leave", connection.call("leave_group", s.version, group_id=name, **body))

    leave(group, "nobody")
    leave(s.name("other"), "nobody")
    leave("", "nobody")
    leave(group, joined["member_id"])
    leave(group, joined["member_id"])
    _describe(s, group)


@in_every_version("describe_groups")
def groups_are_described(s: Session) -> None:
    group, joined, connection = _alone(s)
    _describe(s, group, s.version)
    _describe(s, s.name("nowhere"), s.version)
    s.note("left", connection.call("leave_group", 3, group_id=group, members=[{"member_id": joined["member_id"]}]))
    _describe(s, group, s.version)
    if s.version >= 3:
        s.call("describe_groups", s.version, groups=[s.name("nowhere")], include_authorized_operations=True)


@in_every_version("list_groups")
def groups_are_listed(s: Session) -> None:
    group, _, _ = _alone(s, "stable")
    topic = s.topic()
    empty = s.name("empty")
    s.ask("offset_commit", 9, **_commit_body(empty, topic, {0: 5}))

    def listed(**filters: Any) -> None:
        answer = s.ask("list_groups", s.version, **filters)
        mine = [one for one in answer["groups"] if one["group_id"] in (group, empty)]
        s.note(str(filters), {"error": answer["error_code"], "mine": mine})

    listed()
    if s.version >= 4:
        for states in (["Stable"], ["Empty"], ["stable"], ["Dead"], ["Nonsense"]):
            listed(states_filter=states)
    if s.version >= 5:
        for kinds in (["classic"], ["Classic"], ["consumer"], ["nonsense"]):
            listed(types_filter=kinds)


@in_every_version("offset_commit")
def offsets_are_committed_without_members(s: Session) -> None:
    topic, group = s.topic(partitions=3), s.name("g")
    _coordinator(s, group)
    s.call("offset_commit", s.version, **_commit_body(group, topic, {0: 5, 1: 10**15, 2: 0}))
    _committed(s, group, topic, [0, 1, 2])
    s.call("offset_commit", s.version, **_commit_body(group, topic, {0: 2}, metadata=None))
    s.call("offset_commit", s.version, **_commit_body(group, topic, {1: 3}, metadata=""))
    _committed(s, group, topic, [0, 1, 2])


@in_every_version("offset_commit")
def offsets_are_committed_by_a_member(s: Session) -> None:
    topic = s.topic(partitions=2)
    group, joined, _ = _alone(s)
    member, generation = joined["member_id"], joined["generation_id"]
    for generation_used, member_used in (
        (generation, member),
        (generation + 1, member),
        (generation, "nobody"),
        (-1, ""),
        (-1, member),
        (generation, ""),
    ):
        s.call("offset_commit", s.version, **_commit_body(group, topic, {0: 7}, generation_used, member_used))
    _committed(s, group, topic, [0, 1])


@in_every_version("offset_commit")
def commits_that_are_refused(s: Session) -> None:
    topic, group = s.topic(), s.name("g")
    _coordinator(s, group)
    s.call("offset_commit", s.version, **_commit_body(group, topic, {9: 5}))
    s.call("offset_commit", s.version, **_commit_body(group, Topic(s.name("nowhere"), _nobody()), {0: 5}))
    s.call("offset_commit", s.version, **_commit_body(group, topic, {0: 1}, metadata="x" * 4096))
    s.call("offset_commit", s.version, **_commit_body(group, topic, {0: 1}, metadata="x" * 4097))
    s.call("offset_commit", s.version, **_commit_body("", topic, {0: 1}))
    s.call("offset_commit", s.version, **_commit_body(group, topic, {0: 1}, generation=4, member="m"))
    s.call("offset_commit", s.version, **_commit_body(group, topic, {0: -1}))
    s.call("offset_commit", s.version, group_id=group, generation_id_or_member_epoch=-1, topics=[])
    _committed(s, group, topic, [0])


@in_every_version("offset_fetch")
def committed_offsets_are_read(s: Session) -> None:
    topic, group = s.topic(partitions=3), s.name("g")
    _coordinator(s, group)
    s.ask("offset_commit", 9, **_commit_body(group, topic, {0: 5, 1: 6}))
    _committed(s, group, topic, [0, 1, 2, 9], s.version)
    _committed(s, group, Topic(s.name("nowhere"), _nobody()), [0], s.version)
    _committed(s, s.name("unknown"), topic, [0], s.version)
    _committed(s, group, topic, [], s.version)
    if s.version >= 2:
        _committed(s, group, None, [], s.version)
        _committed(s, s.name("unknown"), None, [], s.version)


def offsets_of_several_groups(s: Session) -> None:
    topic = s.topic()
    groups = [s.name("a"), s.name("b")]
    for number, group in enumerate(groups):
        _coordinator(s, group)
        s.ask("offset_commit", 9, **_commit_body(group, topic, {0: number}))
    body = [{"group_id": group, "topics": None} for group in [*groups, s.name("c")]]
    s.call("offset_fetch", 9, groups=body)
    s.call("offset_fetch", 9, groups=[])


@in_every_version("delete_groups")
def groups_are_deleted(s: Session) -> None:
    topic = s.topic()
    group, joined, connection = _alone(s)
    s.ask("offset_commit", 9, **_commit_body(group, topic, {0: 5}, joined["generation_id"], joined["member_id"]))
    s.call("delete_groups", s.version, groups_names=[group, s.name("nowhere")])
    connection.call("leave_group", 3, group_id=group, members=[{"member_id": joined["member_id"]}])
    s.call("delete_groups", s.version, groups_names=[group])
    _describe(s, group)
    _committed(s, group, topic, [0])
    s.call("delete_groups", s.version, groups_names=[group])
    s.call("delete_groups", s.version, groups_names=[""])
    s.call("delete_groups", s.version, groups_names=[])


def offsets_are_deleted(s: Session) -> None:
    topic, group = s.topic(partitions=2), s.name("g")
    _coordinator(s, group)
    s.ask("offset_commit", 9, **_commit_body(group, topic, {0: 5, 1: 6}))

    def delete(name: str, topic_name: str, *partitions: int) -> None:
        parts = [{"partition_index": index} for index in partitions]
        s.call("offset_delete", 0, group_id=name, topics=[{"name": topic_name, "partitions": parts}])

    delete(group, topic.name, 0)
    _committed(s, group, topic, [0, 1])
    delete(group, topic.name, 0, 7)
    delete(group, s.name("nowhere"), 0)
    delete(s.name("unknown"), topic.name, 0)
    delete("", topic.name, 0)
    _committed(s, group, topic, [0, 1])


def offsets_of_a_group_at_work_are_kept(s: Session) -> None:
    topic, other = s.topic("read"), s.topic("unread")
    group = s.name("g")
    _coordinator(s, group)
    connection = s.connect()
    subscription = (
        b"\0\1"
        + b"\0\0\0\1"
        + len(topic.name).to_bytes(2, "big")
        + topic.name.encode()
        + b"\xff\xff\xff\xff"
        + b"\0\0\0\0"
    )
    joined = _join(s, connection, group, protocols=[{"name": "range", "metadata": subscription}])
    _sync(s, connection, group, joined)
    for one in (topic, other):
        s.ask("offset_commit", 9, **_commit_body(group, one, {0: 5}, joined["generation_id"], joined["member_id"]))
    for one in (topic, other):
        s.call("offset_delete", 0, group_id=group, topics=[{"name": one.name, "partitions": [{"partition_index": 0}]}])
    _committed(s, group, None, [])


def offsets_die_with_their_topic(s: Session) -> None:
    topic, group = s.topic(), s.name("g")
    _coordinator(s, group)
    s.ask("offset_commit", 9, **_commit_body(group, topic, {0: 5}))
    s.ask("delete_topics", 5, topic_names=[topic.name], timeout=5000)

    def gone() -> bool:
        answer = s.ask("offset_fetch", 8, groups=[{"group_id": group, "topics": None}])
        return not answer["groups"][0]["topics"]

    s.until(gone, "offsets of the deleted topic are gone")


def two_members_share_the_work(s: Session) -> None:
    group, first, one = _alone(s)
    two = s.connect("second")
    required = two.call("join_group", 9, **_join_body(group))
    s.note("second is given an id", required)
    two.send("join_group", 9, **_join_body(group, required["member_id"]))
    beat = {"group_id": group, "generation_id": first["generation_id"], "member_id": first["member_id"]}
    s.until(lambda: one.call("heartbeat", 4, **beat)["error_code"] == "rebalance_in_progress", "rebalance")
    _describe(s, group)
    first = one.call("join_group", 9, **_join_body(group, first["member_id"]))
    second = two.receive()[1]
    leader = first if first["leader"] == first["member_id"] else second
    s.note("members", [one_member["metadata"] for one_member in leader["members"]])
    s.note("same generation", first["generation_id"] == second["generation_id"])
    s.note("protocol", first["protocol_name"])
    s.note("first leads", leader is first)
    _describe(s, group)
    two.send("sync_group", 5, **_sync_body(group, second, {}))
    s.note(
        "leader syncs",
        one.call("sync_group", 5, **_sync_body(group, first, {first["member_id"]: b"1", second["member_id"]: b"2"})),
    )
    s.note("follower is told", two.receive()[1])
    s.ask("describe_groups", 5, groups=[group])
    s.note("second leaves", two.call("leave_group", 5, group_id=group, members=[{"member_id": second["member_id"]}]))
    beat["generation_id"] = first["generation_id"]
    s.note("first must join again", one.call("heartbeat", 4, **beat))


def _sync_body(group: str, joined: Tree, work: dict[str, bytes]) -> Tree:
    return {
        "group_id": group,
        "generation_id": joined["generation_id"],
        "member_id": joined["member_id"],
        "protocol_type": "consumer",
        "protocol_name": joined["protocol_name"],
        "assignments": [{"member_id": member, "assignment": part} for member, part in work.items()],
    }


def a_member_without_a_common_protocol_is_refused(s: Session) -> None:
    group, _, _ = _alone(s)
    other = s.connect()
    s.note(
        "protocol", other.call("join_group", 3, **_join_body(group, protocols=[{"name": "sticky", "metadata": b""}]))
    )
    s.note("type", other.call("join_group", 3, **_join_body(group, protocol_type="connect")))


def a_member_that_is_silent_is_removed(s: Session) -> None:
    group = s.name("g")
    _coordinator(s, group)
    connection = s.connect()
    joined = _join(s, connection, group, session_timeout=6000, rebalance_timeout=6000)
    _sync(s, connection, group, joined)
    started = time.monotonic()
    beat = {"group_id": group, "generation_id": joined["generation_id"], "member_id": joined["member_id"]}
    time.sleep(3)
    s.note("after 3 s", connection.call("heartbeat", 4, **beat))
    s.until(lambda: s.ask("describe_groups", 5, groups=[group])["groups"][0]["group_state"] == "Empty", "removal", 20)
    s.note("after the session", 8.5 <= time.monotonic() - started <= 12)
    s.note("heartbeat", connection.call("heartbeat", 4, **beat))


def a_static_member_keeps_its_place(s: Session) -> None:
    group = s.name("g")
    _coordinator(s, group)
    connection = s.connect()
    joined = _join(s, connection, group, group_instance_id="one")
    _sync(s, connection, group, joined, group_instance_id="one")
    again = s.connect().call("join_group", 9, **_join_body(group, group_instance_id="one"))
    s.note("joined again", again)
    s.note("new id", again["member_id"] != joined["member_id"])
    s.note("same generation", again["generation_id"] == joined["generation_id"])
    beat = {"group_id": group, "generation_id": joined["generation_id"], "group_instance_id": "one"}
    s.note("old id is fenced", connection.call("heartbeat", 4, **beat, member_id=joined["member_id"]))
    s.note("new id is not", connection.call("heartbeat", 4, **beat, member_id=again["member_id"]))
    s.note(
        "unknown instance",
        connection.call("heartbeat", 4, **{**beat, "group_instance_id": "two"}, member_id=again["member_id"]),
    )
    _describe(s, group)
    members = [{"member_id": "", "group_instance_id": "one"}, {"member_id": "", "group_instance_id": "two"}]
    s.note("leave", connection.call("leave_group", 5, group_id=group, members=members))
    _describe(s, group)


def a_rebalance_waits_for_the_slow_but_not_for_ever(s: Session) -> None:
    group = s.name("g")
    _coordinator(s, group)
    one, two = s.connect(), s.connect()
    first = _join(s, one, group, session_timeout=30_000, rebalance_timeout=1_500)
    _sync(s, one, group, first)
    given = two.call("join_group", 9, **_join_body(group, rebalance_timeout=1_500))
    started = time.monotonic()
    second = two.call("join_group", 9, **_join_body(group, given["member_id"], rebalance_timeout=1_500))
    s.note("waited", 1.0 < time.monotonic() - started < 5)
    s.note("alone now", {"leader": second["leader"] == second["member_id"], "members": len(second["members"])})
    beat = {"group_id": group, "generation_id": first["generation_id"], "member_id": first["member_id"]}
    s.note("the slow one is out", one.call("heartbeat", 4, **beat))


def a_rebalance_in_progress_is_told(s: Session) -> None:
    group, first, one = _alone(s)
    topic = s.topic()
    two = s.connect()
    given = two.call("join_group", 9, **_join_body(group))
    joining = threading.Thread(target=two.call, args=("join_group", 9), kwargs=_join_body(group, given["member_id"]))
    joining.start()
    beat = {"group_id": group, "generation_id": first["generation_id"], "member_id": first["member_id"]}
    s.until(lambda: one.call("heartbeat", 4, **beat)["error_code"] == "rebalance_in_progress")
    s.note(
        "commit",
        one.call("offset_commit", 9, **_commit_body(group, topic, {0: 3}, first["generation_id"], first["member_id"])),
    )
    s.note("sync", one.call("sync_group", 5, **_sync_body(group, first, {})))
    joined = one.call("join_group", 9, **_join_body(group, first["member_id"]))
    joining.join()
    s.note(
        "commit before sync",
        one.call("offset_commit", 9, **_commit_body(group, topic, {0: 4}, joined["generation_id"], first["member_id"])),
    )
    s.note("heartbeat before sync", one.call("heartbeat", 4, **{**beat, "generation_id": joined["generation_id"]}))


def _nobody() -> Any:
    import uuid

    return uuid.uuid5(uuid.NAMESPACE_OID, "nobody")
