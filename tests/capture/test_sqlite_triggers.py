"""Whatever several programs do with an SQLite table, the changes that its triggers note add up to the table."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.capture.declarations import Captured, SQLite
from headrace.capture.envelopes import change_records
from headrace.capture.sqlite import Installed, SQLiteFile
from headrace.capture.sqlite_drain import _changes
from headrace.errors import HeadraceError

TABLE = """CREATE TABLE people (
    id INTEGER PRIMARY KEY, name TEXT UNIQUE COLLATE NOCASE, town TEXT, street TEXT, n REAL, UNIQUE (town, street))"""


def connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=5, isolation_level=None)


def prepared(path: Path, table: str = TABLE, **more: Any) -> tuple[SQLiteFile, Installed]:
    with closing(connect(path)) as made:
        made.executescript(table)
    source = SQLite(path, table="people", **more)
    file = SQLiteFile(source)
    return file, file.install("shop", Captured("people", source))


def records(file: SQLiteFile, installed: Installed) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    """Everything that was noted, as records."""
    watched = installed.watched
    rows = file.changes(watched, 0, 10**9)
    for change in _changes(rows, watched.columns, watched.booleans):
        for record in change_records(change, watched.key, {}, 0):
            yield record.key, None if record.value is None else json.loads(record.value)


def folded(noted: Iterator[tuple[bytes, dict[str, Any] | None]]) -> dict[bytes, dict[str, Any]]:
    """The table as a reader of the records has it; every record must follow from the one before it of its key."""
    rows: dict[bytes, dict[str, Any]] = {}
    for key, value in noted:
        if value is None:
            assert key not in rows, "a tombstone follows the deletion"
        elif value["op"] == "d":
            assert rows.pop(key) == value["before"], "what is deleted is what was there"
        else:
            if value["op"] == "u":
                assert rows[key] == value["before"], "what is changed is what was there"
            rows[key] = value["after"]
    return rows


def table(path: Path, name: str = "people") -> dict[bytes, dict[str, Any]]:
    with closing(connect(path)) as reading:
        reading.row_factory = sqlite3.Row
        rows = [dict(row) for row in reading.execute(f"SELECT * FROM {name}")]
    return {json.dumps({"id": row["id"]}, separators=(",", ":")).encode(): row for row in rows}


ID, WORD = st.integers(1, 4), st.sampled_from(["a", "A", "b", None])
PERSON = st.tuples(ID, WORD, WORD, WORD, st.sampled_from([0.1, 1e300, None]))
CLAUSE = st.sampled_from(["", "OR REPLACE", "OR IGNORE", "OR ABORT", "OR FAIL", "OR ROLLBACK"])
COLUMN = st.sampled_from(["id", "name", "town", "street", "n"])
INSERT = st.tuples(CLAUSE, st.lists(PERSON, min_size=1, max_size=3)).map(
    lambda g: (f"INSERT {g[0]} INTO people VALUES {', '.join(['(?, ?, ?, ?, ?)'] * len(g[1]))}", sum(g[1], ()))
)
UPDATE = st.tuples(CLAUSE, COLUMN, ID, st.one_of(ID, WORD)).map(
    lambda g: (f"UPDATE {g[0]} people SET {g[1]} = ? WHERE id >= ?", (g[3], g[2]))
)
UPSERT = PERSON.map(
    lambda g: ("INSERT INTO people VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET name = excluded.name", g)
)
DELETE = ID.map(lambda g: ("DELETE FROM people WHERE id <= ?", (g,)))
WORK = st.one_of(INSERT, UPDATE, UPSERT, DELETE, st.sampled_from([("BEGIN", ()), ("COMMIT", ()), ("ROLLBACK", ())]))


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 1), WORK), max_size=25), st.booleans(), st.booleans())
def test_the_changes_add_up_to_the_table_whatever_is_done_with_it(work, recursive, stamped):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "shop.sqlite"
        file, installed = prepared(path)
        writers = [connect(path), connect(path)]
        if stamped:  # a trigger of the user's own, which changes rows after ours have been called, or before
            writers[0].execute(
                "CREATE TRIGGER stamp AFTER UPDATE OF name ON people BEGIN "
                "UPDATE people SET n = 7 WHERE id = NEW.id; END"
            )
        for writer in writers:
            writer.execute(f"PRAGMA recursive_triggers = {int(recursive)}")
            writer.execute("PRAGMA busy_timeout = 0")
            writer.execute("PRAGMA synchronous = OFF")
        for number, (sql, values) in work:
            with suppress(sqlite3.Error):
                writers[number].execute(sql, values)
        for writer in writers:
            writer.close()
        if stamped:
            assert {k: v for k, v in last_rows(records(file, installed)).items() if v is not None} == table(path)
        else:
            assert folded(records(file, installed)) == table(path)
        file.close()


def last_rows(noted: Iterator[tuple[bytes, dict[str, Any] | None]]) -> dict[bytes, dict[str, Any] | None]:
    return {key: None if value is None else value["after"] for key, value in noted}


def test_values_are_noted_as_they_are_stored(tmp_path):
    path = tmp_path / "shop.sqlite"
    file, installed = prepared(path, "CREATE TABLE people (id INTEGER PRIMARY KEY, v, ok BOOLEAN)")
    values = [1, -(2**63), 2**63 - 1, 0.1, 1e-310, 1.7976931348623157e308, "ä'\"\n", "", b"\x00\xff", b"", None, 3.0]
    values += [float("inf"), float("-inf")]
    with closing(connect(path)) as writer:
        writer.executemany("INSERT INTO people VALUES (NULL, ?, 1)", [(value,) for value in values])
    said = [value["after"]["v"] for _, value in records(file, installed) if value]
    assert said == [*values[:8], "AP8=", "", None, 3.0, "Infinity", "-Infinity"]
    assert [type(value) for value in said[:7]] == [type(value) for value in values[:7]]
    assert {value["after"]["ok"] for _, value in records(file, installed) if value} == {True}
    file.close()


def test_a_key_of_several_columns_and_tables_without_rowid(tmp_path):
    path = tmp_path / "shop.sqlite"
    file, installed = prepared(
        path,
        "CREATE TABLE people (a TEXT, b INTEGER, c, PRIMARY KEY (b, a)) WITHOUT ROWID;"
        "INSERT INTO people VALUES ('x', 1, 2)",
    )
    with closing(connect(path)) as writer:
        writer.execute("INSERT INTO people VALUES ('y', 1, 3), ('y', 2, 4)")
        writer.execute("UPDATE people SET a = 'z' WHERE b = 2")
        writer.execute("DELETE FROM people WHERE a = 'y'")
    found = [(key, value and value["op"]) for key, value in records(file, installed)]
    assert found == [
        (b'{"b":1,"a":"y"}', "c"),
        (b'{"b":2,"a":"y"}', "c"),
        (b'{"b":2,"a":"y"}', "d"),
        (b'{"b":2,"a":"y"}', None),
        (b'{"b":2,"a":"z"}', "c"),
        (b'{"b":1,"a":"y"}', "d"),
        (b'{"b":1,"a":"y"}', None),
    ]
    file.close()


def test_what_is_rolled_back_was_never_noted(tmp_path):
    path = tmp_path / "shop.sqlite"
    file, installed = prepared(path)
    with closing(connect(path)) as writer:
        writer.execute("BEGIN")
        writer.execute("INSERT INTO people (id) VALUES (1)")
        writer.execute("ROLLBACK")
    assert not list(records(file, installed))
    file.close()


def test_a_snapshot_goes_chunk_by_chunk_while_others_write(tmp_path):
    path = tmp_path / "shop.sqlite"
    file, installed = prepared(path)
    with closing(connect(path)) as writer:
        file.remove("shop", "people")
        writer.executemany("INSERT INTO people (id, n) VALUES (?, 0)", [(n,) for n in range(0, 100, 2)])
        installed = file.ask_for_snapshot(file.install("shop", Captured("people", file.source)), again=False)
        steps = 0
        while file.copy_chunk(installed, 7) is not None:
            writer.execute("UPDATE people SET n = n + 1 WHERE id % 6 = 0")
            writer.execute("INSERT INTO people (id, n) VALUES (?, -1)", (2 * steps * 7 + 1,))
            writer.execute("DELETE FROM people WHERE id = ?", (98 - 2 * steps,))
            steps += 1
        assert steps > 5
    found = {key: row for key, row in last_rows(records(file, installed)).items() if row is not None}
    assert found == table(path)
    file.close()


def test_a_table_that_was_made_anew_is_noticed_and_read_again(tmp_path):
    path = tmp_path / "shop.sqlite"
    file, installed = prepared(path)
    with closing(connect(path)) as writer:
        writer.executescript("DROP TABLE people; CREATE TABLE people (id INTEGER PRIMARY KEY, more TEXT)")
    again = file.install("shop", Captured("people", file.source))
    assert again.renewed
    assert again.snapshot == "again"
    assert not file.install("shop", Captured("people", file.source)).renewed
    assert again.file == installed.file
    file.close()


def test_a_column_that_comes_is_noted_from_then_on(tmp_path):
    path = tmp_path / "shop.sqlite"
    file, installed = prepared(path)
    with closing(connect(path)) as writer:
        writer.execute("INSERT INTO people (id) VALUES (1)")
        writer.execute("ALTER TABLE people ADD COLUMN age INTEGER DEFAULT 9")
        installed = file.install("shop", Captured("people", file.source))
        assert not installed.renewed
        writer.execute("INSERT INTO people (id, age) VALUES (2, 30)")
    assert [value["after"]["age"] for _, value in records(file, installed) if value] == [None, 30]
    file.close()


def test_nothing_is_left_when_a_capture_is_removed(tmp_path):
    path = tmp_path / "shop.sqlite"
    file, _ = prepared(path)
    with closing(connect(path)) as writer:
        before = list(writer.execute("SELECT name FROM sqlite_master WHERE name LIKE '%headrace%'"))
        assert before
        file.remove("shop", "people")
        assert not list(writer.execute("SELECT name FROM sqlite_master WHERE name LIKE '%headrace%'"))
        writer.execute("INSERT INTO people (id) VALUES (1)")
    file.close()


MISTAKES = {
    "there is no table 'people'": "CREATE TABLE other (id INTEGER PRIMARY KEY)",
    "has no primary key": "CREATE TABLE people (id INTEGER)",
    "unique index over expressions": "CREATE TABLE people (id INTEGER PRIMARY KEY, n);"
    "CREATE UNIQUE INDEX u ON people (abs(n))",
    "whose key, 'id', is null": "CREATE TABLE people (id TEXT PRIMARY KEY); INSERT INTO people VALUES (NULL)",
}


@pytest.mark.parametrize("sentence", MISTAKES)
def test_what_cannot_be_captured_is_refused_before_anything_is_made(tmp_path, sentence):
    path = tmp_path / "shop.sqlite"
    with pytest.raises(HeadraceError, match=sentence) as refused:
        prepared(path, MISTAKES[sentence])
    assert refused.value.hint
    with closing(connect(path)) as reading:
        assert not list(reading.execute("SELECT name FROM sqlite_master WHERE name LIKE '%headrace%'"))


def test_a_file_that_is_not_there_is_not_made(tmp_path):
    with pytest.raises(HeadraceError, match="there is no SQLite file"):
        SQLiteFile(SQLite(tmp_path / "none.sqlite", table="people"))
    assert not (tmp_path / "none.sqlite").exists()
