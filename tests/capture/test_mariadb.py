"""Capture from a real MariaDB, and a real MySQL where there is one, into a real log."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.capture import mariadb, mariadb_setup
from headrace.capture.beats import Beats
from headrace.capture.connectors import Connector, connectors_of
from headrace.capture.declarations import Captured, Outbox
from headrace.capture.declarations import MariaDB as Source
from headrace.capture.declarations import MySQL as MySQLSource
from headrace.capture.problems import Unreachable
from headrace.errors import HeadraceError
from headrace.feed.catalog import Catalog, read_catalog
from headrace.feed.cluster import Cluster
from tests.capture.databases import MariaDB, MySQL, mariadb_bin, mysql_bin
from tests.capture.kill_rounds import broken_sequences
from tests.capture.mariadb_writer import TABLE as KILLS_TABLE
from tests.capture.mariadb_writer import Writer
from tests.capture.running import Running
from tests.capture.topics import Reader
from tests.servers import Headrace, free_port

pytestmark = pytest.mark.timeout(900)

TABLES = """
    create table m (id int primary key, name varchar(50), price decimal(10,2), at datetime(6), b varbinary(4));
    insert into m select seq, concat('n', seq), 1.50, '2026-01-02 03:04:05.000006', 'ab' from seq_1_to_2000;
    create table emptied (id int primary key, v varchar(20));
    insert into emptied select seq, 'old' from seq_1_to_50;
    create table never (id int primary key, v varchar(20));
    insert into never select seq, 'old' from seq_1_to_50;
    create table added like emptied;
    insert into added select * from emptied;
    create table added_never like emptied;
    insert into added_never select * from emptied;
    create table orders (id int primary key, total decimal(10,2));
    create table outbox (id char(36) primary key, aggregatetype varchar(20), aggregateid varchar(20),
        type varchar(20), payload json, tenant varchar(20));
    insert into outbox values (uuid(), 'order', 'o-0', 'OrderPlaced', '{"total": 1}', 'north');
    create user capturer identified by 'pw'; grant reload, replication slave, binlog monitor on *.* to capturer;
    grant select, insert, update, delete, create on shop.* to capturer
"""
KILLS = 3
GUEST = """
    create database other; create user guest identified by 'pw';
    grant all privileges on other.* to guest; grant select on mysql.* to guest; grant insert on shop.* to guest
