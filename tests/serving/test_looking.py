"""What the page is told, without a server: records by place and filter, frames of what comes, the graph."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import InvalidQuery, ServerAway, UnknownTopic
from headrace.operations.cluster import PartitionOffsets
from headrace.operations.filters import Wanted
from headrace.operations.positions import Position, Relative
from headrace.serving import pacing, reading
from headrace.serving.deliveries import Deliveries
from headrace.serving.feeds import Feeds
from headrace.serving.graph import graph
from headrace.serving.pacing import Follower, paced
from headrace.serving.pool import Pool
from headrace.serving.reading import from_place, newest
from headrace.serving.sampler import Look
from tests.views.memory_feed import MemoryFeed

EVERYTHING = Wanted()


@pytest.fixture
def feed() -> MemoryFeed:
    made = MemoryFeed(rows_at_once=7)
    made.create("orders", 2)
    for at in range(40):
        made.append("orders", f"k{at}".encode(), json.dumps({"n": at}).encode(), partition=at % 2)
    return made


def places(found: Any) -> list[tuple[int, int]]:
    return sorted((row["partition"], row["offset"]) for row in found.records)


def test_reading_on_from_where_it_ended_gives_every_record_once(feed: MemoryFeed) -> None:
    seen: list[tuple[int, int]] = []
    place: Any = Position(Relative.BEGINNING)
    for _ in range(20):
        found = from_place(feed, "orders", place, 6, EVERYTHING)
        seen += places(found)
        place = found.next
        if found.complete:
            break
    assert sorted(seen) == [(part, at) for part in (0, 1) for at in range(20)]


def test_the_newest_are_the_newest_of_every_partition(feed: MemoryFeed) -> None:
    found = newest(feed, "orders", 4, EVERYTHING, partition=1)
    assert places(found) == [(1, 16), (1, 17), (1, 18), (1, 19)]
    assert len(newest(feed, "orders", 100, EVERYTHING).records) == 40
    assert newest(feed, "orders", 0, EVERYTHING).records == []


@pytest.mark.parametrize(
    ("place", "first"),
    [
        (Position(Relative.OFFSET, 18), 18),
        (Position(Relative.LAST, 3), 17),
        (Position(Relative.END), None),
        ({0: 19}, 19),
    ],
)
def test_a_place_is_found_in_a_partition(feed: MemoryFeed, place: Any, first: int | None) -> None:
    found = from_place(feed, "orders", place, 50, EVERYTHING, partition=0)
    assert [row["offset"] for row in found.records][:1] == ([] if first is None else [first])


def test_places_that_are_not_there_are_refused(feed: MemoryFeed) -> None:
    with pytest.raises(InvalidQuery):
        from_place(feed, "orders", Position(Relative.OFFSET, 99), 1, EVERYTHING)
    with pytest.raises(UnknownTopic):
        newest(feed, "orders", 1, EVERYTHING, partition=7)


def test_long_values_are_cut_and_said_to_be() -> None:
    feed = MemoryFeed(rows_at_once=10)
    feed.create("long", 1)
    feed.append("long", b"k", ("ü" * 5000).encode())
    [row] = newest(feed, "long", 1, EVERYTHING).records
    assert (row["cut"], row["size"]) == (True, 10001)
    assert set(row["value"]) == {"ü"}
    [whole] = newest(feed, "long", 1, EVERYTHING, characters=1 << 20).records
    assert len(whole["value"]) == 5000


@pytest.mark.parametrize(
    ("wanted", "count"), [(Wanted(key="K1"), 11), (Wanted(value='"n": 3}'), 1), (Wanted(key="k1", value="19"), 1)]
)
def test_filters_look_for_text_in_keys_and_values(feed: MemoryFeed, wanted: Wanted, count: int) -> None:
    assert len(newest(feed, "orders", 100, wanted).records) == count
    assert len(from_place(feed, "orders", Position(Relative.BEGINNING), 100, wanted).records) == count


class Heavy(MemoryFeed):
    """A topic with large records: one in a batch, counted as they are read."""

    def __init__(self, records: int, size: int, partitions: int = 1) -> None:
        super().__init__(rows_at_once=1)
        self.read_bytes = 0
        self.create("heavy", partitions)
        for at in range(records):
            self.append("heavy", f"k{at}".encode(), bytes(size), partition=at % partitions)

    def read(self, *where: Any, max_bytes: int = 0) -> Iterator[pa.RecordBatch]:
        for batch in super().read(*where, max_bytes=max_bytes):
            self.read_bytes += batch.nbytes
            yield batch


def test_looking_for_the_newest_reads_few_bytes_however_large_records_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SCAN_BYTES", 400_000)
    monkeypatch.setattr(reading, "PIECE_BYTES", 100_000)
    feed = Heavy(2000, 10_000)
    found = newest(feed, "heavy", 1000, EVERYTHING)
    assert feed.read_bytes < 420_000
    assert not found.complete
    assert [row["offset"] for row in found.records] == list(range(2000 - len(found.records), 2000))
    assert len(found.records) > 30
    feed.read_bytes = 0
    few = newest(feed, "heavy", 5, EVERYTHING)
    assert (few.complete, len(few.records), feed.read_bytes < 200_000) == (True, 5, True)
    feed.read_bytes = 0
    nothing = newest(feed, "heavy", 5, Wanted(key="nobody"))
    assert (nothing.complete, nothing.records, feed.read_bytes < 420_000) == (False, [], True)


def test_looking_for_the_newest_ends_in_its_time_within_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count()  # a second for every look at the clock
    monkeypatch.setattr(reading, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    monkeypatch.setattr(reading, "SCAN_S", 25.0)
    found = newest(Heavy(100, 1000), "heavy", 50, EVERYTHING)
    assert (found.scanned < 30, found.complete) == (True, False)
    assert [row["offset"] for row in found.records] == list(range(84, 100))


def test_what_was_looked_at_to_the_start_is_complete_however_long_it_took(
    feed: MemoryFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SCAN_RECORDS", 40)
    found = newest(feed, "orders", 100, EVERYTHING)
    assert (found.scanned, found.complete, len(found.records)) == (40, True, 40)


def test_one_answer_holds_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SHOWN_BYTES", 100_000)
    feed = Heavy(200, 10_000)
    whole = reading.WHOLE_CHARACTERS
    found = from_place(feed, "heavy", Position(Relative.BEGINNING), 100, EVERYTHING, characters=whole)
    assert (len(found.records), found.next, found.complete) == (10, {0: 10}, False)
    late = newest(feed, "heavy", 100, EVERYTHING, characters=whole)
    assert (len(late.records), late.complete) == (16, False)


def test_a_frame_of_large_records_is_bounded_and_the_next_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "FRAME_BYTES", 100_000)
    feed = Heavy(400, 10_000, partitions=2)
    follower = Follower(Feeds(lambda: feed), "heavy", {0: 0, 1: 0})
    seen, unseen, frames, last = 0, 0, 0, []
    while (frame := follower.take(follower.ends())) is not None:
        seen, unseen, frames = seen + frame["count"] - frame["unseen"], unseen + frame["unseen"], frames + 1
        last = sorted((row["partition"], row["offset"]) for row in frame["rows"])
        assert feed.read_bytes < 115_000 * frames
    assert seen + unseen == 400
    assert frames == 2
    assert last == [(partition, offset) for partition in (0, 1) for offset in range(196, 200)]


def test_a_frame_ends_in_its_time_and_all_partitions_get_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "FRAME_S", -1.0)
    feed = Heavy(12, 10, partitions=3)
    follower = Follower(Feeds(lambda: feed), "heavy", {})
    turns = []
    while (frame := follower.take(follower.ends())) is not None:
        turns += [(row["partition"], row["offset"]) for row in frame["rows"]]
    assert turns == [(partition, offset) for offset in range(4) for partition in range(3)]


def test_what_a_frame_that_failed_had_looked_at_is_in_the_next_one(
    feed: MemoryFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = Follower(Feeds(lambda: feed), "orders", {0: 0, 1: 0})
    read = feed.read

    def broken(topic: str, partition: int, *more: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        if partition == 1:
            raise ServerAway("nobody answers")
        return read(topic, partition, *more, **named)

    monkeypatch.setattr(feed, "read", broken)
    with pytest.raises(ServerAway):
        follower.take({0: 20, 1: 20})
    monkeypatch.undo()
    frame = follower.take({0: 20, 1: 20})
    assert frame is not None
    assert frame["count"] == 40


def test_a_frame_is_bounded_and_counts_what_it_leaves_out(feed: MemoryFeed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "ROWS_A_FRAME", 5)
    follower = Follower(Feeds(lambda: feed), "orders", {0: 0, 1: 0})
    frame = follower.take(follower.ends())
    assert frame is not None
    assert (len(frame["rows"]), frame["count"], frame["skipped"]) == (5, 40, 35)
    assert follower.take(follower.ends()) is None
    assert follower.offsets == {0: 20, 1: 20}


def test_who_was_away_too_long_goes_on_near_the_end(feed: MemoryFeed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "READ_AT_MOST", 3)
    follower = Follower(Feeds(lambda: feed), "orders", {0: 0, 1: 18})
    frame = follower.take(follower.ends())
    assert frame is not None
    shown = sorted((row["partition"], row["offset"]) for row in frame["rows"])
    assert shown == [(0, 17), (0, 18), (0, 19), (1, 18), (1, 19)]
    assert (frame["count"], frame["skipped"], frame["unseen"]) == (22, 0, 17)


def test_what_a_filter_was_not_asked_about_is_counted_as_not_looked_at(
    feed: MemoryFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "READ_AT_MOST", 3)
    follower = Follower(Feeds(lambda: feed), "orders", {0: 0, 1: 0}, Wanted(key="k39"))
    frame = follower.take(follower.ends())
    assert frame is not None
    assert (len(frame["rows"]), frame["count"], frame["skipped"], frame["unseen"]) == (1, 40, 0, 34)


def test_every_frame_is_told_even_if_nothing_of_it_is_wanted(feed: MemoryFeed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "FRAMES_A_SECOND", 1000)
    follower = Follower(Feeds(lambda: feed), "orders", {0: 0, 1: 0}, Wanted(key="nobody"))
    came = 0

    async def ends() -> dict[int, int] | None:
        return {0: asked.pop(), 1: 0} if asked else None

    async def all_of_it() -> None:
        nonlocal came
        async for one in paced(follower, ends, lambda: False, Pool("test", 1)):
            if one.startswith(b"event: frame"):
                came += json.loads(one.decode().partition("data: ")[2])["count"]

    asked = [20, 13, 7]
    asyncio.run(all_of_it())
    assert came == 20


def test_what_was_there_and_what_comes_meet(feed: MemoryFeed) -> None:
    found = newest(feed, "orders", 3, EVERYTHING, partition=1)
    feed.append("orders", b"next", b"{}", partition=1)
    feed.append("orders", b"elsewhere", b"{}", partition=0)
    follower = Follower(Feeds(lambda: feed), "orders", {}, partition=1)
    follower.begin(found.next)
    frame = follower.take(follower.ends())
    assert frame is not None
    assert [row["key"] for row in frame["rows"]] == ["next"]


def test_a_place_of_a_topic_that_was_made_anew_is_its_end(feed: MemoryFeed) -> None:
    follower = Follower(Feeds(lambda: feed), "orders", {})
    follower.begin({0: 7, 1: 5000})
    assert follower.offsets == {0: 7, 1: 20}


def test_a_filtered_frame_counts_only_what_was_wanted(feed: MemoryFeed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "ROWS_A_FRAME", 2)
    follower = Follower(Feeds(lambda: feed), "orders", {0: 0, 1: 0}, Wanted(key="k1"))
    frame = follower.take(follower.ends())
    assert frame is not None
    assert (len(frame["rows"]), frame["count"], frame["skipped"]) == (2, 40, 9)


def query(name: str, kind: str, reads: list[str], topic: str) -> dict[str, Any]:
    positions = {"orders": {"0": 4}}
    about = {"app": "shop", "name": name, "kind": kind, "state": "running", "reads": reads, "topic": topic}
    about["watermark"] = "2026-01-02T03:30"
    return {**about, "progress": {"positions": positions, "rate": 2.0}}


def test_the_graph_goes_from_streams_over_queries_to_views_and_on() -> None:
    queries = [
        query("clean", "derive", ["orders"], "clean"),
        query("revenue", "view", ["clean"], "shop.revenue"),
        query("fraud", "alert", ["shop.revenue"], "shop.fraud"),
        {"app": "old", "name": "entry", "state": "stopped"},
    ]
    views = [{"app": "shop", "name": "revenue", "topic": "shop.revenue", "rows": 3, "state": "live"}]
    sent = {("shop", "fraud"): {"rows": 7, "sent": 4, "waiting": 2, "dead": 1}}
    told = graph(queries, views, {"orders": {"records": 9}}, {("orders", 0): PartitionOffsets(0, 9)}, sent)
    edges = {(edge["from"], edge["to"]) for edge in told["edges"]}
    assert edges == {
        ("topic/orders", "query/shop/clean"),
        ("query/shop/clean", "topic/clean"),
        ("topic/clean", "query/shop/revenue"),
        ("query/shop/revenue", "view/shop/revenue"),
        ("view/shop/revenue", "query/shop/fraud"),
        ("query/shop/fraud", "alert/shop/fraud"),
    }
    nodes = {node["id"]: node for node in told["nodes"]}
    assert nodes["query/shop/clean"]["lag"] == 5
    assert nodes["topic/clean"]["kind"] == "derived"
    assert nodes["query/old/entry"]["lag"] is None
    revenue, fraud = nodes["view/shop/revenue"], nodes["alert/shop/fraud"]
    assert (revenue["rate"], revenue["watermark"]) == (fraud["rate"], fraud["watermark"]) == (2.0, "2026-01-02T03:30")
    assert [fraud[name] for name in ("rows", "sent", "waiting", "dead")] == [7, 4, 2, 1]
    assert set(nodes) == {name for edge in edges for name in edge} | {"query/old/entry"}


def test_rows_of_an_alert_are_counted_without_the_markers_of_transactions() -> None:
    feed = MemoryFeed(rows_at_once=2)
    alert, deliveries = {"app": "shop", "name": "fraud", "topic": "shop.fraud"}, Deliveries(Feeds(lambda: feed))
    for _ in range(3):
        feed.append("shop.fraud", b"k", b"{}")
        feed.skip("shop.fraud")
    look = Look(0.0, topics={"shop.fraud": {"records": 6}, "shop.fraud.dead": {"records": 1}})
    look.offsets["shop.fraud", 0] = PartitionOffsets(0, 6)
    assert deliveries.of(alert, look) == {"rows": 3, "sent": None, "waiting": None, "dead": 1}
    for committed, sent, waiting in ((3, 1, 1), (5, 2, 0), (1, 0, 2)):
        look.committed["shop.fraud.delivery"] = {("shop.fraud", 0): committed}
        assert deliveries.of(alert, look) == {"rows": 3, "sent": sent, "waiting": waiting, "dead": 1}
