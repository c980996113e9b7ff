"""Corners of the group protocol, as conversations that are held with both brokers (see tests/contract)."""

from __future__ import annotations

import threading
import time
from typing import Any

from tests.contract.raw import Connection
from tests.contract.schema import Tree
from tests.contract.session import Session, Topic

PROTOCOLS = [{"name": "range", "metadata": b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"}]


def _ready(s: Session, suffix: str = "g") -> str:
    group = s.name(suffix)

    def found() -> bool:
        answer = s.ask("find_coordinator", 4, key_type=0, coordinator_keys=[group])["coordinators"][0]
        return bool(answer["error_code"] == "none")

    s.until(found, "coordinator")
    s.until(lambda: s.ask("heartbeat", 4, group_id=group, generation_id=0, member_id="x")["error_code"] != "none")
    s.until(lambda: s.ask("offset_fetch", 9, groups=[{"group_id": group}])["groups"][0]["error_code"] == "none")
    return group


def _join_body(group: str, member: str = "", **more: Any) -> Tree:
    return {
        "group_id": group,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": PROTOCOLS,
    } | more


def _join(connection: Connection, group: str, version: int = 9, **more: Any) -> Tree:
    answer = connection.call("join_group", version, **_join_body(group, **more))
    if answer["error_code"] == "member_id_required":
        answer = connection.call("join_group", version, **_join_body(group, answer["member_id"], **more))
    return answer


def _sync(connection: Connection, group: str, joined: Tree, version: int = 5, **more: Any) -> Tree:
    leads = joined["leader"] == joined["member_id"]
    work = [{"member_id": one["member_id"], "assignment": b"work"} for one in joined["members"]] if leads else []
    body = {
        "group_id": group,
        "generation_id": joined["generation_id"],
        "member_id": joined["member_id"],
        "protocol_type": joined["protocol_type"],
        "protocol_name": joined["protocol_name"],
        "assignments": work,
    }
    return connection.call("sync_group", version, **(body | more))


def _alone(s: Session, **more: Any) -> tuple[str, Tree, Connection]:
    group = _ready(s)
    connection = s.connect()
    joined = _join(connection, group, **more)
    s.note("joined", joined)
    instance = {"group_instance_id": more["group_instance_id"]} if "group_instance_id" in more else {}
    s.note("synced", _sync(connection, group, joined, **instance))
    return group, joined, connection


def _commit(s: Session, group: str, topic: Topic, version: int = 9, offset: int = 5, **more: Any) -> None:
    metadata = more.pop("metadata", "m")
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": metadata}
    body: Tree = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": topic.name, "topic_id": topic.id, "partitions": [partition]}],
    }
    s.call("offset_commit", version, **(body | more))


def _committed(s: Session, group: str, topic: Topic, **more: Any) -> None:
    asked = {"group_id": group, "topics": [{"name": topic.name, "topic_id": topic.id, "partition_indexes": [0, 1, 9]}]}
    s.call("offset_fetch", 9, groups=[asked], **more)


def coordinators_of_transactions(s: Session) -> None:
    def found() -> bool:
        answer = s.ask("find_coordinator", 4, key_type=1, coordinator_keys=["t"])["coordinators"][0]
        return bool(answer["error_code"] == "none")

    s.until(found, "coordinator")
    s.call("find_coordinator", 6, key_type=1, coordinator_keys=["t", ""])
    s.call("find_coordinator", 2, key_type=1, key="t")


def coordinators_of_share_partitions_that_cannot_be(s: Session) -> None:
    for version, key in (
        (4, "g:AAAAAAAAAAAAAAAAAAAAAA:0"),
        (6, "g"),
        (6, "g:x:0"),
        (6, "g:AAAAAAAAAAAAAAAAAAAAAQ:x"),
        (6, ""),
    ):
        s.call("find_coordinator", version, key_type=2, coordinator_keys=[key])
    s.call("find_coordinator", 3, key_type=2, key="g:AAAAAAAAAAAAAAAAAAAAAQ:0")
    for version in (1, 3):
        s.call("find_coordinator", version, key_type=7, key="g")


def operations_on_groups(s: Session) -> None:
    group, _, _ = _alone(s)
    for version in (3, 6):
        s.call("describe_groups", version, groups=[group], include_authorized_operations=True)
        s.call("describe_groups", version, groups=[group, ""], include_authorized_operations=False)


def connect_workers_form_groups(s: Session) -> None:
    worker = {"protocol_type": "connect", "protocols": [{"name": "sessioned", "metadata": b"\x00"}]}
    group, joined, connection = _alone(s, **worker)
    s.note("a consumer", _join(s.connect(), group))
    s.call("describe_groups", 5, groups=[group])
    topic = s.topic()
    s.call("offset_delete", 0, group_id=group, topics=[{"name": topic.name, "partitions": [{"partition_index": 0}]}])
    s.note("wrong type", _sync(connection, group, joined, protocol_type="consumer"))


def commits_with_a_retention_of_their_own(s: Session) -> None:
    topic, group = s.topic(), _ready(s)
    for version in (2, 3, 4):
        _commit(s, group, topic, version, retention_time=60_000, offset=version)
        _committed(s, group, topic)


def commits_of_odd_values(s: Session) -> None:
    topic, group = s.topic(), _ready(s)
    for metadata in (None, "", "x" * 4096, "x" * 4097, "é" * 4096):
        _commit(s, group, topic, metadata=metadata)
    for offset in (-1, -5, 2**63 - 1):
        _commit(s, group, topic, offset=offset)
        _committed(s, group, topic)
    _commit(s, group, topic, topics=[])
    _commit(s, "", topic)
    s.call("offset_fetch", 5, group_id="", topics=None)


def commits_of_strangers_to_a_group_at_work(s: Session) -> None:
    topic = s.topic()
    group, joined, _ = _alone(s)
    known = {"generation_id_or_member_epoch": joined["generation_id"], "member_id": joined["member_id"]}
    for version in (2, 8, 9, 10):
        _commit(s, group, topic, version)
        _commit(s, group, topic, version, member_id="nobody")
        _commit(s, group, topic, version, **(known | {"generation_id_or_member_epoch": -1}))
        _commit(s, group, topic, version, **(known | {"generation_id_or_member_epoch": 99}))
        _commit(s, group, topic, version, **known)
        if version >= 7:
            _commit(s, group, topic, version, **known, group_instance_id="i")
            _commit(s, group, topic, version, group_instance_id="i")
    _commit(s, s.name("none"), topic, 8, generation_id_or_member_epoch=0)
    _commit(s, s.name("none"), topic, 9, generation_id_or_member_epoch=0, member_id="x")


def commits_of_unknown_partitions(s: Session) -> None:
    topic, group = s.topic(), _ready(s)
    partitions = [{"partition_index": index, "committed_offset": 3} for index in (0, 1, -1)]
    for version in (2, 9, 10):
        _commit(s, group, topic, version, topics=[{"name": topic.name, "topic_id": topic.id, "partitions": partitions}])
    _commit(s, group, Topic(s.name("nowhere"), s.ask("metadata", topics=[])["topics"] or topic.id), 9)
    _committed(s, group, topic)
    _committed(s, group, topic, require_stable=True)


def a_simple_group_without_offsets(s: Session) -> None:
    topic, group = s.topic(), _ready(s)
    _commit(s, group, topic)
    s.call("offset_delete", 0, group_id=group, topics=[{"name": topic.name, "partitions": [{"partition_index": 0}]}])
    s.call("describe_groups", 6, groups=[group])
    s.call("delete_groups", 2, groups_names=[group, group])


def a_group_that_was_left(s: Session) -> None:
    group, joined, connection = _alone(s)
    topic = s.topic()
    s.note("left", connection.call("leave_group", 2, group_id=group, member_id=joined["member_id"]))
    s.call("describe_groups", 5, groups=[group])
    for version in (0, 5):
        s.note("sync", _sync(connection, group, joined, version))
    beat = {"group_id": group, "generation_id": joined["generation_id"], "member_id": joined["member_id"]}
    s.note("heartbeat", connection.call("heartbeat", 4, **beat))
    s.note("join", connection.call("join_group", 9, **_join_body(group, joined["member_id"])))
    s.note("leave", connection.call("leave_group", 2, group_id=group, member_id=joined["member_id"]))
    _commit(s, group, topic, generation_id_or_member_epoch=joined["generation_id"], member_id=joined["member_id"])
    _commit(s, group, topic)
    again = _join(s.connect(), group)
    s.note("generations passed", again["generation_id"] - joined["generation_id"])


def ids_that_were_given_and_not_used(s: Session) -> None:
    group = _ready(s)
    given = s.ask("join_group", 9, **_join_body(group))
    s.note("given", given)
    s.until(lambda: s.ask("describe_groups", 5, groups=[group])["groups"][0]["group_state"] == "Empty")
    s.note("with an instance", s.ask("join_group", 9, **_join_body(group, given["member_id"], group_instance_id="i")))
    s.note("heartbeat", s.ask("heartbeat", 4, group_id=group, generation_id=0, member_id=given["member_id"]))
    s.note("leave", s.ask("leave_group", 5, group_id=group, members=[{"member_id": given["member_id"]}]))
    s.note("join", s.ask("join_group", 9, **_join_body(group, given["member_id"])))


def a_follower_and_a_leader_join_again(s: Session) -> None:
    group, joined, connection = _alone(s)
    s.note("leader", _join(connection, group, member=joined["member_id"]))
    again = _join(connection, group, member=joined["member_id"])
    s.note("leader while it completes", again)
    s.note("passed", again["generation_id"] - joined["generation_id"])
    body = {"group_id": group, "generation_id": again["generation_id"], "member_id": joined["member_id"]}
    s.note("heartbeat while it completes", connection.call("heartbeat", 4, **body))
    topic = s.topic()
    member = {"generation_id_or_member_epoch": again["generation_id"], "member_id": joined["member_id"]}
    _commit(s, group, topic, **member)


def a_static_leader_comes_back(s: Session) -> None:
    group, joined, _ = _alone(s, group_instance_id="one")
    for version in (5, 8, 9):
        back = s.connect().call("join_group", version, **_join_body(group, group_instance_id="one"))
        s.note(f"version {version}", back)
        s.note("still of the first generation", back["generation_id"] == joined["generation_id"])
        s.note("leads", back["leader"] == back["member_id"])
    s.note("sync", _sync(s.connect(), group, back, group_instance_id="one"))
    s.note("sync without the instance", _sync(s.connect(), group, back))
    s.note(
        "leave by the old id",
        s.ask(
            "leave_group",
            5,
            group_id=group,
            members=[
                {"member_id": joined["member_id"], "group_instance_id": "one"},
                {"member_id": back["member_id"], "group_instance_id": "two"},
                {"member_id": back["member_id"]},
            ],
        ),
    )
    s.call("describe_groups", 5, groups=[group])


def a_static_member_with_a_new_subscription(s: Session) -> None:
    group, joined, _ = _alone(s, group_instance_id="one")
    changed = [{"name": "range", "metadata": b"other"}]
    back = s.connect().call("join_group", 9, **_join_body(group, group_instance_id="one", protocols=changed))
    s.note("same protocol", back)
    s.note("passed", back["generation_id"] - joined["generation_id"])
    other = [{"name": "sticky", "metadata": b""}]
    s.note(
        "no common protocol",
        s.connect().call("join_group", 9, **_join_body(group, group_instance_id="one", protocols=other)),
    )


def a_full_rebalance_of_three(s: Session) -> None:
    group, joined, leader = _alone(s)
    answers: dict[str, Tree] = {}

    def join_in(name: str) -> None:
        answers[name] = _join(s.connect(name), group)

    newcomers = [threading.Thread(target=join_in, args=(name,)) for name in ("b", "c")]
    for thread in newcomers:
        thread.start()
        time.sleep(0.3)
    beat = {"group_id": group, "generation_id": joined["generation_id"], "member_id": joined["member_id"]}
    s.note("heartbeat", leader.call("heartbeat", 4, **beat))
    s.note("sync in between", _sync(leader, group, joined))
    s.call("describe_groups", 5, groups=[s.name("nowhere")])
    again = _join(leader, group, member=joined["member_id"])
    for thread in newcomers:
        thread.join()
    s.note("members", len(again["members"]))
    s.note("generations", {one["generation_id"] - joined["generation_id"] for one in (again, *answers.values())} == {1})
    s.note("leaders", {one["leader"] for one in (again, *answers.values())} == {joined["member_id"]})
    s.note("lists", [len(one["members"]) for one in answers.values()])
    s.note("old generation", leader.call("heartbeat", 4, **beat))


def many_are_asked_for_at_once(s: Session) -> None:
    topic, group = s.topic(), _ready(s)
    _commit(s, group, topic)
    s.call("offset_fetch", 9, groups=[{"group_id": one, "topics": None} for one in (group, s.name("none"), "")])
    s.call("offset_fetch", 9, groups=[{"group_id": group, "topics": []}], require_stable=True)
    s.call("offset_fetch", 10, groups=[{"group_id": group, "topics": None, "member_id": "m", "member_epoch": 3}])
    s.call("offset_fetch", 8, groups=[])
    s.call("describe_groups", 6, groups=[])
    s.call("leave_group", 5, group_id=group, members=[])
    s.call("leave_group", 5, group_id="", members=[{"member_id": "x"}])
    s.call("leave_group", 1, group_id="", member_id="x")
    s.call("leave_group", 1, group_id=s.name("none"), member_id="x")
    s.call("list_groups", 5, states_filter=["NOSUCH"], types_filter=["share"])
