"""Programs that lock an SQLite file, in either way that it keeps its journal: the capture never locks them out."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from headrace.capture import sqlite as looking
from headrace.capture.declarations import Captured, SQLite
from headrace.capture.sqlite import Installed, SQLiteFile
from headrace.errors import ServerAway

JOURNALS = ("DELETE", "WAL")


def connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=0, isolation_level=None)


@contextmanager
def captured(path: Path, journal: str) -> Iterator[tuple[SQLiteFile, Installed]]:
    with closing(connect(path)) as made:
        made.executescript(
            f"PRAGMA journal_mode = {journal}; CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT);"
            "INSERT INTO people VALUES (1, 'a'), (2, 'b')"
        )
    source = SQLite(path, table="people")
    with closing(SQLiteFile(source)) as file:
        yield file, file.install("shop", Captured("people", source))


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """A program in mid-SELECT."""
    with closing(connect(path)) as reader:
        rows = reader.execute("SELECT * FROM people")
        rows.fetchone()
        yield
        rows.close()


@pytest.mark.parametrize("journal", JOURNALS)
def test_a_reader_that_takes_its_time_does_not_have_the_capture_lock_the_file(tmp_path: Path, journal: str) -> None:
    path = tmp_path / "shop.sqlite"
    with captured(path, journal) as (file, installed), closing(connect(path)) as app:
        app.execute("INSERT INTO people VALUES (3, 'c')")
        with reading(path):
            assert file.forget_changes(installed.watched, 1) is (journal == "WAL")
            assert app.execute("SELECT count(*) FROM people").fetchone() == (3,)
        app.execute("INSERT INTO people VALUES (4, 'd')")
        assert file.forget_changes(installed.watched, 1)
        assert [row[0] for row in file.changes(installed.watched, 0, 10)] == [2]


@pytest.mark.parametrize("journal", JOURNALS)
def test_a_copy_that_cannot_be_committed_is_undone_and_can_be_made_later(
    tmp_path: Path, journal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "COMMIT_S", 0.05)
    path = tmp_path / "shop.sqlite"
    with captured(path, journal) as (file, installed), closing(connect(path)) as app:
        asked = file.ask_for_snapshot(installed, again=False)
        if journal == "DELETE":
            with reading(path), pytest.raises(ServerAway, match="locked by another program"):
                file.copy_chunk(asked)
        app.execute("INSERT INTO people VALUES (3, 'c')")
        assert file.copy_chunk(asked) is not None
        assert [row[1] for row in file.changes(installed.watched, 0, 10)] == ["c", "r", "r", "r"]


def test_nobody_is_locked_out_while_keys_of_the_topic_are_looked_for_in_the_table(tmp_path: Path) -> None:
    path = tmp_path / "shop.sqlite"

    def keys(app: sqlite3.Connection) -> Iterator[tuple[int]]:
        for key in range(1, 6):
            yield (key,)
            app.execute("DELETE FROM people WHERE id = ?", (key,))

    with captured(path, "DELETE") as (file, installed), closing(connect(path)) as app:
        _, gone = file.end_snapshot(installed, keys(app), 0)
        noted = [(row[1], row[3]) for row in file.changes(installed.watched, 0, 10)]
    assert gone == 3
    assert noted == [("d", 1), ("d", 2), ("d", 3), ("d", 4), ("d", 5)], "those that it deletes itself are noted once"
