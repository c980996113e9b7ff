"""Capture from a real MariaDB into a real log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.capture import mariadb
from headrace.capture.connectors import connectors_of
from headrace.capture.declarations import Captured
from headrace.capture.declarations import MariaDB as Source
from headrace.capture.problems import Unreachable
from tests.capture.databases import MariaDB, mariadb_bin
from tests.capture.running import Running
from tests.capture.topics import Reader
from tests.servers import Headrace


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDB]:
    if mariadb_bin() is None:
        pytest.skip("MariaDB is not installed: apt-get install mariadb-server-core")
    one = MariaDB()
    one.execute("create database shop")
    yield one
    one.close()


def problems(dsn: str, table: str = "c", key: tuple[str, ...] = ()) -> list[str]:
    (connector,) = connectors_of("app", [Captured("c", Source(dsn, table=table), key)])
    return [one.cure for one in mariadb.problems(connector)]


def test_what_stands_in_the_way_is_told_with_its_cure(server: MariaDB) -> None:
    server.execute("create table c (id int primary key, name text); create table k (a int)", "shop")
    server.execute("create user guest identified by 'pw'; grant select on shop.* to guest")
    guest = server.dsn("shop", "guest", "pw")
    (cure,) = problems(guest)
    assert cure == "GRANT REPLICATION SLAVE, REPLICATION CLIENT, RELOAD ON *.* TO 'guest'@'%';"
    server.execute(cure)
    assert problems(guest) == []
    assert problems(guest, "k") == ["ALTER TABLE `shop`.`k` ADD PRIMARY KEY (...);  -- or say key= in the app"]
    assert "if it exists" in problems(guest, "nowhere")[0]
    server.execute("set global binlog_format = 'STATEMENT'; set global binlog_row_image = 'MINIMAL'")
    assert [one.split(";")[0] for one in problems(guest)] == [
        "SET GLOBAL binlog_format = 'ROW'",
        "SET GLOBAL binlog_row_image = 'FULL'",
    ]
    server.execute("set global binlog_format = 'ROW'; set global binlog_row_image = 'FULL'")
    with pytest.raises(Unreachable, match="refuses the password") as wrong:
        problems(server.dsn("shop", "guest", "hidden"))
    assert "hidden" not in str(wrong.value)


@pytest.mark.timeout(900)
def test_rows_changes_and_a_killed_worker(server: MariaDB, log: Headrace, tmp_path: Path) -> None:
    server.execute(
        "create table m (id int primary key, name varchar(50), price decimal(10,2), at datetime(6), b varbinary(4));"
        "insert into m select seq, concat('n', seq), 1.50, '2026-01-02 03:04:05.000006', 'ab' from seq_1_to_2000;"
        "create user capturer identified by 'pw'; grant all privileges on *.* to capturer",
        "shop",
    )
    dsn = server.dsn("shop", "capturer", "pw")
    running = Running("maria", [Captured("m", Source(dsn, table="m"))], log.bootstrap, tmp_path)
    reader = Reader(log.bootstrap, "m")
    try:
        reader.until(lambda: len(reader.table()) == 2000)
        assert reader.changes[0].row == {
            "id": 1, "name": "n1", "price": "1.50", "at": "2026-01-02T03:04:05.000006Z", "b": "YWI=",
        }  # fmt: skip
        server.execute(
            "insert into m values (0, 'zero', null, null, null); update m set name = 'x' where id = 0;"
            "delete from m where id = 0; update m set id = 5000 where id = 2000",
            "shop",
        )
        reader.until(lambda: reader.changes[-1].key == {"id": 5000})
        assert [(change.key["id"], change.op) for change in reader.changes[2000:]] == [
            (0, "c"), (0, "u"), (0, "d"), (0, "tombstone"), (2000, "d"), (2000, "tombstone"), (5000, "c"),
        ]  # fmt: skip
        assert json.loads(reader.changes[2000].headers["source"])["file"].startswith("binlog")
        running.kill_worker()
        server.execute("alter table m add column extra int; update m set extra = 7, name = 'all'", "shop")
        reader.until(lambda: reader.table() == rows(server))
        assert len(reader.changes) == 2007 + 2000
        running.run.ask("m", "snapshot")
        running.until(lambda: running.run.statuses[0].snapshot == "incremental complete")
        reader.until(lambda: sum(change.op == "r" for change in reader.changes) == 4000)
        assert reader.table() == rows(server)
    finally:
        running.stop()
        reader.close()


def rows(server: MariaDB) -> dict[str, dict[str, Any]]:
    found = server.execute("select id, name, cast(price as char), b, extra from m", "shop")
    return {
        json.dumps({"id": key}): {
            "id": key, "name": name, "price": price, "at": "2026-01-02T03:04:05.000006Z", "b": "YWI=", "extra": extra,
        }
        for key, name, price, _, extra in found
    }  # fmt: skip
