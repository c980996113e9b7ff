"""The same laws for both readers, over a running node and over Apache Kafka."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from headrace import _kernel
from headrace.errors import InvalidInput, OffsetOutOfRange, UnknownTopic
from headrace.feed import Feed, open_feed
from headrace.feed.protocol import ProtocolFeed
from headrace.feed.segments import SegmentFeed
from headrace.log.segment import segment_name
from tests.servers import Headrace, Server

MakeTopic = Callable[..., str]


@dataclass
class Place:
    server: Server
    data: Path | None
    feed: Feed = field(init=False)

    def __post_init__(self) -> None:
        self.feed = open_feed(self.server.bootstrap, self.data)

    def rows(self, topic: str, partition: int = 0, start: int = 0, end: int | None = None, **how: int) -> pa.Table:
        stable = self.feed.bounds(topic)[partition][1]
        batches = list(self.feed.read(topic, partition, start, stable if end is None else end, **how))
        return pa.Table.from_batches(batches, schema=pa.record_batch(_kernel.records_to_arrow(b"")).schema)

    def values(self, topic: str, **where: int) -> list[bytes]:
        found: list[bytes] = self.rows(topic, **where).column("value").to_pylist()
        return found

    def wait_for(self, topic: str, values: list[bytes], partition: int = 0) -> None:
        """Apache Kafka answers a commit before it can be read."""
        deadline = time.monotonic() + 60
        while (found := self.values(topic, partition=partition)) != values:
            assert time.monotonic() < deadline, found


@pytest.fixture(params=["segments", "protocol", "kafka"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    server: Server = request.getfixturevalue("kafka" if request.param == "kafka" else "headrace")
    data = server.data if request.param == "segments" and isinstance(server, Headrace) else None
    found = Place(server, data)
    assert isinstance(found.feed, SegmentFeed if data else ProtocolFeed)
    yield found
    found.feed.close()


def producer(server: Server, **settings: object) -> Producer:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 0, **named})


def transact(made: Producer, topic: str, values: list[bytes], *, commit: bool) -> None:
    made.begin_transaction()
    for value in values:
        made.produce(topic, value=value, key=value, partition=0)
    made.flush(30)
    (made.commit_transaction if commit else made.abort_transaction)(30)


def transactional(server: Server, name: str) -> Producer:
    made = producer(server, transactional_id=name)
    made.init_transactions(30)
    return made


@pytest.mark.system
def test_records_come_as_they_were_written(place: Place, make_topic: MakeTopic) -> None:
    topic = make_topic(place.server, partitions=2)
    made = producer(place.server)
    made.produce(topic, b"v", b"k", partition=0, timestamp=5, headers=[("h", b"1"), ("h", None)])
    made.produce(topic, None, b"k", partition=0, timestamp=6)
    made.produce(topic, b"", None, partition=0, timestamp=7)
    made.produce(topic, b"other", partition=1)
    made.flush(30)
    assert place.feed.partitions(topic) == [0, 1]
    assert place.feed.bounds(topic) == {0: (0, 3), 1: (0, 1)}
    rows = place.rows(topic)
    assert rows.schema == pa.record_batch(_kernel.records_to_arrow(b"")).schema
    assert rows.column("offset").to_pylist() == [0, 1, 2]
    assert rows.column("timestamp").cast(pa.int64()).to_pylist() == [5, 6, 7]
    assert rows.column("key").to_pylist() == [b"k", b"k", None]
    assert rows.column("value").to_pylist() == [b"v", None, b""]
    headers = rows.column("headers").to_pylist()
    assert headers == [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], [], []]


@pytest.mark.system
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_any_range_gives_its_records_and_no_other(place: Place, make_topic: MakeTopic, codec: str) -> None:
    topic = make_topic(place.server, segment_bytes=str(1 << 20))
    made = producer(place.server, compression_type=codec, linger_ms=5)
    values = [f"{i:05d}".encode() * 40 for i in range(12_000)]
    for value in values:
        made.produce(topic, value, partition=0)
    made.flush(30)
    assert place.values(topic) == values
    rng = random.Random(5)
    for _ in range(12):
        start, end = sorted(rng.sample(range(12_001), 2))
        assert place.values(topic, start=start, end=end, max_bytes=rng.choice([1, 5_000, 1 << 20])) == values[start:end]
    at = 0
    while at < 12_000:
        end = min(at + rng.randrange(1, 3_000), 12_000)
        assert place.values(topic, start=at, end=end) == values[at:end]
        at = end


@pytest.mark.system
def test_only_committed_records_are_read(place: Place, make_topic: MakeTopic) -> None:
    topic = make_topic(place.server)
    plain, one, two = producer(place.server), transactional(place.server, "one"), transactional(place.server, "two")
    transact(one, topic, [b"a1", b"a2"], commit=False)
    transact(one, topic, [b"b"], commit=True)
    two.begin_transaction()
    two.produce(topic, b"c", partition=0)
    two.flush(30)
    transact(one, topic, [b"d"], commit=False)
    plain.produce(topic, b"e", partition=0)
    plain.flush(30)
    before = place.feed.bounds(topic)[0]
    assert before == (0, 5), "the open transaction holds the last stable offset"
    assert place.values(topic) == [b"b"]
    two.commit_transaction(30)
    transact(two, topic, [b"f"], commit=True)
    place.wait_for(topic, [b"b", b"c", b"e", b"f"])
    assert place.values(topic, end=6) == [b"b", b"c"], "the markers of what is read may lie behind the range"
    whole = place.rows(topic).column("offset").to_pylist()
    for start in range(place.feed.bounds(topic)[0][1] + 1):
        assert place.rows(topic, start=start).column("offset").to_pylist() == [at for at in whole if at >= start]


@pytest.mark.system
def test_records_that_were_deleted_before_they_are_read_are_told_not_skipped_by_who_wants_all(
    place: Place, make_topic: MakeTopic
) -> None:
    topic = make_topic(place.server, segment_bytes=str(1 << 20))
    made = producer(place.server)
    values = [b"%d" % number * 300_000 for number in range(10)]
    for value in values:
        made.produce(topic, value=value, partition=0)
        made.flush(30)
    place.wait_for(topic, values)
    admin = AdminClient({"bootstrap.servers": place.server.bootstrap})
    [deleted] = admin.delete_records([TopicPartition(topic, 0, 6)]).values()
    deleted.result(30)
    if place.data is not None:  # as retention does a little later
        for base in (0, 3):
            (place.data / "topics" / topic / "0" / f"{segment_name(base)}.log").unlink()
    for end in (5, 10):
        with pytest.raises(OffsetOutOfRange, match="were deleted, or lost"):
            place.rows(topic, start=2, end=end, whole=True)
    assert place.values(topic, start=2) == values[6:]
    for start in (0, 6):
        assert place.values(topic, start=start, whole=True) == values[6:]


@pytest.mark.system
def test_a_transaction_over_partitions_is_seen_once_in_each_or_in_none(place: Place, make_topic: MakeTopic) -> None:
    topic, made = make_topic(place.server, 3), transactional(place.server, "over-partitions")
    for value in (b"aborted", b"committed", b"aborted", b"committed too"):
        made.begin_transaction()
        for partition in range(3):
            made.produce(topic, value, partition=partition)
        made.flush(30)
        (made.abort_transaction if value == b"aborted" else made.commit_transaction)(30)
    for partition in range(3):
        place.wait_for(topic, [b"committed", b"committed too"], partition)


@pytest.mark.system
def test_random_transactions_give_what_was_committed(place: Place, make_topic: MakeTopic) -> None:
    topic = make_topic(place.server, segment_bytes=str(1 << 20))
    rng = random.Random(11)
    producers = [transactional(place.server, f"random-{i}") for i in range(3)]
    committed: list[bytes] = []
    for number in range(40):
        values = [b"%d-%d-" % (number, i) + b"x" * rng.choice([10, 20_000]) for i in range(rng.randrange(1, 6))]
        commit = rng.random() < 0.6
        transact(rng.choice(producers), topic, values, commit=commit)
        committed += values if commit else []
    place.wait_for(topic, committed)
    assert place.values(topic, max_bytes=4_000) == committed


@pytest.mark.system
def test_a_time_is_found_in_every_partition(place: Place, make_topic: MakeTopic) -> None:
    topic = make_topic(place.server, partitions=2)
    made = producer(place.server)
    for timestamp in (1_000, 2_000, 3_000):
        made.produce(topic, b"v", partition=0, timestamp=timestamp)
    made.flush(30)
    assert place.feed.offset_at(topic, 1_500) == {0: 1, 1: 0}
    assert place.feed.offset_at(topic, 9_000) == {0: 3, 1: 0}


@pytest.mark.system
def test_an_unknown_topic_is_an_error_with_a_name(place: Place) -> None:
    with pytest.raises(UnknownTopic, match="no-such"):
        place.feed.bounds("no-such")


@pytest.mark.system
def test_a_folder_of_another_node_is_refused(headrace: Headrace, tmp_path: Path) -> None:
    other = Headrace(tmp_path)
    try:
        with pytest.raises(InvalidInput, match="not the data folder"):
            open_feed(headrace.bootstrap, other.data)
    finally:
        other.stop()


@pytest.mark.system
def test_files_that_are_rewritten_and_deleted_while_they_are_read(tmp_path: Path, make_topic: MakeTopic) -> None:
    """Compaction every few hundred milliseconds, a reader that starts anywhere: never a record twice or out of order,
    and of each key always the last."""
    node = Headrace(tmp_path, options=["--set", "log.cleaner.backoff.ms=50"])
    try:
        topic = make_topic(
            node,
            cleanup_policy="compact",
            segment_bytes=str(1 << 20),
            min_cleanable_dirty_ratio="0.01",
            file_delete_delay_ms="0",
        )
        stop = threading.Event()
        made = producer(node, linger_ms=5)
        newest: dict[int, int] = {}

        def write() -> None:
            rng, number = random.Random(3), 0
            while not stop.is_set():
                for _ in range(200):
                    key = rng.randrange(100)
                    newest[key] = number
                    made.produce(topic, b"%d" % number + b"." * 2_000, b"%d" % key, partition=0)
                    number += 1
                made.flush(30)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            _read_beside_compaction(open_feed(node.bootstrap, node.data), topic, newest)
        finally:
            stop.set()
            writer.join()
    finally:
        node.stop()


def _read_beside_compaction(feed: Feed, topic: str, newest: dict[int, int]) -> None:
    rng, reads, gaps = random.Random(4), 0, 0
    deadline = time.monotonic() + 60
    while reads < 60 or not gaps:
        assert time.monotonic() < deadline, "nothing was compacted meanwhile"
        reads += 1
        start, stable = feed.bounds(topic)[0]
        at = rng.choice([start, rng.randrange(start, stable + 1)])
        offsets: list[int] = []
        for batch in feed.read(topic, 0, at, stable, max_bytes=rng.choice([50_000, 1 << 20])):
            offsets += batch.column("offset").to_pylist()
        assert offsets == sorted(set(offsets))
        assert {offset for offset in tuple(newest.values()) if at <= offset < stable} <= set(offsets)
        gaps += len(offsets) != stable - at
    feed.close()
