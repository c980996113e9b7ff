"""Consumer groups of KIP-848: the broker assigns, heartbeats carry everything."""

from __future__ import annotations

from typing import Any

from tests.contract.members import Member, describe, owned, ready_group
from tests.contract.scenarios.transactions import OLD, Producer
from tests.contract.schema import Tree
from tests.contract.session import Session, Topic, in_every_version


@in_every_version("consumer_group_heartbeat")
def a_member_joins_stays_and_leaves(s: Session) -> None:
    topic, group = s.topic(partitions=3), ready_group(s)
    member = Member(s, group, "m1", version=s.version)
    member.join(topic)
    member.heartbeat()
    member.confirm()
    describe(s, group)
    member.leave()
    member.heartbeat()
    describe(s, group)


def a_member_without_an_id_is_given_one_by_the_first_version_only(s: Session) -> None:
    topic, group = s.topic(), ready_group(s)
    for version in (0, 1):
        member = Member(s, group, "", version=version)
        member.join(topic)
        member.leave()


@in_every_version("consumer_group_describe")
def groups_are_described(s: Session) -> None:
    topic, group = s.topic(partitions=2), ready_group(s)
    member = Member(s, group, "m1")
    member.join(topic, "no-such-topic", rack_id="r", instance_id="i")
    asked = {"group_ids": [group, s.name("none")], "include_authorized_operations": True}
    s.call("consumer_group_describe", s.version, **asked)
    s.call("consumer_group_describe", s.version, group_ids=[])


def partitions_are_given_up_before_others_get_them(s: Session) -> None:
    topic, group = s.topic(partitions=4), ready_group(s)
    one, two = Member(s, group, "m1"), Member(s, group, "m2")
    one.join(topic)
    two.join(topic)
    describe(s, group, whole=False)
    one.heartbeat(whole=False)
    two.heartbeat(whole=False)
    one.heartbeat(whole=False, topic_partitions=owned({topic: [0, 1, 2, 3]}))
    two.heartbeat(whole=False)
    one.confirm(whole=False)
    two.heartbeat(whole=False)
    two.confirm(whole=False)
    describe(s, group, whole=False)
    two.leave()
    describe(s, group, whole=False)
    one.heartbeat()
    describe(s, group)


def three_members_one_after_the_other(s: Session) -> None:
    topics, group = [s.topic("a", 3), s.topic("b", 4)], ready_group(s)
    members = [Member(s, group, f"m{number}") for number in range(3)]
    for member in members:
        member.join(*topics, note=False)
    for _ in range(4):
        for member in members:
            member.confirm(note=False)
    s.note("sizes", sorted(member.size for member in members))
    s.note("epochs", [member.epoch for member in members])


def heartbeats_that_cannot_be(s: Session) -> None:
    topic, group = s.topic(), ready_group(s)
    full = {"rebalance_timeout": 1000, "subscribed_topic_names": [topic.name], "topic_partitions": []}
    member = Member(s, group, "m1")
    bodies: list[Tree] = [
        full | {"group_id": ""},
        full | {"member_id": ""},
        full | {"instance_id": ""},
        full | {"rack_id": ""},
        full | {"rebalance_timeout": -1},
        full | {"topic_partitions": None},
        full | {"topic_partitions": owned({topic: [0]})},
        full | {"subscribed_topic_names": None},
        full | {"server_assignor": "no-such"},
        full | {"server_assignor": ""},
        full | {"member_epoch": -3},
        full | {"member_epoch": -2},
        full | {"member_epoch": 1},
        {"member_epoch": -1},
        {"member_epoch": -1, "instance_id": "i"},
    ]
    for body in bodies:
        s.call("consumer_group_heartbeat", 1, **(member.body(0) | body))
    describe(s, group)


def strangers_are_refused(s: Session) -> None:
    topic, group = s.topic(), ready_group(s)
    member, stranger = Member(s, group, "m1"), Member(s, group, "m2")
    stranger.heartbeat(3)
    member.join(topic)
    stranger.heartbeat(3)
    stranger.leave()
    stranger.leave(-2, instance_id="i")
    stranger.heartbeat(3, instance_id="i")


