"""Capture from a real PostgreSQL into a real log, with one worker for most tests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.capture.declarations import Captured, Outbox
from headrace.capture.declarations import Postgres as Source
from headrace.feed.cluster import Cluster
from headrace.feed.topics import COMPACTED, ensure_topic, settings_of_topic
from tests.capture.databases import Postgres
from tests.capture.running import Running
from tests.capture.topics import Reader
from tests.servers import Headrace

PASSWORD = "s3cret-and-long"
TABLES = ("plain", "toast", "typed", "hist", "keyless", "many", "parent", "child", "parted", "indexed")


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
        create table parent (id int primary key, up int references parent);
        create table child (id int primary key, p int references parent deferrable initially deferred);
        create table parted (id int primary key, v text) partition by range (id);
        create table low partition of parted for values from (0) to (10);
        create table high partition of parted for values from (10) to (20);
        insert into parted values (1, 'low'), (11, 'high');
        create table indexed (id int primary key, u int not null);
        create unique index indexed_by on indexed (u, id);
        alter table indexed replica identity using index indexed_by;
        create table events
            (id uuid primary key, aggregatetype text, aggregateid text, type text, payload jsonb, by text);
        insert into plain select g, 'n' || g from generate_series(1, 2000) g;
        insert into events values (gen_random_uuid(), 'order', 'o-0', 'OrderPlaced', '{"total": 1}', 'ada');
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
    ensure_topic(Cluster(log.bootstrap, {}), "hist", 1, COMPACTED)  # of an earlier declaration without history=True
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


def test_what_is_in_the_topic_is_confirmed_to_the_database_which_need_not_keep_it(
    running: Running, postgres: Postgres, log: Headrace
) -> None:
    postgres.execute("insert into plain values (7001, 'confirmed', null)", "laws")
    reader = Reader(log.bootstrap, "plain")
    reader.until(lambda: any(change.key == {"id": 7001} for change in reader.changes))
    lsn = next(change.source["lsn"] for change in reader.changes if change.key == {"id": 7001})
    reader.close()
    confirmed = (
        "select max(confirmed_flush_lsn - '0/0') from pg_replication_slots where slot_name like 'headrace_laws_%'"
    )
    running.until(lambda: int(postgres.execute(confirmed)[0][0]) > lsn)


def test_truncate_deletes_every_key(running: Running, postgres: Postgres, log: Headrace) -> None:
    postgres.execute("insert into typed select g, 'x' from generate_series(1, 50) g", "laws")
    reader = Reader(log.bootstrap, "typed")
    reader.until(lambda: len(reader.table()) == 50)
    postgres.execute("truncate typed", "laws")
    reader.until(lambda: not reader.table())
    reader.close()


def test_after_a_truncate_of_tables_that_reference_each_other_their_topics_are_the_tables(
    running: Running, postgres: Postgres, log: Headrace
) -> None:
    postgres.execute("create role cleaner; grant truncate on parent, child to cleaner", "laws")
    parents, children = Reader(log.bootstrap, "parent"), Reader(log.bootstrap, "child")
    for truncate in ("truncate child, parent", "truncate parent cascade", "set role cleaner; truncate parent, child"):
        postgres.execute(
            "insert into parent values (1, null), (2, 1), (3, 3); insert into child values (1, 1), (2, 2)", "laws"
        )
        parents.until(lambda: len(parents.table()) == 3)
        children.until(lambda: len(children.table()) == 2)
        postgres.execute(truncate, "laws")
        parents.until(lambda: not parents.table())
        children.until(lambda: not children.table())
    parents.close()
    children.close()


def test_rows_of_all_partitions_are_rows_of_the_table(running: Running, postgres: Postgres, log: Headrace) -> None:
    reader = Reader(log.bootstrap, "parted")
    reader.until(lambda: len(reader.table()) == 2)
    postgres.execute(
        "update parted set id = 12 where id = 1; insert into parted values (2, 'new');"
        "create table more partition of parted for values from (20) to (30); insert into parted values (21, 'more');"
        "delete from parted where id = 11",
        "laws",
    )
    reader.until(lambda: {row["id"] for row in reader.table().values()} == {2, 12, 21})
    postgres.execute("truncate parted", "laws")
    reader.until(lambda: not reader.table())
    reader.close()


def test_an_index_over_the_key_and_more_as_replica_identity_tells_keys_as_they_are(
    running: Running, postgres: Postgres, log: Headrace
) -> None:
    postgres.execute("insert into indexed values (1, 10), (2, 20), (3, 30)", "laws")
    postgres.execute("update indexed set id = 4 where id = 2; update indexed set u = 31 where id = 3", "laws")
    postgres.execute("delete from indexed where id = 1", "laws")
    reader = Reader(log.bootstrap, "indexed")
    reader.until(lambda: {(row["id"], row["u"]) for row in reader.table().values()} == {(4, 20), (3, 31)})
    assert {change.key["id"] for change in reader.changes} == {1, 2, 3, 4}
    reader.close()


def test_messages_of_the_application_are_not_published(running: Running, postgres: Postgres, log: Headrace) -> None:
    for is_transactional in ("true", "false"):
        postgres.execute(f"select pg_logical_emit_message({is_transactional}, 'app', 'for others')", "laws")
    postgres.execute("insert into plain values (7100, 'after it', null)", "laws")
    reader = Reader(log.bootstrap, "plain")
    reader.until(lambda: any(change.key == {"id": 7100} for change in reader.changes))
    reader.close()
    topics = Cluster(log.bootstrap, {}).admin.list_topics(timeout=10.0).topics
    assert [name for name in topics if name.endswith(".message")] == []


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


def test_rows_of_an_outbox_are_events_with_their_own_keys_and_headers_and_nothing_else_is(
    running: Running, postgres: Postgres, log: Headrace
) -> None:
    event = "insert into events values (gen_random_uuid(), 'order', 'o-{0}', 'OrderPaid', '{1}', {2})"
    odd = '{"mixed": [1, "a", 2.5], "none": null, "empty": []}'
    with postgres.connect("laws") as connection:
        connection.autocommit = False
        for number, payload, by in ((1, '{"total": 5, "note": null}', "'ada'"), (2, odd, "null")):
            connection.execute(f"insert into plain values (800{number}, 'state')")
            connection.execute(event.format(number, payload, by).encode())
            connection.execute("update events set type = 'changed'")
            connection.execute("delete from events")
            connection.commit()
        connection.execute(event.format(3, "{}", "null").encode())
        connection.rollback()
        connection.execute(event.format(4, '{"total": 7}', "'eve'").encode())
        connection.commit()
    reader = Reader(log.bootstrap, "domain")
    found = reader.events(4)
    assert [key for key, _, _ in found] == [b'"o-0"', b'"o-1"', b'"o-2"', b'"o-4"']
    assert [json.loads(value) for _, value, _ in found[:2]] == [{"total": 1}, {"total": 5, "note": None}]
    assert json.loads(json.loads(found[2][1])) == json.loads(odd)  # what Debezium cannot take apart comes as text
    headers = found[1][2]
    assert (headers["aggregate"], headers["type"], headers["by"]) == (b"order", b"OrderPaid", b"ada")
    assert len(headers["id"]) == 36
    assert found[2][2]["by"] is None
    reader.close()


def test_a_topic_that_was_compacted_keeps_every_version_once_the_table_has_history(
    running: Running, log: Headrace
) -> None:
    found = settings_of_topic(Cluster(log.bootstrap, {}), "hist")
    assert {name: found[name] for name in ("cleanup.policy", "retention.ms", "retention.bytes")} == {
        "cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1",
    }  # fmt: skip
    assert any("hist" in line and "do not come back" in line for line in running.told)


def test_columns_come_and_go_in_mid_stream(running: Running, postgres: Postgres, log: Headrace) -> None:
    reader = Reader(log.bootstrap, "hist")
    for statement in (
        "insert into hist values (1, 1)",
        "alter table hist add column w text",
        "insert into hist values (2, 2, 'new')",
        "alter table hist drop column v",
        "insert into hist values (3, 'left')",
    ):
        postgres.execute(statement, "laws")
    reader.until(lambda: len(reader.changes) >= 3)  # a type may change when what has the old one is captured
    postgres.execute("alter table hist alter column w type int using 7", "laws")
    postgres.execute("update hist set w = 8 where id = 1", "laws")
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


def test_a_snapshot_that_is_held_reads_nothing_and_goes_on_when_told(
    running: Running, postgres: Postgres, log: Headrace
) -> None:
    reader = Reader(log.bootstrap, "many")
    total = len(rows(postgres, "many"))
    reader.until(lambda: len(reader.table()) == total)
    before = len(reader.changes)

    def read() -> int:
        return sum(change.op == "r" for change in reader.changes[before:])

    def let_a_change_pass(key: int) -> None:
        postgres.execute(f"insert into many values ({key}, 'while held')", "laws")
        reader.until(lambda: any(change.key == {"id": key} for change in reader.changes[before:]))

    def signals() -> int:
        return int(postgres.execute("select count(*) from headrace_laws_signal", "laws")[0][0])

    with postgres.connect("laws") as lock:  # so that not all is read before it is held, however slow we are
        asked = signals()
        lock.execute("begin; lock table many in access exclusive mode")
        running.run.ask("many", "snapshot")
        running.run.ask("many", "snapshot-hold")
        running.until(lambda: signals() >= asked + 2)
    running.until(lambda: _snapshot(running, "many") == "incremental paused")
    let_a_change_pass(90_001)
    held = read()
    let_a_change_pass(90_002)
    assert read() == held < total
    running.run.ask("many", "snapshot-go")
    running.until(lambda: _snapshot(running, "many") == "incremental complete")
    reader.until(lambda: read() >= total)
    assert reader.table() == rows(postgres, "many")
    reader.close()


def test_a_copy_of_200_000_rows_comes_whole(running: Running, postgres: Postgres, log: Headrace) -> None:
    reader = Reader(log.bootstrap, "many")
    ((_, end),) = Cluster(log.bootstrap, {}).bounds("many").values()
    reader.seek(end)
    with postgres.connect("laws") as connection, connection.cursor() as cursor:
        with connection.transaction(), cursor.copy("copy many from stdin") as copy:
            for number in range(100_000, 300_000):
                copy.write_row((number, "copied"))
        cursor.execute("update many set v = 'last' where id = 299999")
    reader.until(lambda: reader.changes[-1:] != [] and reader.changes[-1].row == {"id": 299_999, "v": "last"})
    assert [change.key["id"] for change in reader.changes] == [*range(100_000, 300_000), 299_999]
    assert reader.table() == {key: row for key, row in rows(postgres, "many").items() if row["id"] >= 100_000}  # type: ignore[operator]
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
