"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from tests.contract.batches import NOW, batch
from tests.contract.session import EARLIEST, LATEST, MAX_TIMESTAMP, Session, Topic, in_every_version

SPECIAL = (EARLIEST, LATEST, MAX_TIMESTAMP, -4, -5, -6, -7, -100)


def _filled(s: Session, **configs: str) -> Topic:
    topic = s.topic(**configs)
    s.fill(
        topic,
        batch([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")], timestamp=NOW, timestamp_step=10),
        batch([(b"d", b"4"), (b"e", b"5")], timestamp=NOW + 1000, timestamp_step=10),
        batch([(b"f", b"6")], timestamp=NOW + 500),
    )
    return topic


@in_every_version("list_offsets")
def ends_of_a_log(s: Session) -> None:
    topic = _filled(s)
    s.list_offset(topic, EARLIEST, version=s.version)
    s.list_offset(topic, LATEST, version=s.version)
    if s.version >= 2:
        s.list_offset(topic, LATEST, version=s.version, isolation=1)


@in_every_version("list_offsets")
def times_in_a_log(s: Session) -> None:
    topic = _filled(s)
    for time in (
        0,
        NOW - 1,
        NOW,
        NOW + 1,
        NOW + 10,
        NOW + 11,
        NOW + 20,
        NOW + 21,
        NOW + 999,
        NOW + 1000,
        NOW + 1010,
        NOW + 1011,
    ):
        s.list_offset(topic, time, version=s.version)


@in_every_version("list_offsets")
def special_values(s: Session) -> None:
    topic = _filled(s)
    for value in SPECIAL:
        s.list_offset(topic, value, version=s.version)


@in_every_version("list_offsets")
def an_empty_log(s: Session) -> None:
    topic = s.topic()
    for value in (*SPECIAL, NOW):
        s.list_offset(topic, value, version=s.version)


@in_every_version("list_offsets")
def what_is_not_there(s: Session) -> None:
    topic = s.topic()
    s.list_offset(topic, LATEST, partition=4, version=s.version)
    s.list_offset(s.name("nowhere"), LATEST, version=s.version)


def times_in_compressed_batches(s: Session) -> None:
    topic = s.topic()
    for number, codec in enumerate(("gzip", "snappy", "lz4", "zstd")):
        s.fill(topic, batch([(b"k", b"v" * 20)] * 10, codec=codec, timestamp=NOW + number * 100, timestamp_step=10))
    for time in range(NOW - 5, NOW + 405, 35):
        s.list_offset(topic, time)
    s.list_offset(topic, MAX_TIMESTAMP)


def the_newest_timestamp_may_be_in_the_middle(s: Session) -> None:
    topic = s.topic()
    s.fill(topic, batch([(b"k", b"v")] * 3, timestamp=NOW + 100), batch(timestamp=NOW))
    s.list_offset(topic, MAX_TIMESTAMP)
    s.fill(topic, batch(timestamp=NOW + 100))
    s.list_offset(topic, MAX_TIMESTAMP)


def records_without_timestamps(s: Session) -> None:
    topic = s.topic()
    s.fill(topic, batch(timestamp=-1))
    for value in (0, NOW, MAX_TIMESTAMP, EARLIEST, LATEST):
        s.list_offset(topic, value)


def epochs_are_checked(s: Session) -> None:
    topic = _filled(s)
    for epoch in (0, 1, 50):
        s.list_offset(topic, LATEST, leader_epoch=epoch)


def asking_twice_for_a_partition(s: Session) -> None:
    topic = _filled(s)
    parts = [{"partition_index": 0, "timestamp": EARLIEST}, {"partition_index": 0, "timestamp": LATEST}]
    s.call("list_offsets", 5, replica_id=-1, topics=[{"name": topic.name, "partitions": parts}])


def a_replica_asks(s: Session) -> None:
    topic = _filled(s)
    for replica in (-2, 1, 7):
        parts = [{"partition_index": 0, "timestamp": LATEST}]
        s.call("list_offsets", 5, replica_id=replica, topics=[{"name": topic.name, "partitions": parts}])


@in_every_version("offset_for_leader_epoch")
def where_an_epoch_ends(s: Session) -> None:
    topic, empty = _filled(s), s.topic("empty")
    for name in (topic.name, empty.name):
        for epoch in (-1, 0, 1, 99):
            for current in (-1, 0, 1):
                s.call(
                    "offset_for_leader_epoch",
                    s.version,
                    replica_id=-1,
                    topics=[
                        {
                            "topic": name,
                            "partitions": [{"partition": 0, "leader_epoch": epoch, "current_leader_epoch": current}],
                        }
                    ],
                )
    s.call(
        "offset_for_leader_epoch",
        s.version,
        replica_id=-1,
        topics=[
            {"topic": topic.name, "partitions": [{"partition": 7, "leader_epoch": 0}]},
            {"topic": s.name("nowhere"), "partitions": [{"partition": 0, "leader_epoch": 0}]},
        ],
    )


def _delete(s: Session, name: str, offset: int, partition: int = 0, version: int | None = None) -> None:
    parts = [{"partition_index": partition, "offset": offset}]
    s.call("delete_records", version, timeout=5000, topics=[{"name": name, "partitions": parts}])


@in_every_version("delete_records")
def records_before_an_offset_are_deleted(s: Session) -> None:
    topic = _filled(s)
    _delete(s, topic.name, 2, version=s.version)
    s.list_offset(topic, EARLIEST)
    _delete(s, topic.name, 1, version=s.version)
    s.list_offset(topic, EARLIEST)
    _delete(s, topic.name, -1, version=s.version)
    s.list_offset(topic, EARLIEST)
    s.list_offset(topic, LATEST)
    s.list_offset(topic, NOW)
    s.fetch(topic, 6)


def deleting_what_is_not_there(s: Session) -> None:
    topic = _filled(s)
    for offset in (7, 10**10, -2, 6):
        _delete(s, topic.name, offset)
    _delete(s, topic.name, 0, partition=9)
    _delete(s, s.name("nowhere"), 0)
    s.list_offset(topic, EARLIEST)


def a_compacted_topic_keeps_its_records(s: Session) -> None:
    topic = s.topic(cleanup_policy="compact")
    s.fill(topic, batch([(b"a", b"1")] * 3))
    _delete(s, topic.name, 2)
    s.list_offset(topic, EARLIEST)
    both = s.topic("both", cleanup_policy="compact,delete")
    s.fill(both, batch([(b"a", b"1")] * 3))
    _delete(s, both.name, 2)
    s.list_offset(both, EARLIEST)


def after_deleting_times_start_later(s: Session) -> None:
    topic = _filled(s)
    _delete(s, topic.name, 2)
    for value in (0, NOW, NOW + 15, MAX_TIMESTAMP, -4):
        s.list_offset(topic, value)
