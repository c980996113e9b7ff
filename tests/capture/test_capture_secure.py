"""A database is captured into an Apache Kafka that wants TLS and a password, which nobody gets to see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.capture.declarations import Captured
from headrace.capture.declarations import Postgres as Source
from headrace.feed.cluster import Cluster
from tests.capture.databases import Postgres
from tests.capture.running import Running
from tests.capture.topics import Reader
from tests.secured import SecureKafka, account

SECRET = "77-log-s3cret"


@pytest.mark.timeout(600)
def test_rows_come_over_tls_and_the_logs_password_is_in_no_topic_and_no_file(
    postgres: Postgres, tmp_path: Path
) -> None:
    dsn = postgres.create("secured")
    postgres.execute("create table t (id int primary key, v text); insert into t values (1, 'one')", "secured")
    kafka = SecureKafka(tmp_path / "kafka", password=SECRET, heap="256m")
    client = account(kafka, "PLAIN", "admin", SECRET)
    table = Captured("secured", Source(dsn, table="t"))
    running = Running("secured", [table], kafka.bootstrap, tmp_path / "run", client=client)
    try:
        reader = Reader(kafka.bootstrap, "secured", client)
        running.until(lambda: running.state("secured") == "streaming")
        postgres.execute("insert into t values (2, 'two'); delete from t where id = 1", "secured")
        reader.until(lambda: reader.table() == {json.dumps({"id": 2}): {"id": 2, "v": "two"}})
        reader.close()
        topics = Cluster(kafka.bootstrap, client).admin.list_topics(timeout=30).topics
        own = [name for name in topics if name.startswith("headrace.")]
        assert any(name.endswith(".config") for name in own)
        for name in own:
            follower = Reader(kafka.bootstrap, name, client)
            assert all(SECRET.encode() not in bytes(one.value() or b"") for one in follower.raw(2.0)), name
            follower.close()
        for file in (tmp_path / "run").rglob("*"):
            assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file
    finally:
        running.stop()
        kafka.stop()