"""


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDB]:
    if mariadb_bin() is None:
        pytest.skip("MariaDB is not installed: apt-get install mariadb-server-core mariadb-client-core")
    one = MariaDB()
    one.execute("create database shop")
    yield one
    one.close()


@pytest.fixture(scope="module")
def mysql() -> Iterator[MySQL | None]:
    if mysql_bin() is None:
        yield None
        return
    one = MySQL()
    one.execute(
        "create database shop; use shop; create table my (id int primary key, v varchar(20), at timestamp(6) null);"
        "insert into my values (1, 'one', null), (2, 'two', '2026-01-02 03:04:05.000006');"
        "create user capturer identified by 'pw';"
        "grant reload, replication slave, replication client on *.* to capturer;"
        "grant select, insert, update, delete, create on shop.* to capturer"
    )
    yield one
    one.close()


def connector(dsn: str, table: str = "c", source: type[Source] = Source) -> Connector:
    (one,) = connectors_of("app", [Captured("c", source(dsn, table=table))])
    return one


def problems(dsn: str, table: str = "c", source: type[Source] = Source) -> list[str]:
    return [one.cure for one in mariadb_setup.problems(connector(dsn, table, source))]


@pytest.fixture
def guest(server: MariaDB) -> Iterator[str]:
    """The address of a user that may look at tables of another database only."""
    server.execute("create table c (id int primary key, name text); create table k (a int)", "shop")
    server.execute(GUEST)
    yield server.dsn("shop", "guest", "pw")
    server.execute("drop user guest; drop database other; drop table shop.c, shop.k")
    server.execute("drop table if exists shop.headrace_app_signal, shop.headrace_app_heartbeat")


def cure_all(server: MariaDB, address: str, source: type[Source] = Source) -> list[str]:
    """Run what is told, as root, until nothing is told; returns all of it."""
    told: list[str] = []
    for _ in range(4):
        cures = problems(address, source=source)
        for cure in cures:
            server.execute(cure)
        told += cures
    assert problems(address, source=source) == []
    return told


def test_running_every_cure_leaves_no_problem_and_capture_can_be_prepared(server: MariaDB, guest: str) -> None:
    with pytest.raises(HeadraceError, match="may not set up capture"):
        mariadb_setup.prepare(connector(guest))
    assert cure_all(server, guest) == [
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT, RELOAD ON *.* TO 'guest'@'%';",
        "GRANT SELECT ON `shop`.`c` TO 'guest'@'%';",
        "create table if not exists `shop`.`headrace_app_signal` "
        "(id varchar(64) primary key, type varchar(32) not null, data text);",
        "create table if not exists `shop`.`headrace_app_heartbeat` "
        "(id int primary key, beat timestamp(6) not null);",
        "insert ignore into `shop`.`headrace_app_heartbeat` values (1, now(6));",
        "GRANT SELECT, INSERT, DELETE ON `shop`.`headrace_app_signal` TO 'guest'@'%';",
        "GRANT SELECT, UPDATE ON `shop`.`headrace_app_heartbeat` TO 'guest'@'%';",
    ]  # fmt: skip
    assert mariadb_setup.prepare(connector(guest)) == "shop"
    with mariadb.open_database(Source(guest, table="c")) as connection:
        mariadb.signal(connector(guest), "shop", "log", {})
        mariadb.fetched(connection, "update headrace_app_heartbeat set beat = now(6)")
        mariadb.fetched(connection, "delete from headrace_app_signal")
    server.execute("delete from headrace_app_heartbeat", "shop")
    assert problems(guest) == []
    mariadb_setup.prepare(connector(guest))
    assert server.execute("select count(*) from headrace_app_heartbeat", "shop") == [(1,)]


def test_the_same_of_mysql(mysql: MySQL | None) -> None:
    if mysql is None:
        pytest.skip("MySQL is not there: scripts/optional-tools fetches it, with Maven")
    mysql.execute(f"create table shop.c (id int primary key); {GUEST}")
    guest = mysql.dsn("shop", "guest", "pw")
    assert len(cure_all(mysql, guest, MySQLSource)) == 7
    assert mariadb_setup.prepare(connector(guest, source=MySQLSource)) == "shop"
    mysql.execute(
        "create user clerk identified by 'pw'; create role keeper; grant keeper to clerk;"
        "grant reload, replication slave, replication client on *.* to keeper; grant select on shop.* to keeper;"
        "grant insert, delete on shop.headrace_app_signal to keeper;"
        "grant update on shop.headrace_app_heartbeat to keeper; set default role keeper to clerk"
    )
    assert problems(mysql.dsn("shop", "clerk", "pw"), source=MySQLSource) == []
    mysql.execute("drop user guest, clerk; drop role keeper; drop database other")
    mysql.execute("drop table shop.headrace_app_signal, shop.headrace_app_heartbeat, shop.c")


def test_a_table_without_a_key_or_that_is_not_there(server: MariaDB, guest: str) -> None:
    server.execute("grant select on shop.* to guest; grant replication slave, binlog monitor, reload on *.* to guest")
    assert problems(guest, "k") == ["ALTER TABLE `shop`.`k` ADD PRIMARY KEY (...);  -- or say key= in the app"]
    assert "if it exists" in problems(guest, "nowhere")[0]


def test_a_log_that_is_not_written_or_not_of_whole_rows(server: MariaDB) -> None:
    server.execute("create table c (id int primary key)", "shop")
    root = server.dsn("shop")
    server.execute("set global binlog_format = 'STATEMENT'; set global binlog_row_image = 'MINIMAL'")
    assert [one.split(";")[0] for one in problems(root)] == [
        "SET GLOBAL binlog_format = 'ROW'",
        "SET GLOBAL binlog_row_image = 'FULL'",
    ]
    server.restart({"log-bin": None})
    try:
        (cure,) = problems(root)
        assert cure.startswith("in the server's configuration: [mysqld] log_bin = binlog")
    finally:
        server.restart({"log-bin": "binlog"})
    assert problems(root) == []
    server.execute("drop table c", "shop")


def test_a_server_that_is_away_and_a_password_that_is_wrong(server: MariaDB, guest: str) -> None:
    with pytest.raises(Unreachable, match="cannot be reached"):
        problems(f"mariadb://me:hidden@127.0.0.1:{free_port()}/shop")
    with pytest.raises(Unreachable, match="does not exist, or user 'guest' may not use it"):
        problems(server.dsn("nowhere", "guest", "pw"))
    with pytest.raises(Unreachable, match="refuses the password") as wrong:
        problems(server.dsn("shop", "guest", "hidden"))
    assert "hidden" not in str(wrong.value)


class Captures:
    """The captures of this file's app: one worker for all tests, started anew with more tables by the last."""

    def __init__(self, server: MariaDB, mysql: MySQL | None, log: Headrace, folder: Path) -> None:
        self.dsn, self._log, self._folder = server.dsn("shop", "capturer", "pw"), log, folder
        events = self.source("outbox")
        self.tables = [
            Captured("m", self.source("m")),
            Captured("emptied", self.source("emptied")),
            Captured("maria_never", self.source("never", snapshot="never")),
            Captured("maria_kills", self.source("kills")),
            Captured("maria_events", events, outbox=Outbox(events, headers=("tenant",))),
        ]
        if mysql is not None:
            self.tables.append(Captured("my", MySQLSource(mysql.dsn("shop", "capturer", "pw"), table="my")))
        self.running = self._started()

    def source(self, table: str, snapshot: str = "initial") -> Source:
        return Source(self.dsn, table=table, snapshot=snapshot)

    def add(self, more: Sequence[Captured]) -> None:
        self.tables += more
        self.running = self._started()

    def _started(self) -> Running:
        return Running("maria", self.tables, self._log.bootstrap, self._folder)