def a_lost_answer_is_made_good(s: Session) -> None:
    topic, group = s.topic(partitions=2), ready_group(s)
    one, two = Member(s, group, "m1"), Member(s, group, "m2")
    one.join(topic)
    two.join(topic)
    before = one.epoch
    one.confirm(note=False)
    one.heartbeat(topic_partitions=one.has, whole=False)
    kept = one.has
    one.heartbeat(before, topic_partitions=kept, whole=False)
    one.heartbeat(before, topic_partitions=owned({topic: [0, 1]}), whole=False)
    one.heartbeat(before, whole=False)
    one.heartbeat(before - 1, topic_partitions=[], whole=False)
    one.heartbeat(one.epoch + 1, topic_partitions=[], whole=False)
    one.join(topic, whole=False)


def subscriptions_change(s: Session) -> None:
    one, two = s.topic("a", 2), s.topic("b", 1)
    group = ready_group(s)
    member = Member(s, group, "m1")
    member.join(one)
    member.heartbeat(subscribed_topic_names=[one.name, two.name])
    member.heartbeat(subscribed_topic_names=[two.name])
    describe(s, group)
    member.heartbeat(subscribed_topic_names=[two.name], topic_partitions=owned({two: [0], one: [0]}))
    member.confirm()
    describe(s, group)
    member.heartbeat(subscribed_topic_names=[], topic_partitions=member.has)
    member.confirm()
    describe(s, group)


def a_member_without_topics_has_nothing(s: Session) -> None:
    group = ready_group(s)
    member = Member(s, group, "m1")
    member.join()
    member.heartbeat()
    describe(s, group)


def static_members_come_back_as_themselves(s: Session) -> None:
    topic, group = s.topic(partitions=2), ready_group(s)
    first, second, third = (Member(s, group, f"m{number}") for number in (1, 2, 3))
    static = {"instance_id": "i"}
    first.join(topic, **static)
    first.heartbeat(**static)
    second.join(topic, **static)
    first.leave(-2, **static)
    describe(s, group)
    first.heartbeat(-2, **static)
    second.join(topic, **static)
    describe(s, group)
    first.heartbeat(**static)
    first.heartbeat()
    first.leave(-1, **static)
    second.heartbeat(**static)
    second.heartbeat()
    second.leave(-1, **static)
    third.join(topic, **static)
    describe(s, group)


def a_static_member_that_left_for_good_leaves_its_partitions(s: Session) -> None:
    topic, group = s.topic(partitions=2), ready_group(s)
    static, other = Member(s, group, "m1"), Member(s, group, "m2")
    static.join(topic, instance_id="i")
    other.join(topic)
    static.leave(-2, instance_id="i")
    other.heartbeat(whole=False)
    describe(s, group, whole=False)
    static.leave(-1, instance_id="i")
    other.heartbeat()
    describe(s, group)


def ranges(s: Session) -> None:
    one, two, group = s.topic("a", 5), s.topic("b", 5), ready_group(s)
    members = [Member(s, group, f"m{number}") for number in range(2)]
    for member in members:
        member.join(one, two, server_assignor="range", note=False)
    for _ in range(3):
        for member in members:
            member.confirm(note=False)
    shares = [{topic["topic_id"]: sorted(topic["partitions"]) for topic in member.has} for member in members]
    s.note("alike", [share[one.id] == share[two.id] for share in shares])
    s.note("in ranges", [share[one.id] == list(range(share[one.id][0], share[one.id][-1] + 1)) for share in shares])
    s.note("sizes", sorted(member.size for member in members))
    s.note("assignor", describe(s, group, whole=False)["assignor_name"])


def topics_come_grow_and_go(s: Session) -> None:
    group = ready_group(s)
    member = Member(s, group, "m1")
    later = s.name("later")
    member.join(later)
    topic = s.topic("later", 1)

    def has(count: int) -> bool:
        member.confirm(note=False)
        return member.size == count

    s.until(lambda: has(1), "the new topic")
    s.ask("create_partitions", topics=[{"name": later, "count": 3, "assignments": None}], timeout=5000)
    s.until(lambda: has(3), "the new partitions")
    describe(s, group, whole=False)
    s.ask("delete_topics", topics=[{"name": later, "topic_id": None}], timeout=5000)
    s.until(lambda: has(0), "the topic to go")
    describe(s, group, whole=False)
    s.note("topic", topic.name)


