"""A kill late in a large transaction, of which the database sends for long what is written already."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.capture.connectors import Connector
from headrace.capture.declarations import Captured
from headrace.capture.declarations import Postgres as Source
from headrace.feed.cluster import Cluster
from tests.capture.databases import Postgres
from tests.capture.large_transaction import read_rows, wanted
from tests.capture.running import Running
from tests.capture.slow_link import SlowLink
from tests.servers import Headrace

ROWS, WRITTEN = 200_000, 110_000
HANG_S, PATIENCE_S = 20.0, 300.0
SLOW = 200_000
"""Bytes a second: what was written before the kill then takes more than twice as long as may be waited."""


@pytest.mark.timeout(1000)
def test_what_a_database_sends_again_for_longer_than_a_watchdog_waits_is_no_reason_to_start_anew_for_ever(
    postgres: Postgres, log: Headrace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Connector.config

    def with_a_fast_heart(self: Connector, *arguments: object) -> dict[str, str]:
        return {**whole(self, *arguments), "heartbeat.interval.ms": "1000"}  # type: ignore[arg-type]

    monkeypatch.setattr(Connector, "config", with_a_fast_heart)
    postgres.create("late")
    postgres.execute("create table large (id bigint primary key, v text)", "late")
    link = SlowLink(postgres.port)
    table = Captured("late", Source(f"postgresql://postgres@127.0.0.1:{link.port}/late", table="large"))
    running = Running("late", [table], log.bootstrap, tmp_path, hang_s=HANG_S)
    try:
        running.until(lambda: running.state("late") == "streaming")
        with postgres.connect("late") as connection, connection.cursor() as cursor:
            cursor.execute("select g, md5(g::text) from generate_series(1, %s) g", [ROWS])
            rows = cursor.fetchall()
            with cursor.copy("copy large from stdin") as copy:
                for row in rows:
                    copy.write_row(row)
        cluster = Cluster(log.bootstrap, {})
        running.until(lambda: cluster.bounds("late")[0][1] >= WRITTEN, PATIENCE_S)
        link.bytes_per_s = SLOW
        running.kill_worker()
        end = cluster.bounds("late")[0][1]
        assert end < ROWS
        read_rows(log.bootstrap, "late", end + 1, PATIENCE_S)
        link.bytes_per_s = None  # what came again for so long is over
        found = read_rows(log.bootstrap, "late", ROWS, PATIENCE_S)
        assert not [sentence for sentence in running.told if "does not move" in sentence]
        assert found == wanted(postgres, "late"), f"{len(found)} keys came; told: {running.told}"
    finally:
        running.stop()
        link.close()
