"""What stands in the way of capturing from PostgreSQL is told before anything is published, with its cure."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from headrace.capture import postgres_setup
from headrace.capture.connectors import Connector, connectors_of
from headrace.capture.declarations import Captured, Outbox
from headrace.capture.declarations import Postgres as Source
from headrace.capture.postgres import health, look, open_database, signal
from headrace.capture.problems import Refusing, Unreachable
from headrace.errors import HeadraceError, InvalidDeclaration, NotFound
from tests.capture.databases import Postgres
from tests.servers import free_port


@pytest.fixture(scope="module")
def plain_server() -> Iterator[Postgres]:
    server = Postgres(wal_level="replica")
    yield server
    server.close()


@pytest.fixture
def database(postgres: Postgres) -> Iterator[str]:
    name = "preflight"
    postgres.create(name)
    yield name
    postgres.execute("drop owned by guest", name)
    postgres.execute("drop role guest", name)
    postgres.execute(f"drop database {name} with (force)")


@pytest.fixture
def guest(postgres: Postgres, database: str) -> str:
    postgres.execute("create role guest login password 'pw'", database)
    postgres.execute("create table c (id int primary key, name text); create table k (a int)", database)
    return postgres.dsn(database, "guest", "pw")


def connector(*tables: Captured) -> Connector:
    (one,) = connectors_of("app", tables)
    return one


def cures(dsn: str, table: str = "c", **more: object) -> list[str]:
    one = connector(Captured("c", Source(dsn, table=table), **more))  # type: ignore[arg-type]
    return [problem.cure for problem in postgres_setup.problems(one)]


def test_a_wal_level_that_does_not_say_which_rows_changed(plain_server: Postgres) -> None:
    plain_server.execute("create table if not exists c (id int primary key)")
    assert cures(plain_server.dsn()) == ["ALTER SYSTEM SET wal_level = 'logical';  -- then restart the server"]


def test_every_cure_is_told_and_running_them_all_leaves_none(postgres: Postgres, guest: str, database: str) -> None:
    first = cures(guest)
    assert first == [
        'ALTER ROLE "guest" REPLICATION;',
        'GRANT SELECT ON "public"."c" TO "guest";',
    ]
    for _ in range(3):
        for cure in cures(guest):
            postgres.execute(cure, database)
    assert postgres.execute("select count(*) from pg_publication", database) == [(1,)]
    assert cures(guest) == []


def test_what_may_not_be_made_is_told_as_the_statement_that_makes_it(
    postgres: Postgres, guest: str, database: str
) -> None:
    postgres.execute("alter role guest replication; grant select on c to guest", database)
    told = cures(guest)
    assert [re.sub(r"\s+", " ", cure)[:22] for cure in told][:1] == ['create table "public".']
    assert any(cure.startswith("create publication") for cure in told)
    assert postgres.execute("select count(*) from pg_publication", database) == [(0,)]
    with pytest.raises(HeadraceError, match="may not"):
        postgres_setup.prepare(connector(Captured("c", Source(guest, table="c"))))


def test_a_table_without_a_primary_key_is_never_published_unasked(
    postgres: Postgres, guest: str, database: str
) -> None:
    admin = postgres.dsn(database)
    assert cures(admin, "k") == ['ALTER TABLE "public"."k" ADD PRIMARY KEY (...);']
    assert cures(admin, "k", key=("a",)) == ['ALTER TABLE "public"."k" REPLICA IDENTITY FULL;']
    postgres.execute("alter table k replica identity full", database)
    assert cures(admin, "k", key=("a",)) == []
    assert cures(admin, "k", key=("b",)) == ["it has: a"]
    postgres.execute("alter table c replica identity nothing", database)
    assert cures(admin, "c") == ['ALTER TABLE "public"."c" REPLICA IDENTITY DEFAULT;']
    assert postgres.execute("select count(*) from pg_publication", database) == [(0,)]


def test_a_table_that_is_not_there_or_is_a_view(postgres: Postgres, guest: str, database: str) -> None:
    admin = postgres.dsn(database)
    postgres.execute("create view w as select * from c", database)
    assert "GRANT USAGE" in cures(admin, "nowhere")[0]
    assert cures(admin, "w") == ["capture the tables that it is made from"]
    with pytest.raises(NotFound, match=r"public\.c, public\.k"):
        look(Source(admin, table="nowhere"))
    seen = look(Source(admin, table="c"))
    assert [(one.name, one.native, one.nullable) for one in seen.columns] == [
        ("id", "integer", False),
        ("name", "text", True),
    ]
    assert seen.key == ("id",)


def test_an_index_as_replica_identity_must_have_the_key(postgres: Postgres, guest: str, database: str) -> None:
    admin = postgres.dsn(database)
    postgres.execute(
        "create table i (id int primary key, u int not null); create unique index by_u on i (u);"
        "create unique index by_both on i (u, id); alter table i replica identity using index by_u",
        database,
    )
    assert cures(admin, "i") == ['ALTER TABLE "public"."i" REPLICA IDENTITY DEFAULT;']
    assert cures(admin, "i", key=("u",)) == ['ALTER TABLE "public"."i" REPLICA IDENTITY FULL;']
    postgres.execute("alter table i replica identity using index by_both", database)
    assert cures(admin, "i") == []
    postgres.execute("drop index by_both", database)
    assert cures(admin, "i") == ['ALTER TABLE "public"."i" REPLICA IDENTITY DEFAULT;']


def test_a_table_whose_changes_are_not_in_the_log_is_refused(postgres: Postgres, guest: str, database: str) -> None:
    admin = postgres.dsn(database)
    postgres.execute("create unlogged table u (id int primary key)", database)
    assert cures(admin, "u") == ['ALTER TABLE "public"."u" SET LOGGED;']
    with postgres.connect(database) as session:
        session.execute("create temporary table brief (id int primary key)")
        row = session.execute(
            "select nspname from pg_class c join pg_namespace n on n.oid = relnamespace where relname = 'brief'"
        ).fetchone()
        assert row is not None
        assert cures(admin, f"{row[0]}.brief") == ["capture a lasting one"]
    postgres.execute(
        "create foreign data wrapper w; create server s foreign data wrapper w;"
        "create foreign table f (id int) server s",
        database,
    )
    assert cures(admin, "f") == ["capture it from that server"]


def test_whatever_cannot_be_made_is_told_as_what_it_is(postgres: Postgres, guest: str, database: str) -> None:
    one = connector(Captured("c", Source(postgres.dsn(database), table="c")))
    postgres.execute(f"create publication {one.slot} for all tables", database)
    (problem,) = postgres_setup.problems(one)
    assert "cannot set up capture" in problem.sentence
    assert "FOR ALL TABLES" in problem.sentence
    assert problem.cure.startswith("alter publication")
    with pytest.raises(HeadraceError, match="FOR ALL TABLES"):
        postgres_setup.prepare(one)


def test_of_a_partitioned_table_every_partition_is_looked_at(postgres: Postgres, guest: str, database: str) -> None:
    admin = postgres.dsn(database)
    postgres.execute(
        "create table p (id int primary key) partition by range (id); create table p1 partition of p for values from"
        " (0) to (9); create unlogged table p2 partition of p for values from (9) to (18)",
        database,
    )
    assert cures(admin, "p") == ['ALTER TABLE "public"."p2" SET LOGGED;']
    postgres.execute("alter table p2 set logged; alter table p1 replica identity nothing", database)
    assert cures(admin, "p") == ['ALTER TABLE "public"."p1" REPLICA IDENTITY DEFAULT;']
    postgres.execute("alter table p1 replica identity default", database)
    assert cures(admin, "p") == []


def test_an_outbox_must_have_its_columns(postgres: Postgres, guest: str, database: str) -> None:
    source = Source(postgres.dsn(database), table="c")
    told = [one.sentence for one in postgres_setup.problems(connector(Captured("e", source, outbox=Outbox(source))))]
    assert told == [f"public.c has no column {name!r}." for name in ("aggregatetype", "aggregateid", "type", "payload")]


def test_a_server_that_is_away_and_a_password_that_is_wrong(postgres: Postgres, guest: str, database: str) -> None:
    with pytest.raises(Unreachable, match="cannot be reached"):
        look(Source(f"postgresql://me:secret@127.0.0.1:{free_port()}/x", table="c"))
    with pytest.raises(Unreachable, match="refuses the password") as wrong:
        look(Source(postgres.dsn(database, "guest", "hidden"), table="c"))
    assert "hidden" not in str(wrong.value)
    with pytest.raises(Unreachable, match="does not exist") as missing:
        look(Source(postgres.dsn("no_such"), table="c"))
    assert missing.value.hint == 'CREATE DATABASE "no_such";'


def left_of_us(postgres: Postgres, database: str) -> list[str]:
    """All that is ours in a database, by name."""
    found = postgres.execute(
        "select 'publication ' || pubname from pg_publication union all"
        " select 'slot ' || slot_name from pg_replication_slots where database = current_database() union all"
        " select 'trigger on ' || tgrelid::regclass from pg_trigger where tgname like 'headrace%' union all"
        " select 'function' from pg_proc where proname like 'headrace%' union all"
        " select 'table ' || relname from pg_class where relkind = 'r' and relname like 'headrace%' order by 1",
        database,
    )
    return [str(name) for (name,) in found]


def test_everything_made_is_taken_away_again(postgres: Postgres, guest: str, database: str) -> None:
    one = connector(Captured("c", Source(postgres.dsn(database), table="c")))
    assert postgres_setup.prepare(one) == "public"
    assert postgres_setup.prepare(one) == "public"
    postgres.execute(f"select pg_create_logical_replication_slot('{one.slot}', 'pgoutput')", database)
    assert len(left_of_us(postgres, database)) == 6
    told = postgres_setup.drop(one)
    assert left_of_us(postgres, database) == []
    assert "trigger on public.c" in told
    assert any(what.startswith("function public.headrace_truncate_") for what in told)


def test_the_trigger_of_a_table_that_is_taken_out_goes_unless_another_app_needs_it(
    postgres: Postgres, guest: str, database: str
) -> None:
    postgres.execute("create table d (id int primary key)", database)
    c, d = (Captured(name, Source(postgres.dsn(database), table=name)) for name in "cd")
    (other,) = connectors_of("other", [d])
    postgres_setup.prepare(connector(c, d))
    postgres_setup.prepare(other)
    postgres_setup.prepare(connector(c))
    assert "trigger on d" in left_of_us(postgres, database)
    postgres_setup.drop(other)
    assert [one for one in left_of_us(postgres, database) if one.startswith(("trigger", "function"))] == [
        "function",
        "trigger on c",
    ]
    postgres_setup.prepare(connector(c, d))
    postgres_setup.prepare(connector(c))
    assert "trigger on d" not in left_of_us(postgres, database)
    postgres_setup.prepare(connector(c, d))
    postgres_setup.drop(connector(c))  # whose file does not have d any more
    assert left_of_us(postgres, database) == []


def test_a_table_that_a_transaction_holds_is_told_and_writers_do_not_queue_behind_us(
    postgres: Postgres, guest: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_setup, "LOCK_PATIENCE", "100ms")
    one = connector(Captured("c", Source(postgres.dsn(database), table="c")))
    with postgres.connect(database) as writer, writer.transaction():
        writer.execute("insert into c values (1, 'held')")
        (problem,) = postgres_setup.problems(one)
        assert problem.cure.startswith("try again when it has ended")
        with pytest.raises(HeadraceError, match="a transaction that is under way holds what `create trigger"):
            postgres_setup.prepare(one)
        postgres.execute("set lock_timeout = '1s'; insert into c values (2, 'free')", database)
    assert postgres_setup.problems(one) == []
    postgres_setup.prepare(one)


def test_addresses_that_cannot_be_are_mistakes_of_the_app() -> None:
    for dsn in ("mysql://h/db", "host=x dbname=y", "postgresql://h"):
        with pytest.raises(InvalidDeclaration):
            Source(dsn, table="t")
    with pytest.raises(InvalidDeclaration, match="is not the name"):
        Source("postgresql://h/db", table="a.b.c")
    with pytest.raises(InvalidDeclaration, match="sometimes"):
        Source("postgresql://h/db", table="t", snapshot="sometimes")
    assert "pw" not in repr(Source("postgresql://u:pw@h/db", table="t"))


def test_what_is_taken_away_later_is_told_with_the_statement_that_gives_it_back(
    postgres: Postgres, guest: str, database: str
) -> None:
    one = connector(Captured("c", Source(guest, table="c")))
    for _ in range(3):
        for cure in cures(guest):
            postgres.execute(cure, database)

    def cure_of(error: pytest.ExceptionInfo[Refusing]) -> str:
        return (error.value.hint or "").removeprefix("start the app again, or: ")

    postgres.execute("revoke all on headrace_app_heartbeat, headrace_app_signal from guest", database)
    with pytest.raises(Refusing, match="permission denied for table headrace_app_heartbeat") as denied:
        health(one, None)
    postgres.execute(cure_of(denied), database)
    assert health(one, None).beat is not None
    with pytest.raises(Refusing, match="permission denied for table headrace_app_signal") as denied:
        signal(one, "public", "log", {})
    postgres.execute(cure_of(denied), database)
    signal(one, "public", "log", {})
    postgres.execute("drop table headrace_app_signal", database)
    with pytest.raises(Refusing, match='has no table "public"') as missing:
        signal(one, "public", "log", {})
    postgres.execute(cure_of(missing), database)
    with pytest.raises(Refusing, match="permission denied"):
        signal(one, "public", "log", {})
    with pytest.raises(Refusing, match="division by zero"), open_database(Source(guest, table="c")) as connection:
        connection.execute("select 1 / 0")
    with pytest.raises(Unreachable), open_database(Source(guest, table="c")) as connection:
        connection.execute("select pg_terminate_backend(pg_backend_pid())")