def regular_expressions(s: Session) -> None:
    s.topic("x-one", 1), s.topic("x-two", 2), s.topic("y", 3)
    group = ready_group(s)
    member = Member(s, group, "m1")
    member.join(note=False, subscribed_topic_names=None, subscribed_topic_regex=f"{s.prefix}-x-(one|two|three)")

    def has(count: int) -> bool:
        member.confirm(note=False)
        return member.size == count

    s.until(lambda: has(3), "the topics of the expression")
    described = describe(s, group, whole=False)
    s.note("regex", described["members"][0]["subscribed_topic_regex"])


def regular_expressions_are_checked(s: Session) -> None:
    group = ready_group(s)
    for number, (text, _) in enumerate(PATTERNS):
        member = Member(s, f"{group}-{number}", "m1")
        answer = member.join(subscribed_topic_names=None, subscribed_topic_regex=text, note=False)
        s.note(text, answer["error_code"])


PATTERNS = (
    *(
        (text, False)
        for text in ("(", "[", "a**", "(?=x)", "(a)\\1", "*", "a{1001}", "a++", "a*+", "\\Z", "(?x)a", ")")
    ),
    *((text, False) for text in ("a|*", "\\C", "[z-a]", "\\k", "\\e", "[a", "(?#c)a", "a?+", "a{2}{3}", "(?i", "\\8")),
    *((text, False) for text in ("(?P<n>a)(?P<n>b)", "[[:foo:]]", "\\", "a{2,1}", "(?P<>a)", "\\p{Nonsense", "(?<!a)")),
    *((text, True) for text in ("\\Q..\\E", "[[:alpha:]]+", "\\pL+", "(?<n>a)", "(?P<n>a)", "a{,2}", "a{2", "\\z", "")),
    *((text, True) for text in ("(?i)A", "[\\d-z]", "(?U)a", "x{0}", "\\p{Greek}", "\\x41", "\\x{41}", "\\07", "\\a")),
    *(
        (text, True)
        for text in ("[]a]", "[^]a]", "\\_", "^*", "$*", "\\b+", "(a*)*", "a|b|", "(?i:a)b", "[^a-c]{2,5}?")
    ),
)
"""Expressions, and whether Kafka takes them."""


def _commit(s: Session, group: str, topic: Topic, member: str, epoch: int, version: int, **more: Any) -> None:
    partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    body = {
        "group_id": group,
        "generation_id_or_member_epoch": epoch,
        "member_id": member,
        "topics": [{"name": topic.name, "topic_id": topic.id, "partitions": [partition]}],
    }
    s.call("offset_commit", version, **(body | more))


@in_every_version("offset_commit")
def members_commit_in_their_epoch(s: Session) -> None:
    topic, group = s.topic(), ready_group(s)
    member = Member(s, group, "m1")
    _commit(s, group, topic, "m1", 1, s.version)
    _commit(s, group, topic, "", -1, s.version)
    member.join(topic)
    for name, epoch in (
        ("m1", member.epoch),
        ("m1", member.epoch - 1),
        ("m1", member.epoch + 1),
        ("m1", 0),
        ("m2", 2),
        ("m2", -1),
        ("", -1),
    ):
        _commit(s, group, topic, name, epoch, s.version)
    member.leave()
    _commit(s, group, topic, "m1", member.epoch, s.version)
    _commit(s, group, topic, "", -1, s.version)


def a_commit_of_an_older_epoch_counts_while_the_partition_is_still_there(s: Session) -> None:
    topic, other, group = s.topic("a"), s.topic("b"), ready_group(s)
    member = Member(s, group, "m1")
    member.join(topic)
    before = member.epoch
    member.heartbeat(subscribed_topic_names=[topic.name, other.name], topic_partitions=member.has)
    _commit(s, group, topic, "m1", before, 9)
    _commit(s, group, other, "m1", before, 9)
    _commit(s, group, topic, "m1", before - 1, 9)


