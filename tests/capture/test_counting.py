"""Rows captured are counted, each once: tombstones, markers of transactions and what was aborted are none."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headrace.capture.counting import CapturedRows
from headrace.capture.declarations import Captured, SQLite
from headrace.capture.positions import age_s
from headrace.capture.run import CaptureRun
from headrace.capture.settings import CaptureSettings
from headrace.capture.sqlite_capture import SQLiteStatus
from headrace.capture.status import TableStatus, families
from headrace.errors import ServerAway
from headrace.feed import Feed, open_feed
from headrace.feed.catalog import Catalog, read_catalog
from headrace.feed.cluster import Cluster
from headrace.feed.topics import COMPACTED, delete_topics, ensure_topic
from headrace.testing.broker import EmbeddedBroker


def metrics(status: TableStatus) -> dict[str, float]:
    """Of one table, by their names."""
    return {one.name: one.samples[0][1] for one in families([status.entry()]) if one.samples}


def test_how_far_behind_an_sqlite_file_is_says_the_oldest_change_that_waits() -> None:
    assert SQLiteStatus("starting").lag_seconds(100_000) is None
    assert SQLiteStatus("streaming", 5, 0).lag_seconds(100_000) == 0.0
    assert SQLiteStatus("waiting", 5, 2, 40_000).lag_seconds(100_000) == 60.0
    assert SQLiteStatus("waiting", 5, 2, 140_000).lag_seconds(100_000) == 0.0  # a clock that was turned back


def test_how_far_behind_a_connector_is_says_its_newest_change_or_heartbeat() -> None:
    hour_ago = time.time() - 3600
    for offset in ({"ts_usec": int(hour_ago * 1e6)}, {"ts_sec": int(hour_ago)}):
        age = age_s(offset)
        assert age is not None
        assert 3600 <= age < 7200
    assert age_s({"lsn": 7}) is None
    assert age_s(None) is None


def test_metrics_have_rows_lag_and_what_waits() -> None:
    status = TableStatus("shop", "t", "sqlite:/t", "t", "streaming", 12, 100, 1.5, rows=5, pending=2)
    found = metrics(status)
    assert found["headrace_capture_rows_total"] == 5
    assert found["headrace_capture_lag_bytes"] == 100
    assert found["headrace_capture_lag_seconds"] == 1.5
    assert found["headrace_capture_pending"] == 2


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with EmbeddedBroker(tmp_path / "log") as broker:
        cluster = Cluster(broker.bootstrap, {})
        ensure_topic(cluster, "people", 2, COMPACTED)
        yield cluster


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "shop.sqlite")) as made:
        made.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT)")
    return tmp_path / "shop.sqlite"


def write(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


@pytest.mark.system
@pytest.mark.parametrize("files", [True, False])
def test_a_count_is_of_committed_values_and_goes_on_where_it_was(
    cluster: Cluster, path: Path, tmp_path: Path, files: bool
) -> None:
    producer = Producer(cluster.config(transactional_id="writer"))
    producer.init_transactions()

    def transaction(*values: bytes | None, aborted: bool = False) -> None:
        producer.begin_transaction()
        for number, value in enumerate(values):
            producer.produce("people", key=b"k", value=value, partition=number % 2)
        (producer.abort_transaction if aborted else producer.commit_transaction)()

    def feed() -> Feed:
        return open_feed(cluster.bootstrap, tmp_path / "log" if files else None)

    def away() -> Feed:
        raise ServerAway("the log is away")

    def counted() -> int:
        rows = CapturedRows(feed, cluster, "shop", [Captured("people", SQLite(path, table="people"))])
        rows.look(30.0)
        rows.note(catalog)
        catalog.flush()
        rows.close()
        return rows.of("people")

    catalog = Catalog(cluster)
    assert counted() == 0
    transaction(b"1", b"2", b"3")
    transaction(b"4", b"5", aborted=True)
    transaction(b"6", None)
    assert counted() == 4
    assert counted() == 4
    transaction(b"7", None, b"8")
    assert counted() == 6
    unread = CapturedRows(away, cluster, "shop", [Captured("people", SQLite(path, table="people"))])
    with pytest.raises(ServerAway):
        unread.look(30.0)
    unread.note(catalog)
    catalog.flush()
    assert read_catalog(cluster, "capture-rows")["shop/people"]["rows"] == 6
    delete_topics(cluster, ["people"])
    ensure_topic(cluster, "people", 2, COMPACTED)
    transaction(b"9")
    assert counted() == 1, "another topic of the name"


@pytest.mark.system
def test_an_sqlite_capture_tells_its_rows_what_waits_and_for_how_long(
    cluster: Cluster, path: Path, tmp_path: Path
) -> None:
    def started() -> CaptureRun:
        table = Captured("people", SQLite(path, table="people"), ("id",))
        run = CaptureRun("shop", [table], CaptureSettings(cluster.bootstrap, tmp_path / "data"))
        run.start()
        return run

    def until(run: CaptureRun, **wanted: object) -> TableStatus:
        """Wait until it tells this; the test's own time limit ends it."""
        while True:
            (status,) = run.statuses
            if all(getattr(status, name) == value for name, value in wanted.items()):
                return status
            time.sleep(0.02)

    write(path, "INSERT INTO people VALUES (1, 'a'), (2, 'b')")
    run = started()
    until(run, state="streaming", rows=2, pending=0, lag_seconds=0.0)
    write(path, "UPDATE people SET name = 'c' WHERE id = 1; DELETE FROM people WHERE id = 2")
    until(run, rows=4, pending=0)
    run.ask("people", "pause")
    until(run, state="paused")
    write(path, "INSERT INTO people VALUES (3, 'd'), (4, 'e')")
    write(path, 'UPDATE "_headrace.shop.people.changes" SET at = at - 3600000')
    behind = metrics(until(run, state="paused", pending=2))
    assert behind["headrace_capture_rows_total"] == 4
    assert 3600 <= behind["headrace_capture_lag_seconds"] < 7200
    run.stop()
    run = started()
    until(run, state="paused", rows=4)
    run.ask("people", "resume")
    until(run, state="streaming", rows=6, pending=0, lag_seconds=0.0)
    run.stop()
    assert read_catalog(cluster, "capture")["shop/people"]["rows"] == 6