@pytest.fixture(scope="module")
def captures(
    server: MariaDB, mysql: MySQL | None, log: Headrace, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Captures]:
    server.execute(TABLES, "shop")
    server.execute(KILLS_TABLE, "shop")
    one = Captures(server, mysql, log, tmp_path_factory.mktemp("maria"))
    yield one
    one.running.stop()


def test_rows_changes_and_a_killed_worker(captures: Captures, server: MariaDB, log: Headrace) -> None:
    running, reader = captures.running, Reader(log.bootstrap, "m")
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
    reader.close()


def test_kills_of_the_worker_at_random_moments(captures: Captures, server: MariaDB, log: Headrace) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance, running, reader = random.Random(seed), captures.running, Reader(log.bootstrap, "maria_kills")
    for number in range(KILLS):
        running.until(lambda: running.state("maria_kills") == "streaming")
        writer = Writer(server.port, "shop", chance.randrange(1 << 30))
        try:
            time.sleep(chance.uniform(0, 1.5))
            running.kill_worker()
            time.sleep(chance.uniform(0, 0.5))
        finally:
            writer.stop()
        found = server.execute("select id, v, pad from kills", "shop")
        wanted = {json.dumps({"id": key}): {"id": key, "v": version, "pad": pad} for key, version, pad in found}
        reader.until(lambda: reader.table() == wanted)  # noqa: B023
        assert broken_sequences(reader.changes) == [], f"seed {seed}, kill {number}"
    assert len(reader.changes) > 100
    reader.close()


def test_a_server_that_is_killed_or_restarted_while_changes_flow(
    captures: Captures, server: MariaDB, log: Headrace
) -> None:
    running, reader = captures.running, Reader(log.bootstrap, "m")
    reader.until(lambda: reader.table() == rows(server))
    before = len(reader.changes)
    for number, stop in enumerate((server.stop, lambda: server.stop(signal.SIGKILL))):
        server.execute(f"update m set name = 'before {number}'; set global max_binlog_size = 4096", "shop")
        stop()
        running.until(lambda: running.state("m") == "waiting")
        server.start()
        server.execute(f"update m set name = 'after {number}' where id < 100", "shop")
        reader.until(lambda: reader.table() == rows(server))
    updated = sum(key < 100 for (key,) in server.execute("select id from m", "shop"))
    assert [change.op for change in reader.changes[before:]] == ["u"] * 2 * (2000 + updated)
    reader.close()


