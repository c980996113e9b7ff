"""The SQLite store keeps the laws of stores; and what is its own."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import InvalidQuery
from headrace.views.question import asked
from headrace.views.sqlite_reading import SqliteReader, SqliteStores
from tests.views.reader_laws import ReaderLaws
from tests.views.store_laws import TOPIC_ID, Opened, StoreLaws, batch, sale, spec


def opened_in(folder: Path) -> Opened:
    stores = SqliteStores(folder)
    return Opened(stores.open("shop"), stores.reader(lambda: ["shop"]), stores)


class TestSqliteStore(StoreLaws, ReaderLaws):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        return tmp_path

    def open(self, place: Any) -> Opened:
        return opened_in(place)

    def fresh_place(self, factory: pytest.TempPathFactory) -> Path:
        return factory.mktemp("store")


def test_a_file_that_is_no_store_is_thrown_away(tmp_path: Path) -> None:
    (tmp_path / "shop.sqlite").write_bytes(b"this is not a database, " * 500)
    opened = opened_in(tmp_path)
    assert opened.store.builds() == []
    opened.close()


def test_a_store_of_another_format_is_thrown_away(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "shop.sqlite") as db:
        db.execute("CREATE TABLE something (a)")
        db.execute("PRAGMA user_version = 99")
    db.close()
    opened = opened_in(tmp_path)
    assert opened.store.builds() == []
    opened.close()


def test_readers_do_not_wait_for_a_writer_and_see_one_state(tmp_path: Path) -> None:
    opened = opened_in(tmp_path)
    build = opened.store.begin(spec(), TOPIC_ID)
    opened.store.apply(build, 0, batch(sale("EU", 1.0)), 1)
    with sqlite3.connect(tmp_path / "shop.sqlite", isolation_level=None) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute('UPDATE "sales~1" SET revenue = 9')
        assert [row[2] for row in opened.rows()] == [1.0]
        writer.execute("ROLLBACK")
    writer.close()
    opened.close()


def test_a_row_is_found_by_its_key_through_the_index(tmp_path: Path) -> None:
    opened = opened_in(tmp_path)
    opened.store.begin(spec(), TOPIC_ID)
    with sqlite3.connect(tmp_path / "shop.sqlite") as db:
        plan = db.execute("EXPLAIN QUERY PLAN SELECT * FROM sales WHERE ifnull(\"region\", x'') = 'EU'").fetchall()
    db.close()
    assert "USING INDEX sales~1~key" in str(plan)
    opened.close()


def test_a_question_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    opened = opened_in(tmp_path)
    build = opened.store.begin(spec(), TOPIC_ID)
    opened.store.apply(build, 0, batch(*(sale(f"r{at}", float(at)) for at in range(5000))), 5000)
    reader = SqliteReader(tmp_path, lambda: ["shop"], seconds=-1.0)
    for question in (asked(spec(), order="-revenue", limit="1"), asked(spec(), limit="all")):
        with pytest.raises(InvalidQuery, match="took longer than"):
            reader.select(("shop", "sales"), question)
    assert len(opened.reader.select(("shop", "sales"), asked(spec(), limit="all")).rows) == 5000
    opened.close()
