"""Bad days of a capture from PostgreSQL: servers that stop, slots that vanish, workers that hang, old copies."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headrace.capture.declarations import Captured
from headrace.capture.declarations import Postgres as Source
from headrace.capture.removal import remove
from headrace.errors import FolderInUse, HeadraceError
from headrace.feed.catalog import read_catalog
from tests.capture.databases import Postgres
from tests.capture.running import Running
from tests.capture.topics import Reader
from tests.servers import ApacheKafka, Headrace


def rows(postgres: Postgres, table: str) -> dict[str, dict[str, Any]]:
    found = postgres.execute(f"select to_jsonb(t) from {table} t")
    return {json.dumps({"id": row["id"]}): row for (row,) in found}


@pytest.fixture
def own() -> Any:
    """A PostgreSQL of the test's own: it is stopped, or its folder is exchanged."""
    server = Postgres()
    server.execute(
        "create table t (id int primary key, v text); insert into t select g, 'a' from generate_series(1, 500) g"
    )
    yield server
    server.close()


def start(own: Postgres, bootstrap: str, folder: Path, app: str, *more: Captured, **settings: float) -> Running:
    return Running(app, [Captured(app, Source(own.dsn(), table="t")), *more], bootstrap, folder, **settings)


@pytest.mark.timeout(900)
def test_the_source_and_the_log_restarted_and_a_worker_that_hangs(own: Postgres, tmp_path: Path) -> None:
    log = Headrace(tmp_path / "log")
    running = start(own, log.bootstrap, tmp_path, "restarts", silent_s=10.0)
    try:
        reader = Reader(log.bootstrap, "restarts")
        reader.until(lambda: reader.table() == rows(own, "t"))

        own.kill9()
        own.start()
        own.execute("insert into t values (1001, 'after the source')")
        reader.until(lambda: reader.table() == rows(own, "t"))

        log.kill9()
        own.execute("update t set v = 'while the log was away' where id <= 100")
        log.restart()
        reader.until(lambda: reader.table() == rows(own, "t"))

        stuck = running.worker_pid
        os.kill(stuck, signal.SIGSTOP)
        own.execute("insert into t values (1002, 'while it hung')")
        reader.until(lambda: reader.table() == rows(own, "t"))
        assert running.worker_pid != stuck
        assert any("does not move" in line for line in running.told)
        keyed = [change.key["id"] for change in reader.changes if change.op == "c"]
        assert sorted(keyed) == [1001, 1002]
        reader.close()
    finally:
        running.stop()
        log.stop()


@pytest.mark.timeout(900)
def test_a_slot_that_is_dropped_is_told_and_beginning_anew_ends_with_the_table(
    own: Postgres, log: Headrace, tmp_path: Path
) -> None:
    running = start(own, log.bootstrap, tmp_path, "dropped")
    reader = Reader(log.bootstrap, "dropped")
    try:
        running.until(lambda: running.state("dropped") == "streaming")
        slot = own.execute("select slot_name from pg_replication_slots")[0][0]
        own.execute(
            f"do $$ begin perform pg_terminate_backend(active_pid) from pg_replication_slots; "
            f"perform pg_sleep(0.1); perform pg_drop_replication_slot('{slot}'); end $$"
        )
        own.execute("delete from t where id <= 50; update t set v = 'unseen' where id = 60")
        running.until(lambda: running.state("dropped") == "failed")
        assert any("headrace capture remove" in line for line in running.told)
    finally:
        running.stop()
    with pytest.raises(HeadraceError, match="slot"):
        start(own, log.bootstrap, tmp_path, "dropped")
    tables = running.run.tables
    done = remove("dropped", tables, running.settings)
    assert any("publication" in line for line in done)
    assert own.execute("select count(*) from pg_replication_slots") == [(0,)]
    again = start(own, log.bootstrap, tmp_path, "dropped")
    try:
        reader.until(lambda: reader.table() == rows(own, "t"))
        own.execute("insert into t values (2000, 'on it goes')")
        reader.until(lambda: reader.table() == rows(own, "t"))
    finally:
        again.stop()
        reader.close()


def beat(own: Postgres) -> int:
    """The heartbeat in the database, in microseconds."""
    found: int = own.execute("select (extract(epoch from beat) * 1000000)::bigint from headrace_older_heartbeat")[0][0]
    return found