def test_an_older_copy_of_a_server_is_known_by_its_heartbeat(captures: Captures, server: MariaDB) -> None:
    supervisor = captures.running.run.supervisor
    assert supervisor is not None
    (connector,) = (one for one in connectors_of("maria", captures.tables) if one.kind == "mariadb")
    key = f"maria/{connector.name}"

    def noted() -> int:
        return int(read_catalog(supervisor.cluster, "capture-beat").get(key, {}).get("beat", 0))

    captures.running.until(lambda: noted() > 0)
    first = noted()
    captures.running.until(lambda: noted() > first)
    beats = Beats(supervisor.cluster, Catalog(supervisor.cluster), connector)
    beats.read()
    seen = mariadb.health(connector, None)
    assert beats.refusal(seen) is None
    assert "older copy" in (beats.refusal(replace(seen, beat=first)) or "")


def test_statements_that_change_tables_are_kept_for_the_capture_and_published_to_nobody(
    captures: Captures, server: MariaDB, log: Headrace
) -> None:
    server.execute("create table if not exists passing (id int primary key); drop table passing", "shop")
    server.execute("insert into m (id) values (6000)", "shop")
    reader = Reader(log.bootstrap, "m")
    reader.until(lambda: reader.changes[-1:] and reader.changes[-1].key == {"id": 6000})
    reader.close()
    topics = Cluster(log.bootstrap, {}).admin.list_topics(timeout=10.0).topics
    assert [name for name in topics if name.startswith("headrace.maria.")] == []
    assert any(name.startswith("headrace.connect.maria.schemas.") for name in topics)


def test_a_table_that_is_never_read_has_its_changes_only(captures: Captures, server: MariaDB, log: Headrace) -> None:
    captures.running.until(lambda: captures.running.state("maria_never") == "streaming")
    server.execute(
        "insert into never values (100, 'new'); update never set v = 'newer' where id = 1;"
        "delete from never where id = 2",
        "shop",
    )
    reader = Reader(log.bootstrap, "maria_never")
    reader.until(lambda: len(reader.changes) >= 4)
    assert [(change.key["id"], change.op) for change in reader.changes] == [
        (100, "c"), (1, "u"), (2, "d"), (2, "tombstone"),
    ]  # fmt: skip
    reader.close()


def test_rows_of_an_outbox_are_events_and_nothing_else_is(captures: Captures, server: MariaDB, log: Headrace) -> None:
    event = "insert into outbox values (uuid(), 'order', 'o-{0}', 'OrderPaid', '{1}', {2})"
    odd = '{"mixed": [1, "a", 2.5], "none": null, "empty": []}'
    with mariadb.open_database(captures.source("outbox")) as connection, connection.cursor() as cursor:
        connection.autocommit(False)
        for number, payload, tenant in ((1, '{"total": 5, "note": null}', "'north'"), (2, odd, "null")):
            cursor.execute(f"insert into orders values ({number}, 5)")
            cursor.execute(event.format(number, payload, tenant))
            cursor.execute("update outbox set type = 'changed'")
            cursor.execute("delete from outbox")
            connection.commit()
        cursor.execute(event.format(3, "{}", "null"))
        connection.rollback()
        cursor.execute(event.format(4, '{"total": 7}', "'south'"))
        connection.commit()
    reader = Reader(log.bootstrap, "maria_events")
    found = reader.events(4)
    assert [key for key, _, _ in found] == [b'"o-0"', b'"o-1"', b'"o-2"', b'"o-4"']
    assert [json.loads(value) for _, value, _ in found[:2]] == [{"total": 1}, {"total": 5, "note": None}]
    assert json.loads(json.loads(found[2][1])) == json.loads(odd)  # what Debezium cannot take apart comes as text
    headers = found[1][2]
    assert (headers["aggregate"], headers["type"], headers["tenant"]) == (b"order", b"OrderPaid", b"north")
    assert len(headers["id"] or b"") == 36
    reader.close()


