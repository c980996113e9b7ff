"""A database that keeps much of its log for a capture: an alarm, and what comes after it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.capture.declarations import Captured
from headrace.capture.declarations import Postgres as Source
from headrace.capture.status import families
from headrace.errors import HeadraceError
from tests.capture.databases import Postgres
from tests.capture.running import Running
from tests.servers import Headrace

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def own() -> Iterator[Postgres]:
    """A PostgreSQL of the test's own: its settings are changed."""
    server = Postgres({"min_wal_size": "32MB", "max_wal_size": "64MB"})
    server.execute("create table t (id int primary key); create table busy (v text)")
    server.execute("insert into t values (1)")
    yield server
    server.close()


def limit(own: Postgres, size: str) -> None:
    own.execute(f"alter system set max_slot_wal_keep_size = '{size}'")
    own.execute("select pg_reload_conf()")


def write(own: Postgres, mib: int) -> None:
    own.execute(f"insert into busy select repeat('x', 1024) from generate_series(1, {mib} * 1024)")


def metric(running: Running) -> float:
    (alarms,) = (one for one in families(s.entry() for s in running.run.statuses) if one.name.endswith("_alarm"))
    ((_, value),) = alarms.samples
    return float(value)


def test_an_alarm_comes_before_the_server_gives_a_capture_up_and_goes_when_it_has_caught_up(
    own: Postgres, log: Headrace, tmp_path: Path
) -> None:
    table = Captured("alarmed", Source(own.dsn(), table="t"))
    running = Running("alarmed", [table], log.bootstrap, tmp_path)
    (status,) = running.run.statuses
    try:
        assert any("ALTER SYSTEM SET max_slot_wal_keep_size" in line for line in running.told)
        running.until(lambda: status.state == "streaming")
        limit(own, "96MB")
        running.run.ask("alarmed", "pause")
        running.until(lambda: status.state == "paused")
        assert (status.alarm, metric(running)) == (None, 0)
        write(own, 64)
        running.until(lambda: status.alarm is not None)
        assert "gives it up at 96 MiB" in (status.alarm or "")
        assert metric(running) == 1
        running.run.ask("alarmed", "resume")
        running.until(lambda: own.execute("checkpoint") == [] and status.alarm is None)
        assert metric(running) == 0
        assert len([line for line in running.told if line.startswith("ALARM")]) == 1

        running.run.ask("alarmed", "pause")
        running.until(lambda: status.state == "paused")
        write(own, 64)
        running.until(lambda: status.alarm is not None)
        limit(own, "1MB")
        own.execute("checkpoint")
        assert own.execute("select wal_status from pg_replication_slots") == [("lost",)]
        running.until(lambda: status.state == "failed")
        assert "thrown away" in (status.last_error or "")
        assert "headrace capture remove" in (status.last_error or "")
        running.until(lambda: status.alarm is None)  # nothing is kept any more
    finally:
        running.stop()
    with pytest.raises(HeadraceError, match="thrown away") as refused:
        Running("alarmed", [table], log.bootstrap, tmp_path)
    assert "headrace capture remove" in (refused.value.hint or "")