def noted(running: Running, app: str) -> int:
    """The newest heartbeat that is known to be captured."""
    found = read_catalog(running.run.cluster, "capture-beat")
    return max((int(one["beat"]) for name, one in found.items() if name.startswith(f"{app}/")), default=0)


def log_end(own: Postgres) -> int:
    return int(own.execute("select pg_current_wal_lsn() - '0/0'")[0][0])


@pytest.mark.timeout(900)
def test_an_older_copy_of_the_database_is_refused(own: Postgres, log: Headrace, tmp_path: Path) -> None:
    running = start(own, log.bootstrap, tmp_path, "older")
    reader = Reader(log.bootstrap, "older")
    try:
        running.until(lambda: running.state("older") == "streaming")
        running.stop()
        own.stop()
        shutil.copytree(own.data, own.folder / "backup")
        subprocess.run(["chown", "-R", "nobody", str(own.folder / "backup")], check=True)
        own.start()
        copied = beat(own)
        running = start(own, log.bootstrap, tmp_path, "older")
        own.execute("insert into t values (3000, 'only in the newer one')")
        reader.until(lambda: reader.table() == rows(own, "t"))
        running.until(lambda: noted(running, "older") > copied)
        end = log_end(own)
    finally:
        running.stop()
        reader.close()
    own.stop()
    shutil.rmtree(own.data)
    (own.folder / "backup").rename(own.data)
    own.start()
    with pytest.raises(HeadraceError, match="older copy") as refused:
        start(own, log.bootstrap, tmp_path, "older")
    assert "headrace capture remove" in (refused.value.hint or "")

    while log_end(own) < end + (1 << 20):  # the place that was captured last is now one of another history
        own.execute("update t set v = 'only in the copy'")
    with pytest.raises(HeadraceError, match=r"heartbeat.*older copy") as refused:
        start(own, log.bootstrap, tmp_path, "older")
    assert "headrace capture remove" in (refused.value.hint or "")
    remove("older", running.run.tables, running.settings)
    running = start(own, log.bootstrap, tmp_path, "older")
    reader = Reader(log.bootstrap, "older")
    try:
        reader.until(lambda: reader.table() == rows(own, "t"))
    finally:
        running.stop()
        reader.close()


@pytest.mark.timeout(900)
def test_a_table_is_added_to_a_running_capture_and_one_is_never_read(
    own: Postgres, log: Headrace, tmp_path: Path
) -> None:
    own.execute("create table u (id int primary key); insert into u select generate_series(1, 100)")
    own.execute("create table n (id int primary key); insert into n select generate_series(1, 100)")
    running = start(own, log.bootstrap, tmp_path, "grows")
    running.until(lambda: running.state("grows") == "streaming")
    with pytest.raises(FolderInUse):
        start(own, log.bootstrap, tmp_path, "grows")
    running.stop()
    never = Captured("never", Source(own.dsn(), table="n", snapshot="never"))
    running = start(own, log.bootstrap, tmp_path, "grows", Captured("added", Source(own.dsn(), table="u")), never)
    try:
        own.execute("insert into u values (101); update t set v = 'b'")
        running.until(lambda: running.state("never") == "streaming")
        own.execute("insert into n values (101)")
        added, seen, old = (Reader(log.bootstrap, name) for name in ("added", "never", "grows"))
        added.until(lambda: added.table() == rows(own, "u"))
        seen.until(lambda: len(seen.changes) >= 1)
        assert [change.key for change in seen.changes] == [{"id": 101}]
        old.until(lambda: old.table() == rows(own, "t"))
        assert sum(change.op == "r" for change in old.changes) == 500
        for reader in (added, seen, old):
            reader.close()
    finally:
        running.stop()


@pytest.mark.timeout(900)
def test_apache_kafka_is_a_log_like_ours(own: Postgres, tmp_path: Path) -> None:
    kafka = ApacheKafka(tmp_path / "kafka")
    running = None
    try:
        running = start(own, kafka.bootstrap, tmp_path, "elsewhere")
        reader = Reader(kafka.bootstrap, "elsewhere")
        reader.until(lambda: reader.table() == rows(own, "t"))
        running.kill_worker()
        own.execute("update t set v = 'b'; delete from t where id = 1")
        reader.until(lambda: reader.table() == rows(own, "t"))
        assert [change.op for change in reader.changes[-2:]] == ["d", "tombstone"]
        assert len(reader.changes) == 500 + 500 + 2
        reader.close()
    finally:
        if running is not None:
            running.stop()
        kafka.stop()