@in_every_version("offset_fetch")
def members_fetch_offsets_in_their_epoch(s: Session) -> None:
    topic, group = s.topic(), ready_group(s)
    member = Member(s, group, "m1")
    member.join(topic)
    _commit(s, group, topic, "m1", member.epoch, 9)
    asked = [{"name": topic.name, "topic_id": topic.id, "partition_indexes": [0]}]
    if s.version < 8:
        s.call("offset_fetch", s.version, group_id=group, topics=asked)
        return
    for name, epoch in ((None, -1), ("m1", member.epoch), ("m1", member.epoch - 1), ("m1", -1), ("m2", 2), ("", -1)):
        body = {"group_id": group, "topics": asked, "member_id": name, "member_epoch": epoch}
        s.call("offset_fetch", s.version, groups=[body])
    missing = {"group_id": s.name("none"), "topics": asked, "member_id": "m1", "member_epoch": 3}
    s.call("offset_fetch", s.version, groups=[missing])


@in_every_version("txn_offset_commit")
def members_commit_in_transactions_in_their_epoch(s: Session) -> None:
    topic, group = s.topic(), ready_group(s)
    producer = Producer(s, s.name("x"), OLD | {"txn_offset_commit": s.version})
    s.until(lambda: _is_ready(s, producer.name), "coordinator")
    producer.init()
    if s.version < 5:
        producer.add_offsets(group)
    member = Member(s, group, "m1")
    member.join(topic)
    producer.commit_offset(group, topic, 1)
    if s.version >= 3:
        for name, epoch in (("m1", member.epoch), ("m1", 1), ("m1", 9), ("m2", 2), ("m2", -1), ("", -1)):
            producer.commit_offset(group, topic, 2, member_id=name, generation_id=epoch)
    producer.end(False)


def _is_ready(s: Session, transactional_id: str) -> bool:
    (found,) = s.ask("find_coordinator", 4, key_type=1, coordinator_keys=[transactional_id])["coordinators"]
    return bool(found["error_code"] == "none")


def offsets_of_topics_that_are_read_are_not_deleted(s: Session) -> None:
    topic, other, group = s.topic("a"), s.topic("b"), ready_group(s)
    member = Member(s, group, "m1")
    member.join(topic)
    _commit(s, group, topic, "m1", member.epoch, 9)
    _commit(s, group, other, "m1", member.epoch, 9)
    both = [{"name": each.name, "partitions": [{"partition_index": 0}]} for each in (topic, other)]
    s.call("offset_delete", group_id=group, topics=both)
    member.leave()
    s.call("offset_delete", group_id=group, topics=both)


def groups_with_members_are_not_deleted(s: Session) -> None:
    topic, group = s.topic(), ready_group(s)
    member = Member(s, group, "m1")
    member.join(topic)
    s.call("delete_groups", groups_names=[group])
    member.leave()
    _commit(s, group, topic, "", -1, 9)
    s.call("delete_groups", groups_names=[group])
    s.call("delete_groups", groups_names=[group])
    describe(s, group)
    fresh = Member(s, group, "m1")
    fresh.join(topic)


@in_every_version("list_groups")
def groups_are_listed_by_type_and_state(s: Session) -> None:
    topic, group = s.topic(), ready_group(s)
    member = Member(s, group, "m1")
    member.join(topic)

    def listed(**filters: list[str]) -> None:
        answer = s.ask("list_groups", s.version, **filters)
        mine = [one for one in answer["groups"] if one["group_id"].startswith(s.prefix)]
        s.note(str(filters), answer | {"groups": mine})

    listed()
    if s.version >= 4:
        for states in (["Stable"], ["stable"], ["Empty"], ["Assigning", "Reconciling"], ["nonsense"]):
            listed(states_filter=states)
    if s.version >= 5:
        for types in (["consumer"], ["Consumer"], ["classic"], ["share"], ["nonsense"]):
            listed(types_filter=types)
    member.leave()
    listed()


@in_every_version("describe_groups")
def a_consumer_group_is_no_classic_group(s: Session) -> None:
    topic, group = s.topic(), ready_group(s)
    Member(s, group, "m1").join(topic)
    s.call("describe_groups", s.version, groups=[group], include_authorized_operations=s.version >= 3)


def names_of_any_length_and_content(s: Session) -> None:
    topic, group = s.topic(), ready_group(s)
    for name in (" ", "ünï\u2603", "a/b:c\n", "x" * 1000, f"{group}\x00"):
        member = Member(s, f"{group}{name}", "m" * 1000)
        member.join(topic)
        member.leave()
