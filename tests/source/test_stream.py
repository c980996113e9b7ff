"""Topics as Spark streams: every row is processed, late or dead, once; on a real Spark, a real node, Apache Kafka."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from pyspark.sql import functions as F

from headrace.errors import OffsetOutOfRange
from headrace.feed import open_feed
from headrace.pipelines.source import Counts, SourceOptions, counts, needed_columns, positions, read_batch, read_stream
from tests.servers import Headrace, Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.system

MakeTopic = Callable[..., str]
SCHEMA = "id long, amount double, at timestamp, note string"
NOW = int(time.time())


def send(server: Server, topic: str, rows: list[tuple[int, bytes]], at_s: Mapping[int, int] | None = None) -> None:
    """Rows are (partition, value); ``at_s`` gives records timestamps by their place in the list."""
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 1})
    for number, (partition, value) in enumerate(rows):
        timestamp = {"timestamp": at_s[number] * 1000} if at_s else {}
        producer.produce(topic, value, b"k%d" % number, partition=partition, **timestamp)
    assert producer.flush(30) == 0


def row(number: int, at: float | None, **more: object) -> bytes:
    return json.dumps({"id": number, "amount": number / 2, "at": at, **more}).encode()


def records(server: Server, topic: str) -> list[dict[str, Any]]:
    feed = open_feed(server.bootstrap)
    start, end = feed.bounds(topic)[0]
    found = [one for batch in feed.read(topic, 0, start, end) for one in batch.to_pylist()]
    feed.close()
    return found


def reasons(server: Server, topic: str) -> dict[bytes, str]:
    """Of each key, the reason of its record."""
    found = {}
    for one in records(server, topic):
        headers = {header["key"]: header["value"] for header in one["headers"]}
        found[one["key"]] = headers["headrace.reason"].decode()
    return found


def dropped(query: StreamingQuery) -> int:
    return sum(state["numRowsDroppedByWatermark"] for one in query.recentProgress for state in one["stateOperators"])


def windows(frame: DataFrame, checkpoint: Path, found: dict[Any, int]) -> StreamingQuery:
    """A running query that counts rows by window into ``found``."""

    def take(batch: DataFrame, _: int) -> None:
        found.update({one.window: one.n for one in batch.collect()})

    counted = frame.groupBy(F.window("at", "10 seconds")).agg(F.count("*").alias("n"))
    writer = counted.writeStream.foreachBatch(take).outputMode("update").trigger(processingTime="0 seconds")
    return writer.option("checkpointLocation", str(checkpoint)).start()


def wait_for_rows(query: StreamingQuery, options: SourceOptions, rows: int) -> Counts:
    """Until the query has read so many: a partition may hold the others back for a while."""
    deadline = time.monotonic() + 200
    while True:
        query.processAllAvailable()
        found = counts(options.bootstrap, options.query)
        if found.rows_in >= rows or time.monotonic() > deadline:
            assert found.rows_in == rows
            return found


def run(frame: DataFrame, checkpoint: Path, each: Callable[[DataFrame, int], None] | None = None) -> list[Any]:
    """Run a query over what is there; the rows that it gave."""
    found: list[Any] = []

    def collect(batch: DataFrame, number: int) -> None:
        found.extend(batch.collect())
        if each is not None:
            each(batch, number)

    writer = frame.writeStream.foreachBatch(collect).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return found


def wait_for_coordinator(consumer: Consumer, places: list[TopicPartition]) -> None:
    """A new Kafka needs its time to have one."""
    deadline = time.monotonic() + 60
    while True:
        try:
            consumer.committed(places, 10)
            return
        except KafkaException:
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.fixture
def options(headrace: Headrace, make_topic: MakeTopic) -> SourceOptions:
    topic = make_topic(headrace, partitions=3)
    return SourceOptions(headrace.bootstrap, topic, f"app.{topic}", SCHEMA, str(headrace.data), event_time="at")


def arrivals(rng: random.Random, number: int, now: int) -> Iterator[tuple[int, bytes, str]]:
    """Rows that come disordered, late, broken or from the future: partition, value, what must come of it if known."""
    for i in range(number):
        at = now - 3_000 + i + rng.choice([0, 0, 0, -5, -30, -600])
        kind = rng.choices(["good", "broken", "future", "timeless", "typed"], [20, 1, 1, 1, 1])[0]
        value = {
            "good": row(i, at),
            "broken": b'{"id": %d' % i,
            "future": row(i, now + 100_000),
            "timeless": row(i, None),
            "typed": row(i, at, note=5),
        }[kind]
        yield rng.randrange(3), value, kind


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_rows_in_are_processed_or_late_or_dead(
    spark: SparkSession, headrace: Headrace, options: SourceOptions, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    lateness, limit = [(0, 40), (20_000, 60), (10_000, None)][seed - 1]
    options = replace(options, lateness_ms=lateness, max_records_per_trigger=limit, idle_after_ms=3_000)
    rows = list(arrivals(rng, 240, NOW))
    by_window: dict[Any, int] = {}
    query = windows(read_stream(spark, options), tmp_path, by_window)
    try:
        for at in range(0, 240, 80):
            send(headrace, options.topic, [(partition, value) for partition, value, _ in rows[at : at + 80]])
            found = wait_for_rows(query, options, at + 80)
        assert dropped(query) == 0
    finally:
        query.stop()
    expected = Counter(kind for _, _, kind in rows)
    processed = sum(by_window.values())
    assert found.dead == 240 - expected["good"]
    assert processed == 240 - found.late - found.dead
    assert found.late > 0
    assert Counter(reasons(headrace, f"{options.topic}.dead").values()) == {
        "not-json": expected["broken"],
        "far-future": expected["future"],
        "no-event-time": expected["timeless"],
        "wrong-type": expected["typed"],
    }
    late = records(headrace, f"{options.topic}.late")
    assert len({one["key"] for one in late}) == len(late) == found.late
    assert read_batch(spark, options).count() == processed


def test_a_batch_that_is_done_again_multiplies_nothing(
    spark: SparkSession, headrace: Headrace, options: SourceOptions, tmp_path: Path
) -> None:
    options = replace(options, max_records_per_trigger=50)
    rows = [(partition, value) for partition, value, _ in arrivals(random.Random(9), 200, NOW)]
    send(headrace, options.topic, rows)
    failures = iter([1, 3])
    fails_at = next(failures)

    def fail_sometimes(_: DataFrame, number: int) -> None:
        nonlocal fails_at
        if number == fails_at:
            fails_at = next(failures, -1)
            raise RuntimeError("the sink fails")

    given: dict[int, list[Any]] = {}

    def each(batch: DataFrame, number: int) -> None:
        found = sorted(batch.collect())
        assert given.setdefault(number, found) == found, "the same rows again"
        fail_sometimes(batch, number)

    for _ in range(2):
        with pytest.raises(Exception, match="the sink fails"):
            run(read_stream(spark, options), tmp_path, each)
    run(read_stream(spark, options), tmp_path, each)
    found = counts(headrace.bootstrap, options.query)
    assert found.rows_in == 200
    processed = sum(len(rows) for rows in given.values())
    assert processed == 200 - found.late - found.dead
    for topic, number in ((f"{options.topic}.dead", found.dead), (f"{options.topic}.late", found.late)):
        assert len({one["key"] for one in records(headrace, topic)}) == number > 0
    assert read_batch(spark, options).count() == processed


def test_a_slow_partition_is_waited_for_until_it_is_idle(
    spark: SparkSession, headrace: Headrace, options: SourceOptions, tmp_path: Path
) -> None:
    start = int(time.time()) - 600
    waiting = replace(options, idle_after_ms=3_600_000)
    fast = [(1, row(i, start + i)) for i in range(0, 600, 10)]
    send(headrace, options.topic, fast, {i: start + 10 * i for i in range(60)})
    send(headrace, options.topic, [(0, row(0, start))], {0: start})
    query = windows(read_stream(spark, waiting), tmp_path, {})
    try:
        query.processAllAvailable()
        assert counts(headrace.bootstrap, options.query).rows_in == 2, "the fast one is held back"
        for second in (250, 500):
            send(headrace, options.topic, [(0, row(second, start + second))], {0: start + second})
            query.processAllAvailable()
        found = counts(headrace.bootstrap, options.query)
        assert (found.rows_in, found.late, found.dead) == (3 + 51, 0, 0)
        assert dropped(query) == 0
    finally:
        query.stop()
    query = windows(read_stream(spark, replace(options, idle_after_ms=1_000)), tmp_path, {})
    try:
        wait_for_rows(query, options, 63)
    finally:
        query.stop()


def test_a_topic_is_read_from_where_it_was_said(
    spark: SparkSession, headrace: Headrace, options: SourceOptions, tmp_path: Path
) -> None:
    send(headrace, options.topic, [(0, row(i, NOW)) for i in range(4)], {i: NOW - 10 + i for i in range(4)})
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(NOW - 8))
    plain = replace(options, event_time=None)
    found = run(read_stream(spark, replace(plain, start=at, query="from-time")), tmp_path / "time")
    assert [one.id for one in found] == [2, 3]
    latest = read_stream(spark, replace(plain, start="latest", query="from-latest"))
    assert run(latest, tmp_path / "latest") == []
    send(headrace, options.topic, [(1, row(9, NOW))])
    assert [one.id for one in run(latest, tmp_path / "latest")] == [9]


@pytest.mark.parametrize("where", ["segments", "kafka"])
def test_columns_progress_and_the_records_own_columns(
    spark: SparkSession, make_topic: MakeTopic, tmp_path: Path, request: pytest.FixtureRequest, where: str
) -> None:
    server: Server = request.getfixturevalue("kafka" if where == "kafka" else "headrace")
    data = str(server.data) if isinstance(server, Headrace) else None
    topic = make_topic(server, partitions=2)
    send(server, topic, [(0, row(1, NOW, note="é")), (1, b"broken"), (1, row(2, NOW))])
    query = f"query-{where}"
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": query})
    places = [TopicPartition(topic, index) for index in range(2)]
    wait_for_coordinator(consumer, places)
    options = SourceOptions(server.bootstrap, topic, query, SCHEMA, data, columns=("note", "id"), raw=True)
    found = sorted(run(read_stream(spark, options), tmp_path))
    raw = ["key", "value", "headers", "topic", "partition", "offset", "timestamp"]
    assert list(found[0].__fields__) == ["id", "note", *raw]
    assert [(one.id, one.note, one.topic, one.partition, one.offset) for one in found] == [
        (1, "é", topic, 0, 0),
        (2, None, topic, 1, 1),
    ]
    assert (bytes(found[0].key), bytes(found[0].value)) == (b"k0", row(1, NOW, note="é"))
    assert reasons(server, f"{topic}.dead") == {f"{topic}/1/0".encode(): "not-json"}
    for _ in range(10):  # Spark may end a source before what it said last is heard: its next run says it
        committed = [one.offset for one in consumer.committed(places, 30)]
        if committed == [1, 2]:
            break
        assert run(read_stream(spark, options), tmp_path) == []
    consumer.close()
    assert committed == [1, 2]
    entry = json.loads((tmp_path / "offsets" / "0").read_text().splitlines()[-1])
    assert positions(entry) == (topic, {0: 1, 1: 2})
    assert read_batch(spark, options, {0: 1, 1: 0}).count() == 1


def test_records_that_were_deleted_before_they_were_read_are_missed(
    spark: SparkSession, headrace: Headrace, options: SourceOptions, tmp_path: Path
) -> None:
    from confluent_kafka.admin import AdminClient

    send(headrace, options.topic, [(0, row(i, NOW)) for i in range(4)])
    run(read_stream(spark, options), tmp_path)
    send(headrace, options.topic, [(0, row(i, NOW)) for i in range(4)])
    place = TopicPartition(options.topic, 0, 6)
    client = AdminClient({"bootstrap.servers": headrace.bootstrap})
    client.delete_records([place])[place].result(30)
    with pytest.raises(Exception, match=f"{OffsetOutOfRange.__name__}.*records 4 to 5 of {options.topic}"):
        run(read_stream(spark, options), tmp_path)


def test_a_row_that_does_not_fit_the_schema_is_dead_in_every_query_whatever_columns_it_needs(
    spark: SparkSession, headrace: Headrace, options: SourceOptions, tmp_path: Path
) -> None:
    send(headrace, options.topic, [(0, row(1, NOW)), (1, row(2, NOW, note=5)), (2, row(3, NOW, note="ok"))])
    for name, columns in (("needs-it", ("id", "note")), ("does-not", ("id",))):
        one = replace(options, query=f"{options.query}.{name}", columns=columns)
        found = run(read_stream(spark, one), tmp_path / name)
        assert sorted(taken.id for taken in found) == [1, 3]
        assert counts(one.bootstrap, one.query) == Counts(3, 0, 1)
    assert reasons(headrace, f"{options.topic}.dead") == {f"{options.topic}/1/0".encode(): "wrong-type"}


def test_a_query_needs_the_columns_that_its_optimised_plan_keeps(spark: SparkSession) -> None:
    def needed(build: Callable[[DataFrame], DataFrame]) -> tuple[str, ...]:
        return needed_columns(spark, build, SCHEMA)

    assert needed(lambda frame: frame) == ("id", "amount", "at", "note")
    assert needed(lambda frame: frame.groupBy(F.window("at", "1 minute")).agg(F.sum("amount"))) == ("amount", "at")
    assert needed(lambda frame: frame.filter("note = 'x'").select("id")) == ("id", "note")
    assert needed(lambda frame: frame.groupBy().count()) == ("id",)
    assert needed(lambda frame: frame.select("amount").unionAll(frame.selectExpr("CAST(note AS double)"))) == (
        "amount",
        "note",
    )
