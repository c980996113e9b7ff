"""A connector that a kill left stopped halfway goes on; one that was paused, or whose database was left, does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.capture.declarations import Captured
from headrace.capture.declarations import Postgres as Source
from tests.capture.databases import Postgres
from tests.capture.running import Running
from tests.capture.topics import Reader
from tests.servers import Headrace


def rows(postgres: Postgres) -> dict[str, dict[str, int]]:
    return {json.dumps({"id": key}): {"id": key} for (key,) in postgres.execute("select id from t", "halfway")}


def stop_behind_its_back(running: Running) -> None:
    """As the supervisor does before it sweeps, or gives a connector another configuration."""
    supervisor = running.run.supervisor
    assert supervisor is not None
    assert supervisor.worker is not None
    for name in supervisor.worker.rest.connectors():
        supervisor.worker.rest.stop(name)


@pytest.mark.timeout(900)
def test_a_connector_left_stopped_goes_on_and_a_paused_one_does_not(
    postgres: Postgres, log: Headrace, tmp_path: Path
) -> None:
    dsn = postgres.create("halfway")
    postgres.execute("create table t (id int primary key); insert into t values (1)", "halfway")
    running = Running("halfway", [Captured("halfway", Source(dsn, table="t"))], log.bootstrap, tmp_path)
    reader = Reader(log.bootstrap, "halfway")
    try:
        running.until(lambda: running.state("halfway") == "streaming")
        stop_behind_its_back(running)
        running.kill_worker()
        postgres.execute("insert into t values (2)", "halfway")
        reader.until(lambda: reader.table() == rows(postgres))

        stop_behind_its_back(running)
        postgres.execute("insert into t values (3)", "halfway")
        reader.until(lambda: reader.table() == rows(postgres))
        running.until(lambda: running.state("halfway") == "streaming")  # or "paused" would be the stop of before

        running.run.ask("halfway", "pause")
        running.until(lambda: running.state("halfway") == "paused")
        killed = running.worker_pid
        running.kill_worker()
        running.until(lambda: running.state("halfway") == "starting")
        postgres.execute("insert into t values (4)", "halfway")
        running.until(lambda: running.state("halfway") == "paused")
        assert running.worker_pid != killed
        reader.read()
        assert json.dumps({"id": 4}) not in reader.table()
        running.run.ask("halfway", "resume")
        reader.until(lambda: reader.table() == rows(postgres))
        assert sorted(change.key["id"] for change in reader.changes) == [1, 2, 3, 4]
    finally:
        running.stop()
        reader.close()


@pytest.mark.timeout(900)
def test_of_a_database_that_an_app_leaves_the_statement_that_frees_its_log_is_told(
    postgres: Postgres, log: Headrace, tmp_path: Path
) -> None:
    for name in ("left_one", "entered_one"):
        postgres.create(name)
        postgres.execute("create table t (id int primary key); insert into t values (1)", name)
    slots = "select slot_name from pg_replication_slots where database = 'left_one'"
    first = Running("moves", [Captured("moved", Source(postgres.dsn("left_one"), table="t"))], log.bootstrap, tmp_path)
    try:
        first.until(lambda: first.state("moved") == "streaming")
    finally:
        first.stop()
    ((slot,),) = postgres.execute(slots)
    entered = Captured("moved", Source(postgres.dsn("entered_one"), table="t"))
    second = Running("moves", [entered], log.bootstrap, tmp_path)
    try:
        second.until(lambda: any("no longer captures" in line for line in second.told))
        (told,) = (line for line in second.told if "no longer captures" in line)
        assert "in database left_one of 127.0.0.1" in told
        statement = told.partition(f"127.0.0.1:{postgres.port}: ")[2]
        assert slot in statement
        second.until(lambda: second.state("moved") == "streaming")
        postgres.execute(statement, "left_one")
        assert postgres.execute(slots) == []
        assert postgres.execute("select count(*) from pg_publication", "left_one") == [(0,)]
    finally:
        second.stop()
