"""Topics: metadata, creation, partitions, deletion."""

import uuid
from typing import Any

from tests.contract.batches import batch
from tests.contract.session import Session, in_every_version

NOBODY = uuid.uuid5(uuid.NAMESPACE_OID, "nobody")
BAD_NAMES = ("", ".", "..", "a/b", "a b", "é", "x" * 250, "a:b", "a\0b")


def _create(s: Session, *topics: dict[str, Any], version: int | None = None, validate_only: bool = False) -> None:
    answer = s.ask("create_topics", version, topics=list(topics), timeout=10_000, validate_only=validate_only)
    for topic in answer["topics"]:
        s.transcript.names.learn(topic.get("topic_id"), f"<id of {topic['name']}>") if topic.get(
            "topic_id", NOBODY
        ).int else None
    s.note("create_topics", answer)


def _spec(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": replicas, **more}


@in_every_version("metadata")
def topics_by_name(s: Session) -> None:
    topic = s.topic(partitions=3)
    s.call("metadata", s.version, topics=[{"name": topic.name}], allow_auto_topic_creation=False)


@in_every_version("metadata")
def a_topic_that_is_not_there_is_unknown(s: Session) -> None:
    if s.version >= 4:
        s.call("metadata", s.version, topics=[{"name": s.name("nowhere")}], allow_auto_topic_creation=False)


@in_every_version("metadata")
def names_that_cannot_be_topics(s: Session) -> None:
    for name in BAD_NAMES:
        s.call("metadata", s.version, topics=[{"name": name}], allow_auto_topic_creation=True)


@in_every_version("metadata")
def the_brokers_alone(s: Session) -> None:
    if s.version >= 1:
        s.call("metadata", s.version, topics=[])


@in_every_version("metadata")
def authorized_operations_are_told_when_asked_for(s: Session) -> None:
    topic = s.topic()
    if s.version >= 8:
        s.call(
            "metadata",
            s.version,
            topics=[{"name": topic.name}],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        )


def all_topics_are_listed(s: Session) -> None:
    mine = {s.topic("a").name, s.topic("b", 2).name}
    for version in (0, 1, 12):
        everything = s.ask("metadata", version, topics=[] if version == 0 else None)
        s.note("mine", [topic for topic in everything["topics"] if topic["name"] in mine])


def topics_by_id(s: Session) -> None:
    topic = s.topic(partitions=2)
    for version in (10, 12, 13):
        s.call("metadata", version, topics=[{"topic_id": topic.id, "name": None}], allow_auto_topic_creation=False)
        s.call("metadata", version, topics=[{"topic_id": NOBODY, "name": None}], allow_auto_topic_creation=False)
        s.call("metadata", version, topics=[{"topic_id": NOBODY, "name": topic.name}], allow_auto_topic_creation=False)


def a_topic_is_made_when_asked_for(s: Session) -> None:
    name = s.name("auto")
    s.ask("metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=True)
    s.until(lambda: s.ready(name, 1), "the topic")
    found = s.ask("metadata", 9, topics=[{"name": name}], allow_auto_topic_creation=False)
    s.note("made", found)


def a_topic_is_not_made_when_not_asked_for(s: Session) -> None:
    name = s.name("never")
    for _ in range(2):
        s.call("metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=False)


@in_every_version("create_topics")
def a_topic_is_made(s: Session) -> None:
    name = s.name("new")
    _create(s, _spec(name, 3), version=s.version)
    s.until(lambda: s.ready(name, 3))
    _create(s, _spec(name, 3), version=s.version)


@in_every_version("create_topics")
def only_checking_makes_nothing(s: Session) -> None:
    name = s.name("checked")
    _create(s, _spec(name, 3), version=s.version, validate_only=True)
    _create(s, _spec(name, 0), version=s.version, validate_only=True)
    s.call("metadata", topics=[{"name": name}], allow_auto_topic_creation=False)


@in_every_version("create_topics")
def settings_of_a_new_topic_are_told(s: Session) -> None:
    configs = [{"name": "retention.ms", "value": "1000"}, {"name": "cleanup.policy", "value": "compact,delete"}]
    _create(s, _spec(s.name("set"), configs=configs), version=s.version)


def default_partitions_and_replicas(s: Session) -> None:
    _create(s, _spec(s.name("default"), -1, -1))
    s.until(lambda: s.ready(s.name("default"), 1))
    _create(s, _spec(s.name("default"), -1, -1), version=3)


def counts_that_cannot_be(s: Session) -> None:
    for partitions, replicas in ((0, 1), (-2, 1), (1, 0), (1, 2), (1, -2), (1, 32767), (-1, 2)):
        _create(s, _spec(s.name("bad"), partitions, replicas))


def names_that_cannot_be_made(s: Session) -> None:
    for name in BAD_NAMES:
        _create(s, _spec(name))


def names_that_can_be_made(s: Session) -> None:
    for name in (
        f"{s.prefix}.dots",
        f"{s.prefix}_under",
        f"{s.prefix}-{'x' * (248 - len(s.prefix))}",
        f"{s.prefix}-UPPER",
    ):
        _create(s, _spec(name))


def names_that_differ_only_in_dots_and_underscores(s: Session) -> None:
    _create(s, _spec(f"{s.prefix}.a"))
    s.until(lambda: s.ready(f"{s.prefix}.a", 1))
    _create(s, _spec(f"{s.prefix}_a"))
    _create(s, _spec(f"{s.prefix}.A"))


def internal_names(s: Session) -> None:
    s.until(lambda: s.ask("find_coordinator", 4, key_type=0, coordinator_keys=["g"])["coordinators"][0]["node_id"] == 1)
    s.until(lambda: s.ready("__consumer_offsets", 1))
    _create(s, _spec("__consumer_offsets"))
    s.call("metadata", 9, topics=[{"name": "__consumer_offsets"}], allow_auto_topic_creation=False)


def the_same_name_twice_in_a_request(s: Session) -> None:
    _create(s, _spec(s.name("twice")), _spec(s.name("twice"), 2), _spec(s.name("once")))
    s.call("metadata", topics=[{"name": s.name("twice")}], allow_auto_topic_creation=False)


def settings_that_cannot_be(s: Session) -> None:
    for name, value in (
        ("no.such.setting", "1"),
        ("retention.ms", "abc"),
        ("retention.ms", "-2"),
        ("retention.ms", None),
        ("cleanup.policy", "shred"),
        ("cleanup.policy", ""),
        ("segment.bytes", "1"),
        ("max.message.bytes", "-1"),
        ("message.timestamp.type", "Never"),
        ("min.cleanable.dirty.ratio", "2"),
        ("compression.type", "rar"),
        ("preallocate", "maybe"),
        ("min.insync.replicas", "0"),
        ("", "1"),
    ):
        _create(s, _spec(s.name("bad"), configs=[{"name": name, "value": value}]))


def settings_in_unusual_spelling(s: Session) -> None:
    for number, (name, value) in enumerate(
        (
            ("retention.ms", " 1000 "),
            ("cleanup.policy", "delete , compact"),
            ("preallocate", "TRUE"),
            ("compression.type", "GZIP"),
        )
    ):
        _create(s, _spec(s.name(f"odd{number}"), configs=[{"name": name, "value": value}]))


def the_same_setting_twice(s: Session) -> None:
    configs = [{"name": "retention.ms", "value": "1000"}, {"name": "retention.ms", "value": "2000"}]
    _create(s, _spec(s.name("dup"), configs=configs))


def assignments_by_hand(s: Session) -> None:
    def at(*brokers: list[int]) -> list[dict[str, Any]]:
        return [{"partition_index": index, "broker_ids": ids} for index, ids in enumerate(brokers)]

    _create(s, _spec(s.name("hand"), -1, -1, assignments=at([1], [1])))
    _create(s, _spec(s.name("both"), 2, 1, assignments=at([1], [1])))
    _create(s, _spec(s.name("other"), -1, -1, assignments=at([2])))
    _create(s, _spec(s.name("double"), -1, -1, assignments=at([1, 1])))
    _create(s, _spec(s.name("none"), -1, -1, assignments=at([])))
    _create(s, _spec(s.name("gap"), -1, -1, assignments=[{"partition_index": 1, "broker_ids": [1]}]))


def some_topics_of_a_request_may_fail(s: Session) -> None:
    _create(s, _spec(s.name("good")), _spec("bad name"), _spec(s.name("zero"), 0), _spec(s.name("good2"), 2))


def no_topics_at_all(s: Session) -> None:
    _create(s)
    s.call("delete_topics", topics=[], timeout=1000)
    s.call("create_partitions", topics=[], timeout=1000)


@in_every_version("delete_topics")
def a_topic_is_deleted(s: Session) -> None:
    topic = s.topic()
    s.fill(topic)
    body: dict[str, Any] = (
        {"topic_names": [topic.name]} if s.version < 6 else {"topics": [{"name": topic.name, "topic_id": None}]}
    )
    s.call("delete_topics", s.version, **body, timeout=10_000)
    s.until(lambda: not s.ready(topic.name, 1))
    s.call("delete_topics", s.version, **body, timeout=10_000)
    s.call("metadata", topics=[{"name": topic.name}], allow_auto_topic_creation=False)
    s.until(lambda: s.topic(), "made again")


def a_topic_is_deleted_by_id(s: Session) -> None:
    topic = s.topic()
    s.call("delete_topics", 6, topics=[{"name": None, "topic_id": NOBODY}], timeout=10_000)
    s.call("delete_topics", 6, topics=[{"name": topic.name, "topic_id": topic.id}], timeout=10_000)
    s.call("delete_topics", 6, topics=[{"name": None, "topic_id": topic.id}], timeout=10_000)
    s.until(lambda: not s.ready(topic.name, 1))
    s.call("delete_topics", 6, topics=[{"name": None, "topic_id": topic.id}], timeout=10_000)


def deleting_twice_in_one_request(s: Session) -> None:
    topic = s.topic()
    s.call("delete_topics", 5, topic_names=[topic.name, topic.name, s.name("nowhere")], timeout=10_000)


def deleting_names_that_cannot_be(s: Session) -> None:
    for name in BAD_NAMES:
        s.call("delete_topics", 5, topic_names=[name], timeout=10_000)


@in_every_version("create_partitions")
def partitions_are_added(s: Session) -> None:
    topic = s.topic()
    s.fill(topic)
    s.call(
        "create_partitions", s.version, topics=[{"name": topic.name, "count": 3, "assignments": None}], timeout=10_000
    )
    s.until(lambda: s.ready(topic.name, 3))
    s.produce(topic, partition=2)
    s.fetch(topic, partition=0)
    s.call("metadata", topics=[{"name": topic.name}], allow_auto_topic_creation=False)


@in_every_version("create_partitions")
def partitions_that_cannot_be_added(s: Session) -> None:
    topic = s.topic(partitions=2)
    for count in (2, 1, 0, -1):
        s.call(
            "create_partitions",
            s.version,
            topics=[{"name": topic.name, "count": count, "assignments": None}],
            timeout=10_000,
        )
    s.call(
        "create_partitions",
        s.version,
        topics=[{"name": s.name("nowhere"), "count": 3, "assignments": None}],
        timeout=10_000,
    )


def adding_partitions_by_hand(s: Session) -> None:
    topic = s.topic()
    for brokers in ([[1]], [[1], [1]], [[2], [1]], [[1], []], []):
        assigned = [{"broker_ids": ids} for ids in brokers]
        s.call(
            "create_partitions",
            3,
            topics=[{"name": topic.name, "count": 3, "assignments": assigned}],
            timeout=10_000,
            validate_only=True,
        )
    s.call("metadata", topics=[{"name": topic.name}], allow_auto_topic_creation=False)


def adding_partitions_twice_in_one_request(s: Session) -> None:
    topic = s.topic()
    s.call(
        "create_partitions",
        3,
        topics=[{"name": topic.name, "count": n, "assignments": None} for n in (2, 3)],
        timeout=10_000,
    )


def topic_partitions_are_described(s: Session) -> None:
    topic, second = s.topic("a", partitions=3), s.topic("b", partitions=2)
    names = [{"name": topic.name}, {"name": second.name}, {"name": s.name("nowhere")}]
    s.call("describe_topic_partitions", 0, topics=names, response_partition_limit=2000)
    for limit in (1, 2, 3, 4):
        s.call("describe_topic_partitions", 0, topics=names, response_partition_limit=limit)
    s.call(
        "describe_topic_partitions",
        0,
        topics=names,
        response_partition_limit=2,
        cursor={"topic_name": topic.name, "partition_index": 1},
    )
    s.call(
        "describe_topic_partitions",
        0,
        topics=names,
        response_partition_limit=10,
        cursor={"topic_name": second.name, "partition_index": 0},
    )


def topic_partitions_with_limits_that_cannot_be(s: Session) -> None:
    topic = s.topic()
    for limit in (0, -1):
        s.call("describe_topic_partitions", 0, topics=[{"name": topic.name}], response_partition_limit=limit)
    s.call(
        "describe_topic_partitions",
        0,
        topics=[{"name": topic.name}],
        response_partition_limit=10,
        cursor={"topic_name": topic.name, "partition_index": -1},
    )


def topic_partitions_of_names_that_cannot_be(s: Session) -> None:
    for name in BAD_NAMES:
        s.call("describe_topic_partitions", 0, topics=[{"name": name}], response_partition_limit=10)


def records_of_a_deleted_topic_do_not_come_back(s: Session) -> None:
    topic = s.topic()
    s.fill(topic, batch(), batch())
    s.ask("delete_topics", 5, topic_names=[topic.name], timeout=10_000)
    s.until(lambda: not s.ready(topic.name, 1))
    again = s.topic()
    s.fetch(again)
