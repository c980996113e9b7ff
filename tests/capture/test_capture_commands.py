"""What is asked of captured tables while they run: what is refused, with the reason, and what outlasts a restart."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from headrace.capture.commands import refusal
from headrace.capture.declarations import Captured, Outbox, SQLite
from headrace.capture.run import CaptureRun
from headrace.capture.settings import CaptureSettings
from headrace.capture.status import TableStatus
from headrace.testing.broker import EmbeddedBroker
from tests.capture.topics import Reader


def asked(action: str, source: str, *, is_outbox: bool = False, state: str = "streaming") -> bool:
    """Whether it may be asked."""
    return refusal(TableStatus("shop", "t", source, "t", state, is_outbox=is_outbox).entry(), action) is None


def test_what_cannot_be_done_is_refused_and_the_rest_is_not() -> None:
    server, file = "postgres://localhost:5432/shop", "sqlite:/data/shop.sqlite"
    for action in ("pause", "resume", "snapshot"):
        assert asked(action, server)
        assert asked(action, file)
    for action in ("snapshot-stop", "snapshot-hold", "snapshot-go"):
        assert asked(action, server, is_outbox=True)  # of rows that are read as the table is added
        assert not asked(action, file)
    assert not asked("snapshot", server, is_outbox=True)
    assert not asked("snapshot", file, is_outbox=True)
    assert asked("snapshot", file, is_outbox=True, state="failed")  # another file: it is taken for the truth


@pytest.fixture
def path(tmp_path: Path) -> Path:
    columns = "id INTEGER PRIMARY KEY, aggregatetype, aggregateid, type, payload"
    write(tmp_path / "shop.sqlite", f"CREATE TABLE people (id INTEGER PRIMARY KEY); CREATE TABLE events ({columns})")
    return tmp_path / "shop.sqlite"


def write(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


@contextmanager
def running(path: Path, bootstrap: str, told: list[str]) -> Iterator[CaptureRun]:
    events = SQLite(path, table="events")
    tables = [Captured("people", SQLite(path, table="people"), ("id",)), Captured("e", events, outbox=Outbox(events))]
    run = CaptureRun("shop", tables, CaptureSettings(bootstrap, path.parent / "data"), told.append)
    run.start()
    try:
        yield run
    finally:
        run.stop()


def until(enough: Callable[[], bool]) -> None:
    """Wait for something that another thread does; the test's own time limit ends it."""
    while not enough():
        time.sleep(0.02)


@pytest.mark.system
def test_a_file_that_was_paused_is_paused_after_a_restart_until_it_is_resumed(path: Path, tmp_path: Path) -> None:
    def state(run: CaptureRun) -> str:
        return run.statuses[0].state

    with EmbeddedBroker(tmp_path / "log") as broker:
        with running(path, broker.bootstrap, []) as run:
            until(lambda: state(run) == "streaming")
            run.ask("people", "pause")
            until(lambda: state(run) == "paused")
        write(path, "INSERT INTO people VALUES (1)")
        with running(path, broker.bootstrap, []) as run:
            until(lambda: state(run) not in ("starting", "snapshot"))
            assert state(run) == "paused"
            run.ask("people", "resume")
            reader = Reader(broker.bootstrap, "people")
            reader.until(lambda: len(reader.changes) == 1)
            reader.close()
        with running(path, broker.bootstrap, []) as run:
            until(lambda: state(run) == "streaming")


@pytest.mark.system
def test_rows_of_an_outbox_are_not_sent_again(path: Path, tmp_path: Path) -> None:
    told: list[str] = []
    write(path, "INSERT INTO events VALUES (1, 'order', 'o-1', 'Placed', '{}')")
    with EmbeddedBroker(tmp_path / "log") as broker, running(path, broker.bootstrap, told) as run:
        reader = Reader(broker.bootstrap, "e")
        reader.events(1)
        run.ask("e", "snapshot")
        assert "table e: snapshot is refused: shop.e is an outbox" in told[-1]
        write(path, "INSERT INTO events VALUES (2, 'order', 'o-2', 'Placed', '{}')")
        ((_, _, headers),) = reader.events(1)
        assert headers["id"] == b"2"
        reader.close()