def test_truncate_deletes_every_key_that_was_written_before(captures: Captures, server: MariaDB, log: Headrace) -> None:
    reader = Reader(log.bootstrap, "emptied")
    reader.until(lambda: len(reader.table()) == 50)
    server.execute("truncate table emptied; insert into emptied values (1, 'again'), (100, 'new')", "shop")
    reader.until(lambda: reader.table() == small(server, "emptied"))
    deleted = [change.key["id"] for change in reader.changes if change.op == "d"]
    assert sorted(deleted) == list(range(2, 51))
    assert any("was truncated" in line for line in captures.running.told)
    server.execute("insert into emptied values (101, 'on it goes')", "shop")
    reader.until(lambda: reader.table() == small(server, "emptied"))
    reader.close()


def test_mysql_is_captured_in_the_same_way(captures: Captures, mysql: MySQL | None, log: Headrace) -> None:
    if mysql is None:
        pytest.skip("MySQL is not there: scripts/optional-tools fetches it, with Maven")
    reader = Reader(log.bootstrap, "my")
    reader.until(lambda: len(reader.table()) == 2)
    captures.running.until(lambda: captures.running.state("my") == "streaming")
    mysql.execute(
        "insert into my values (3, 'three', null); update my set v = 'x' where id = 3;"
        "update my set id = 4 where id = 3; alter table my add column w int; delete from my where id = 1",
        "shop",
    )
    reader.until(lambda: reader.changes[-1].op == "tombstone" and reader.changes[-1].key == {"id": 1})
    assert [(change.key["id"], change.op) for change in reader.changes[2:]] == [
        (3, "c"), (3, "u"), (3, "d"), (3, "tombstone"), (4, "c"), (1, "d"), (1, "tombstone"),
    ]  # fmt: skip
    assert reader.changes[1].row == {"id": 2, "v": "two", "at": "2026-01-02T03:04:05.000006Z"}
    mysql.execute("truncate table my; insert into my values (9, 'nine', null, 9)", "shop")
    reader.until(lambda: reader.table() == {'{"id": 9}': {"id": 9, "v": "nine", "at": None, "w": 9}})
    reader.close()


def test_tables_are_added_and_one_was_truncated_while_nothing_ran(
    captures: Captures, server: MariaDB, log: Headrace
) -> None:
    captures.running.stop()
    server.execute(
        "truncate emptied; insert into emptied values (7, 'seven'); update added set v = 'then' where id < 10;"
        "insert into added_never values (150, 'then')",
        "shop",
    )
    more = [
        Captured("maria_added", captures.source("added")),
        Captured("maria_added_never", captures.source("added_never", snapshot="never")),
    ]
    captures.add(more)
    added, emptied, never = (Reader(log.bootstrap, name) for name in ("maria_added", "emptied", "maria_added_never"))
    captures.running.until(lambda: captures.running.state("maria_added_never") == "streaming")
    server.execute("insert into added values (200, 'new'); insert into added_never values (200, 'new')", "shop")
    added.until(lambda: added.table() == small(server, "added"))
    emptied.until(lambda: emptied.table() == small(server, "emptied"))
    never.until(lambda: len(never.changes) >= 2)
    assert [change.key for change in never.changes] == [{"id": 150}, {"id": 200}]
    for reader in (added, emptied, never):
        reader.close()


def small(server: MariaDB, table: str) -> dict[str, dict[str, Any]]:
    return {json.dumps({"id": key}): {"id": key, "v": v} for key, v in server.execute(f"select * from {table}", "shop")}


def rows(server: MariaDB) -> dict[str, dict[str, Any]]:
    found = server.execute("select id, name, cast(price as char), b, extra from m", "shop")
    return {
        json.dumps({"id": key}): {
            "id": key, "name": name, "price": price, "at": "2026-01-02T03:04:05.000006Z", "b": "YWI=", "extra": extra,
        }
        for key, name, price, _, extra in found
    }  # fmt: skip
