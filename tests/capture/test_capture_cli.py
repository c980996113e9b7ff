"""``headrace capture`` and ``headrace run`` as a person uses them, with a captured table."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.feed.cluster import Cluster
from headrace.feed.topics import ensure_topic
from tests.capture.databases import Postgres
from tests.servers import ROOT, Headrace, die_with_parent

COMMAND = str(Path(sys.executable).with_name("headrace"))
APP = """
import headrace as hr
from headrace import F
app = hr.App("shopfront")
customers = app.table("buyers", capture=hr.Postgres({dsn!r}, table="customers"))

@app.view(key="region")
def regions(buyers):
    return hr.aggregate(buyers, by="region", buyers=hr.count())
"""
ENV = {**os.environ, "HEADRACE_TOOLS": str(ROOT / ".tools"), "HEADRACE_CAPTURE_JAVA": "-XX:TieredStopAtLevel=1"}


def headrace(*arguments: str, code: int = 0) -> str:
    done = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=False, env=ENV, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def app(postgres: Postgres, tmp_path: Path) -> Iterator[Path]:
    dsn = postgres.create("shopfront")
    postgres.execute("create table customers (id int primary key, region text)", "shopfront")
    postgres.execute("insert into customers select g, 'r' || g % 3 from generate_series(1, 300) g", "shopfront")
    file = tmp_path / "shopfront.py"
    file.write_text(APP.format(dsn=dsn))
    yield file
    postgres.execute("drop database if exists shopfront with (force)")


@pytest.mark.timeout(900)
def test_a_captured_table_is_run_looked_at_and_removed(
    app: Path, postgres: Postgres, log: Headrace, tmp_path: Path
) -> None:
    where = ["--server", log.bootstrap]
    data = ["--data", str(tmp_path / "data")]
    headrace("run", str(app), "--once", *where, *data)
    said = tmp_path / "said.log"
    with said.open("wb") as output:
        child = subprocess.Popen(
            [COMMAND, "capture", "run", str(app), *where, *data],
            env=ENV,
            stdout=output,
            preexec_fn=die_with_parent,
            start_new_session=True,
        )
    try:
        one = _until(log, rows=300)
        assert one["table"] == "public.customers"
        assert one["lag_bytes"] is not None
        assert isinstance(one["lag_seconds"], float)
        assert "shopfront.buyers" in headrace("capture", "list", *where)
        assert 'headrace_capture_up{app="shopfront",table="buyers"} 1' in headrace("capture", "metrics", *where)
        assert "is paused" in headrace("capture", "pause", "shopfront.buyers", *where)
        assert "is streaming" in headrace("capture", "resume", "shopfront.buyers", *where)
        headrace("capture", "snapshot", "shopfront.buyers", *where)
        _until(log, rows=600)
        metrics = headrace("capture", "metrics", *where)
        assert 'headrace_capture_rows_total{app="shopfront",table="buyers"} 600' in metrics
        assert 'headrace_capture_lag_seconds{app="shopfront",table="buyers"}' in metrics
        for flag in ("hold", "go", "stop"):
            asked = f"snapshot-{flag} was asked for"
            assert asked in headrace("capture", "snapshot", "shopfront.buyers", f"--{flag}", *where)
            _until_said(said, f"table buyers: {asked}")
        assert "exclude each other" in headrace(
            "capture", "snapshot", "shopfront.buyers", "--hold", "--go", *where, code=1
        )
        assert "captured already" in headrace("capture", "remove", str(app), *where, *data, code=1)
        assert "no table 'shopfront.nobody'" in headrace("capture", "status", "shopfront.nobody", *where, code=1)
    finally:
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0
    cluster = Cluster(log.bootstrap, {})
    ensure_topic(cluster, "headrace.shopfront.0123abcd.message")  # an earlier version had such topics
    ensure_topic(cluster, "headrace.shopfront.notes")
    assert "dropped replication slot" in headrace("capture", "remove", str(app), *where, *data)
    left = "select count(*) from pg_replication_slots where database = 'shopfront'"
    assert postgres.execute(left) == [(0,)]
    ours = ("headrace.shopfront.", "headrace.connect.shopfront.")
    topics = [name for name in cluster.admin.list_topics(timeout=10.0).topics if name.startswith(ours)]
    assert topics == ["headrace.shopfront.notes"]
    assert json.loads(headrace("capture", "list", "-o", "json", *where)) == [
        one for one in json.loads(headrace("capture", "list", "-o", "json", *where)) if one["app"] != "shopfront"
    ]


def _until(log: Headrace, rows: int) -> dict[str, object]:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        found = json.loads(headrace("capture", "list", "-o", "json", "--server", log.bootstrap))
        for one in found:
            if one["app"] == "shopfront" and one["state"] == "streaming" and one["rows"] >= rows:
                assert one["rows"] == rows
                return dict(one)
        time.sleep(0.5)
    raise AssertionError(f"not streaming with {rows} rows: {found}")


def _until_said(file: Path, sentence: str) -> None:
    deadline = time.monotonic() + 60
    while sentence not in file.read_text():
        assert time.monotonic() < deadline, file.read_text()[-2000:]
        time.sleep(0.1)
