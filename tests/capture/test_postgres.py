"""Capture from a real PostgreSQL into a real log, with one worker for most tests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.capture.declarations import Captured, Outbox
from headrace.capture.declarations import Postgres as Source
from tests.capture.databases import Postgres
from tests.capture.running import Running
from tests.capture.topics import Reader
from tests.servers import Headrace

PASSWORD = "s3cret-and-long"
TABLES = ("plain", "toast", "typed", "hist", "keyless", "many")


@pytest.fixture(scope="module")
def database(postgres: Postgres) -> str:
    postgres.create("laws")
    postgres.execute(f"create role capturer login replication password '{PASSWORD}'")
    postgres.execute("grant create, connect on database laws to capturer", "laws")
    postgres.execute("grant all on schema public to capturer", "laws")
    setup = """
        set role capturer;
        create table plain (id bigint primary key, name text, at timestamptz default now());
        create table toast (id int primary key, n int, big text);
        alter table toast alter column big set storage external;
        create table hist (id int primary key, v int);
        create table typed (a int, b text, primary key (a, b));
        create table keyless (code text not null, v int);
        alter table keyless replica identity full;
        create table many (id bigint primary key, v text);
        create table events
            (id uuid primary key, aggregatetype text, aggregateid text, type text, payload jsonb, by text);
        insert into plain select g, 'n' || g from generate_series(1, 2000) g;
    """
    postgres.execute(setup, "laws")
    return postgres.dsn("laws", "capturer", PASSWORD)


@pytest.fixture(scope="module")
def running(database: str, log: Headrace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    tables = [Captured(name, Source(database, table=name)) for name in TABLES if name not in ("hist", "keyless")]
    tables += [
        Captured("hist", Source(database, table="hist"), history=True),
        Captured("keyless", Source(database, table="keyless"), key=("code",)),
    ]
    events = Source(database, table="public.events")
    tables.append(Captured("domain", events, outbox=Outbox(events, headers=("by",))))
    one = Running("laws", tables, log.bootstrap, tmp_path_factory.mktemp("run"))
    yield one
    one.stop()


def rows(postgres: Postgres, table: str) -> dict[str, dict[str, object]]:
    """The table as its topic should say it: rows by key, as JSON."""
    key = {"plain": "id", "toast": "id", "hist": "id", "many": "id", "keyless": "code"}.get(table, "a,b").split(",")
    found = postgres.execute(f"select to_jsonb(t) from {table} t", "laws")
    return {json.dumps({name: row[name] for name in key}, sort_keys=True): row for (row,) in found}


def test_the_rows_that_were_there_come_first_and_then_every_change_in_order(
    running: Running, postgres: Postgres, log: Headrace
) -> None:
    reader = Reader(log.bootstrap, "plain")
    reader.until(lambda: len(reader.table()) == 2000)
    assert {change.op for change in reader.changes} == {"r"}
    postgres.execute(
        "insert into plain values (0, 'zero', null); update plain set name = 'one' where id = 0;"
        "delete from plain where id = 0; update plain set id = 5000 where id = 2000",
        "laws",
    )
    reader.until(lambda: reader.changes[-1].key == {"id": 5000})
    late = reader.changes[2000:]
    assert [(change.key["id"], change.op) for change in late] == [
        (0, "c"), (0, "u"), (0, "d"), (0, "tombstone"), (2000, "d"), (2000, "tombstone"), (5000, "c"),
    ]  # fmt: skip
    assert late[0].row == {"id": 0, "name": "zero", "at": None}
    assert late[0].row is not None
    header = json.loads(late[0].headers["source"])
    assert header["lsn"] == late[0].source["lsn"] > 0
    assert header["txId"] == late[0].source["txId"]
    reader.close()


def test_truncate_deletes_every_key(running: Running, postgres: Postgres, log: Headrace) -> None:
    postgres.execute("insert into typed select g, 'x' from generate_series(1, 50) g", "laws")
    reader = Reader(log.bootstrap, "typed")
    reader.until(lambda: len(reader.table()) == 50)
    postgres.execute("truncate typed", "laws")
    reader.until(lambda: not reader.table())
    reader.close()


def test_a_large_value_that_did_not_change_is_whole_in_the_record(
    running: Running, postgres: Postgres, log: Headrace
) -> None:
    postgres.execute("insert into toast values (1, 0, repeat('x', 100000))", "laws")
    postgres.execute("update toast set n = 1", "laws")
    reader = Reader(log.bootstrap, "toast")
    reader.until(lambda: len(reader.changes) >= 2)
    assert [len((change.row or {})["big"]) for change in reader.changes] == [100000, 100000]
    reader.close()


def test_a_table_without_a_primary_key_is_keyed_by_what_was_said(
    running: Running, postgres: Postgres, log: Headrace
) -> None:
    postgres.execute("insert into keyless values ('a', 1), ('b', 2); update keyless set v = 3 where code = 'a'", "laws")
    reader = Reader(log.bootstrap, "keyless")
    reader.until(lambda: len(reader.changes) >= 3)
    assert reader.table() == rows(postgres, "keyless")
    reader.close()


def test_an_outbox_row_is_an_event_with_its_own_key_and_headers(
    running: Running, postgres: Postgres, log: Headrace
) -> None:
    postgres.execute(
        "insert into events values (gen_random_uuid(), 'order', 'o-1', 'OrderPlaced', '{\"total\": 5}', 'ada');"
        "delete from events",
        "laws",
    )
    reader = Reader(log.bootstrap, "domain")
    found: list[object] = []

    def enough() -> bool:
        found.extend((one.key(), one.value(), dict(one.headers() or [])) for one in reader.raw(0.2))
        return bool(found)

    reader.until(enough)
    key, value, headers = found[0]  # type: ignore[misc]
    assert json.loads(key) == "o-1"
    assert json.loads(value) == {"total": 5}
    assert {name: json.loads(headers[name]) for name in ("aggregate", "type", "by")} == {
        "aggregate": "order", "type": "OrderPlaced", "by": "ada",
    }  # fmt: skip
    assert len(found) == 1
    reader.close()


def test_columns_come_and_go_in_mid_stream(running: Running, postgres: Postgres, log: Headrace) -> None:
    reader = Reader(log.bootstrap, "hist")
    for statement in (
        "insert into hist values (1, 1)",
        "alter table hist add column w text",
        "insert into hist values (2, 2, 'new')",
        "alter table hist drop column v",
        "insert into hist values (3, 'left')",
        "alter table hist alter column w type int using 7",
        "update hist set w = 8 where id = 1",
    ):
        postgres.execute(statement, "laws")
    reader.until(lambda: len(reader.changes) >= 4)
    assert [change.row for change in reader.changes] == [
        {"id": 1, "v": 1}, {"id": 2, "v": 2, "w": "new"}, {"id": 3, "w": "left"}, {"id": 1, "w": 8},
    ]  # fmt: skip
    reader.close()


def test_a_snapshot_while_writes_go_on_ends_with_the_table_and_can_be_stopped_and_run_again(
    running: Running, postgres: Postgres, log: Headrace
) -> None:
    postgres.execute("insert into many select g, 'v' || g from generate_series(1, 20000) g", "laws")
    reader = Reader(log.bootstrap, "many")
    reader.until(lambda: len(reader.table()) == 20000)
    stopping = threading.Event()

    def write() -> None:
        with postgres.connect("laws") as connection:
            number = 0
            while not stopping.is_set():
                number += 1
                connection.execute("update many set v = %s where id = %s", [f"w{number}", number * 37 % 20000 + 1])
                connection.execute("delete from many where id = %s", [number * 91 % 20000 + 1])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for attempt in range(2):
            before = len(reader.changes)
            running.run.ask("many", "snapshot")
            if attempt == 0:
                reader.until(lambda: any(c.op == "r" for c in reader.changes[before:]))  # noqa: B023
                running.run.ask("many", "snapshot-stop")
            else:
                running.until(lambda: _snapshot(running, "many") == "incremental complete")
    finally:
        stopping.set()
        writer.join()
    reader.until(lambda: reader.table() == rows(postgres, "many"))
    reader.close()


def _snapshot(running: Running, table: str) -> str | None:
    return next(one.snapshot for one in running.run.statuses if one.name == table)


def test_copied_rows_and_large_transactions_all_come(running: Running, postgres: Postgres, log: Headrace) -> None:
    with postgres.connect("laws") as connection, connection.cursor() as cursor:
        with cursor.copy("copy many from stdin") as copy:
            for number in range(100_000, 150_000):
                copy.write_row((number, "copied"))
        cursor.execute("update many set v = 'all'")
    reader = Reader(log.bootstrap, "many")
    reader.until(lambda: all(row["v"] == "all" for row in reader.table().values()) and len(reader.changes) > 100_000)
    assert reader.table() == rows(postgres, "many")
    reader.close()


def test_no_password_is_in_a_topic_a_file_an_answer_or_a_log(running: Running, log: Headrace) -> None:
    supervisor = running.run.supervisor
    assert supervisor is not None
    assert supervisor.worker is not None
    running.until(lambda: running.state("plain") == "streaming")
    rest = supervisor.worker.rest
    for name in rest.connectors():
        assert PASSWORD not in json.dumps([rest.config(name), rest.status(name), rest.offsets(name)])
    files = [path for path in running.settings.folder.rglob("*") if path.is_file()]
    files += [path for path in Path(log.data).rglob("*.log") if path.is_file()]
    assert len(files) > 4
    assert [path for path in files if PASSWORD.encode() in path.read_bytes()] == []
    assert PASSWORD not in " ".join(running.told)
    command = Path(f"/proc/{supervisor.worker.pid}/cmdline").read_bytes()
    assert PASSWORD.encode() not in command


def test_paused_nothing_comes_and_resumed_nothing_is_missing(
    running: Running, postgres: Postgres, log: Headrace
) -> None:
    running.run.ask("plain", "pause")
    running.until(lambda: running.state("plain") == "paused")
    postgres.execute("insert into plain values (9001, 'paused', null)", "laws")
    running.run.ask("plain", "resume")
    reader = Reader(log.bootstrap, "plain")
    reader.until(lambda: reader.changes[-1:] != [] and reader.changes[-1].key == {"id": 9001})
    assert reader.table().keys() == rows(postgres, "plain").keys()
    reader.close()


def test_the_slot_moves_on_while_captured_tables_are_quiet(running: Running, postgres: Postgres) -> None:
    postgres.execute(
        "create table noise (t text); insert into noise select repeat('x', 1000) from generate_series(1, 20000)"
    )
    running.until(lambda: (running.run.statuses[0].lag_bytes or 0) < 200_000)
    postgres.execute("drop table noise")
