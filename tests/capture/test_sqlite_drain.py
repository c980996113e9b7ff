"""The way from an SQLite file into the log: where it goes on, what it refuses, what it makes up for."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from headrace.capture import sqlite as looking
from headrace.capture.declarations import Captured, SQLite
from headrace.capture.run import CaptureRun
from headrace.capture.settings import CaptureSettings
from headrace.capture.sqlite import SQLiteFile
from headrace.capture.sqlite_capture import SQLiteCapture
from headrace.capture.sqlite_drain import SourceMoved, SQLiteDrain, position_key
from headrace.feed.cluster import Cluster
from headrace.feed.topics import COMPACTED, MARKS, ensure_topic
from headrace.testing.broker import EmbeddedBroker
from tests.capture.topics import Reader

pytestmark = pytest.mark.system


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with EmbeddedBroker(tmp_path / "log") as broker:
        cluster = Cluster(broker.bootstrap, {})
        ensure_topic(cluster, "people", 1, COMPACTED)
        yield cluster


@pytest.fixture
def path(tmp_path: Path) -> Path:
    execute(tmp_path / "shop.sqlite", "CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT)")
    return tmp_path / "shop.sqlite"


def execute(path: Path, *statements: str) -> list[Any]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return [row for statement in statements for row in connection.execute(statement)]


@contextmanager
def draining(path: Path, cluster: Cluster, told: list[str] | None = None, **more: Any) -> Iterator[SQLiteDrain]:
    """Everything there is has been carried when it begins, and when it ends."""
    source = SQLite(path, table="people", **more)
    sentences: list[str] = [] if told is None else told
    drain = SQLiteDrain("shop", Captured("people", source, ("id",)), cluster, told=sentences.append)
    try:
        drain.open()
        carry(drain)
        yield drain
        carry(drain)
    finally:
        drain.close()


def carry(drain: SQLiteDrain) -> None:
    while drain.step():
        pass


def topic(cluster: Cluster) -> list[tuple[int, str, Any]]:
    """Key, op and name of each record."""
    reader = Reader(cluster.bootstrap, "people")
    _, end = cluster.bounds("people")[0]
    reader.until(lambda: end == 0 or (bool(reader.changes) and reader.changes[-1].offset >= end - 2))
    reader.close()
    return [(one.key["id"], one.op, one.row and one.row["name"]) for one in reader.changes]


def last(cluster: Cluster) -> dict[int, Any]:
    """The table that the topic stands for."""
    rows = {key: name for key, _, name in topic(cluster)}
    return {key: name for key, name in rows.items() if name is not None}


def table(path: Path) -> dict[int, str]:
    return dict(execute(path, "SELECT id, name FROM people"))


def test_rows_that_are_there_come_first_and_changes_follow_in_order(path: Path, cluster: Cluster) -> None:
    execute(path, "INSERT INTO people VALUES (1, 'a'), (2, 'b')")
    with draining(path, cluster):
        execute(path, "UPDATE people SET name = 'c' WHERE id = 1", "DELETE FROM people WHERE id = 2")
    with draining(path, cluster):
        execute(path, "UPDATE people SET id = 9 WHERE id = 1")
    assert topic(cluster) == [
        (1, "r", "a"), (2, "r", "b"), (1, "u", "c"), (2, "d", None), (2, "tombstone", None),
        (1, "d", None), (1, "tombstone", None), (9, "c", "c"),
    ]  # fmt: skip


def test_records_say_where_they_come_from(path: Path, cluster: Cluster) -> None:
    with draining(path, cluster):
        execute(path, "INSERT INTO people VALUES (1, 'a')")
    reader = Reader(cluster.bootstrap, "people")
    reader.until(lambda: bool(reader.changes))
    (change,) = reader.changes
    reader.close()
    assert change.value is not None
    source = change.value["source"]
    assert source.keys() == {"connector", "name", "db", "table", "ts_ms", "ts_us", "id", "snapshot"}
    assert (source["connector"], source["db"], source["table"], source["id"]) == ("sqlite", "shop.sqlite", "people", 1)
    assert json.loads(change.headers["source"]) == source
    assert abs(source["ts_ms"] - change.value["ts_ms"]) < 3_600_000


def test_never_a_snapshot_means_changes_only(path: Path, cluster: Cluster) -> None:
    execute(path, "INSERT INTO people VALUES (1, 'a')")
    with draining(path, cluster, snapshot="never"):
        execute(path, "INSERT INTO people VALUES (2, 'b')")
    assert topic(cluster) == [(2, "c", "b")]


def test_changes_that_are_in_the_log_leave_the_file(path: Path, cluster: Cluster) -> None:
    with draining(path, cluster):
        execute(path, "INSERT INTO people VALUES (1, 'a'), (2, 'b')")
    with draining(path, cluster) as drain:
        drain._forget_at = 0.0
        carry(drain)
        assert execute(path, 'SELECT count(*) FROM "_headrace.shop.people.changes"') == [(0,)]
        execute(path, "INSERT INTO people VALUES (3, 'c')")
    assert topic(cluster) == [(1, "c", "a"), (2, "c", "b"), (3, "c", "c")]


def test_a_second_drain_fences_the_first(path: Path, cluster: Cluster) -> None:
    execute(path, "INSERT INTO people VALUES (1, 'a')")
    with draining(path, cluster) as first:
        with draining(path, cluster):
            execute(path, "INSERT INTO people VALUES (2, 'b')")
            with pytest.raises(Exception, match=r"fenced|epoch|taken over"):
                carry(first)
        first._producer = None
        assert topic(cluster) == [(1, "r", "a"), (2, "c", "b")]
        first.open()


def test_an_older_copy_of_the_file_is_refused_and_may_be_taken_for_the_truth(path: Path, cluster: Cluster) -> None:
    execute(path, "INSERT INTO people VALUES (1, 'a')")
    with draining(path, cluster):
        pass
    shutil.copy(path, path.with_suffix(".old"))
    with draining(path, cluster):
        execute(path, "INSERT INTO people VALUES (2, 'b')", "UPDATE people SET name = 'A' WHERE id = 1")
    shutil.copy(path.with_suffix(".old"), path)
    with (
        pytest.raises(SourceMoved, match="is not the one that 'people' was captured from") as refused,
        draining(path, cluster),
    ):
        pass
    assert "headrace capture snapshot shop.people" in str(refused.value.hint)
    assert last(cluster) == {1: "A", 2: "b"}, "nothing was written"
    drain = SQLiteDrain("shop", Captured("people", SQLite(path, table="people"), ("id",)), cluster)
    drain.open(as_truth=True)
    carry(drain)
    execute(path, "INSERT INTO people VALUES (3, 'c')")
    carry(drain)
    drain.close()
    assert last(cluster) == {1: "a", 3: "c"} == table(path)


def test_another_file_is_refused(path: Path, cluster: Cluster) -> None:
    with draining(path, cluster):
        execute(path, "INSERT INTO people VALUES (1, 'a')")
    path.unlink()
    execute(path, "CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT)", "INSERT INTO people VALUES (5, 'e')")
    with pytest.raises(SourceMoved, match="another file"), draining(path, cluster):
        pass


def test_a_table_that_is_made_anew_is_captured_anew_and_what_it_lost_is_deleted(path: Path, cluster: Cluster) -> None:
    told: list[str] = []
    execute(path, "INSERT INTO people VALUES (1, 'a'), (2, 'b')")
    with draining(path, cluster):
        pass
    execute(
        path,
        "CREATE TABLE other (id INTEGER PRIMARY KEY, name TEXT)",
        "INSERT INTO other SELECT * FROM people WHERE id > 1",
        "DROP TABLE people",
        "ALTER TABLE other RENAME TO people",
        "INSERT INTO people VALUES (3, 'c')",
    )
    with draining(path, cluster, told):
        execute(path, "INSERT INTO people VALUES (4, 'd')")
    assert last(cluster) == {2: "b", 3: "c", 4: "d"} == table(path)
    assert "triggers were gone" in told[0]


def test_a_capture_that_was_removed_and_comes_back_ends_with_the_table(path: Path, cluster: Cluster) -> None:
    execute(path, "INSERT INTO people VALUES (1, 'a'), (2, 'b')")
    with draining(path, cluster):
        pass
    file = SQLiteFile(SQLite(path, table="people"))
    file.remove("shop", "people")
    file.close()
    producer = Producer(cluster.config())
    producer.produce(MARKS, key=position_key("shop", "people"), value=None)
    producer.flush(30)
    execute(path, "DELETE FROM people WHERE id = 1")
    with draining(path, cluster):
        pass
    assert last(cluster) == {2: "b"}


def test_a_new_log_gets_all_rows(path: Path, cluster: Cluster, tmp_path: Path) -> None:
    execute(path, "INSERT INTO people VALUES (1, 'a')")
    with draining(path, cluster) as drain:
        execute(path, "INSERT INTO people VALUES (2, 'b')")
        carry(drain)
        drain._forget_at = 0.0
        carry(drain)
    with EmbeddedBroker(tmp_path / "other log") as broker:
        other = Cluster(broker.bootstrap, {})
        ensure_topic(other, "people", 1, COMPACTED)
        with draining(path, other):
            execute(path, "DELETE FROM people WHERE id = 1")
        assert last(other) == {2: "b"}


def test_a_capture_tells_how_it_is_pauses_and_goes_on(path: Path, cluster: Cluster) -> None:
    capture = SQLiteCapture("shop", Captured("people", SQLite(path, table="people"), ("id",)), cluster)
    capture.start()
    until(lambda: capture.status.state == "streaming")
    reader = Reader(cluster.bootstrap, "people")
    execute(path, "INSERT INTO people VALUES (1, 'a')")
    reader.until(lambda: len(reader.changes) == 1)
    capture.pause()
    until(lambda: capture.status.state == "paused")
    execute(path, "INSERT INTO people VALUES (2, 'b')")
    until(lambda: capture.status.pending == 1)
    capture.resume()
    reader.until(lambda: len(reader.changes) == 2)
    capture.snapshot()
    reader.until(lambda: [one.op for one in reader.changes] == ["c", "c", "r", "r"])
    until(lambda: capture.status.state == "streaming")
    capture.stop()
    assert capture.status.state == "stopped"
    reader.close()


def test_what_cannot_be_captured_is_told_once_and_tried_again(path: Path, cluster: Cluster) -> None:
    told: list[str] = []
    execute(path, "ALTER TABLE people RENAME TO other")
    capture = SQLiteCapture("shop", Captured("people", SQLite(path, table="people"), ("id",)), cluster, told.append)
    capture.start()
    until(lambda: capture.status.state == "failed")
    execute(path, "ALTER TABLE other RENAME TO people", "INSERT INTO people VALUES (1, 'a')")
    until(lambda: capture.status.state == "streaming" and capture.status.rows == 1)
    capture.stop()
    assert sum("there is no table" in sentence for sentence in told) == 1


def test_a_lock_is_told_as_a_lock_and_waited_for(path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "BUSY_S", 0.05)
    told: list[str] = []
    capture = SQLiteCapture("shop", Captured("people", SQLite(path, table="people"), ("id",)), cluster, told.append)
    capture.start()
    until(lambda: capture.status.state == "streaming")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        until(lambda: capture.status.state == "waiting")
        assert "is locked by another program" in str(capture.status.error)
        assert not capture.has_carried_all()
        other.execute("INSERT INTO people VALUES (1, 'a')")
        other.execute("COMMIT")
    until(lambda: capture.status.state == "streaming" and capture.status.rows == 1)
    assert capture.has_carried_all()
    capture.stop()
    assert sum("is locked by another program" in sentence for sentence in told) == 1


def test_noted_changes_that_somebody_dropped_are_missed_and_all_is_read_anew_when_asked_for(
    path: Path, cluster: Cluster
) -> None:
    capture = SQLiteCapture("shop", Captured("people", SQLite(path, table="people"), ("id",)), cluster)
    capture.start()
    execute(path, "INSERT INTO people VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    until(lambda: capture.status.rows == 3)
    execute(path, 'DROP TABLE "_headrace.shop.people.changes"')
    until(lambda: capture.status.state == "failed")
    assert "captured from" in str(capture.status.error)
    assert not capture.has_carried_all()
    execute(path, "DELETE FROM people WHERE id = 1")
    capture.snapshot()
    until(lambda: capture.status.state == "streaming" and capture.has_carried_all())
    capture.stop()
    assert last(cluster) == {2: "b", 3: "c"}


def test_a_capture_goes_on_after_an_error_that_nobody_thought_of(
    path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    capture = SQLiteCapture("shop", Captured("people", SQLite(path, table="people"), ("id",)), cluster, told.append)

    def broken(drain: SQLiteDrain) -> bool:
        raise KeyError("oh")

    with monkeypatch.context() as patched:
        patched.setattr(SQLiteDrain, "step", broken)
        capture.start()
        until(lambda: capture.status.state == "failed")
        assert capture.status.error == "KeyError: 'oh'"
    execute(path, "INSERT INTO people VALUES (1, 'a')")
    until(lambda: capture.status.state == "streaming" and capture.status.rows > 0)
    capture.stop()
    assert told[0] == "table people: KeyError: 'oh'"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_waiting_until_all_is_captured_ends_when_a_capture_has_failed_with_its_reason(
    path: Path, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(drain: SQLiteDrain) -> bool:
        raise SystemExit

    table = Captured("people", SQLite(path, table="people"), ("id",))
    run = CaptureRun("shop", [table], CaptureSettings(cluster.bootstrap, tmp_path / "data"))
    run.start()
    try:
        assert run.wait_until_current(threading.Event())
        assert run.trouble is None
        execute(path, "ALTER TABLE people RENAME TO other")
        until(lambda: run.statuses[0].state == "failed")
        assert not run.wait_until_current(threading.Event())
        assert "table people: there is no table 'people'" in str(run.trouble)
        execute(path, "ALTER TABLE other RENAME TO people")
        until(lambda: run.statuses[0].state == "streaming")
        monkeypatch.setattr(SQLiteDrain, "step", dies)
        until(lambda: run.statuses[0].state == "failed")
        assert not run.wait_until_current(threading.Event())
        assert run.trouble == "table people: it has ended"
    finally:
        run.stop()


def until(what: Any) -> None:
    """Wait for something that another thread does; the test's own time limit ends it."""
    while not what():
        time.sleep(0.01)
