"""What is wrong with one database of an app does not disturb the captures of others."""

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


@pytest.mark.timeout(900)
def test_a_database_that_lost_what_capture_made_there_leaves_others_and_their_worker_alone(
    postgres: Postgres, log: Headrace, tmp_path: Path
) -> None:
    for name in ("sound", "spoilt"):
        postgres.create(name)
        postgres.execute("create table t (id int primary key); insert into t values (1)", name)
    tables = [Captured(name, Source(postgres.dsn(name), table="t")) for name in ("sound", "spoilt")]
    running = Running("trouble", tables, log.bootstrap, tmp_path)
    readers = {name: Reader(log.bootstrap, name) for name in ("sound", "spoilt")}
    try:
        for name in readers:
            running.until(lambda: running.state(name) == "streaming")  # noqa: B023
        worker = running.worker_pid
        postgres.execute("drop table headrace_trouble_signal", "spoilt")
        running.run.ask("spoilt", "snapshot")
        running.until(lambda: any("ALTER PUBLICATION" in sentence for sentence in running.told))

        postgres.execute("alter table headrace_trouble_heartbeat rename beat to beaten", "spoilt")
        running.until(lambda: running.state("spoilt") == "failed")
        assert running.state("sound") == "streaming"
        postgres.execute("insert into t values (2)", "sound")
        readers["sound"].until(lambda: list(readers["sound"].table()) == [json.dumps({"id": n}) for n in (1, 2)])

        postgres.execute("alter table headrace_trouble_heartbeat rename beaten to beat", "spoilt")
        running.until(lambda: running.state("spoilt") == "streaming")
        postgres.execute("insert into t values (2)", "spoilt")
        readers["spoilt"].until(lambda: len(readers["spoilt"].table()) == 2)
        assert running.worker_pid == worker
    finally:
        running.stop()
        for reader in readers.values():
            reader.close()
