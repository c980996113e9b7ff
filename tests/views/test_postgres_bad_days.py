"""What happens to views in PostgreSQL when the server, its tables or its people are not as one would wish."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from headrace.errors import HeadraceError, InvalidQuery, StoreAway
from headrace.views.places import ensure_usable
from headrace.views.postgres.address import PostgresAddress
from headrace.views.postgres.ownership import Owner
from headrace.views.postgres.reading import PostgresReader
from headrace.views.question import asked
from tests.capture.databases import Postgres
from tests.servers import free_port
from tests.views.schemas import blocked, emptied, opened_at, place_at
from tests.views.store_laws import TOPIC_ID, Opened, batch, sale, spec
from tests.views.test_materialiser import Bench

pytestmark = pytest.mark.system

SECRET = "s3cret-word"
_TABLES = "select tablename from pg_tables where schemaname = 'shop' and tablename not like 'headrace%'"


@pytest.mark.usefixtures("patient")
def test_a_connection_that_breaks_in_a_transaction_leaves_rows_and_offsets_as_they_were(
    postgres: Postgres, dsn: str
) -> None:
    owner = Owner()
    first = opened_at(dsn, 1, owner)
    build = first.store.begin(spec(), TOPIC_ID)
    first.store.apply(build, 0, batch(sale("EU", 1.0)), 1)
    news = batch(sale("EU", 2.0), sale("US", 3.0), start=1)
    with blocked(postgres, lambda: first.store.apply(build, 0, news, 3)) as work:
        postgres.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name = 'headrace views' and wait_event_type = 'Lock'"
        )
        work._thread.join(30)
    assert isinstance(work.error, StoreAway)
    assert build.offsets == {0: 1}
    again = opened_at(dsn, 1, owner)
    [build] = again.store.take("sales")
    assert (build.offsets, [row[2] for row in again.rows()]) == ({0: 1}, [1.0])
    again.store.apply(build, 0, news, 3)
    assert [row[2] for row in again.rows()] == [2.0, 3.0]
    again.close()


@pytest.mark.usefixtures("patient")
def test_a_server_that_is_killed_in_a_batch_costs_nothing(dsn: str, postgres: Postgres) -> None:
    """And while it is away the others wait for it: nothing ends, and what was committed is there."""
    bench = Bench(place_at(dsn))
    bench.declare()
    for number in range(300):
        bench.put(f"r{number}", 1.0)
    bench.settle()
    for number in range(0, 300, 3):
        bench.put(f"r{number}", 2.0)
    with blocked(postgres, bench.materialiser.step):
        postgres.kill9()
    bench.put("late", 3.0)
    bench.materialiser.step()
    assert "does not answer" in (bench.state().trouble or "")
    assert bench.state().build > 0
    with pytest.raises(StoreAway):
        bench.rows()
    postgres.start()
    bench.settle()
    expected = {f"r{number}": 1.0 if number % 3 else 2.0 for number in range(300)} | {"late": 3.0}
    assert bench.rows() == expected
    assert bench.state().trouble is None
    bench.close()


def test_who_reads_a_view_for_long_holds_up_its_swap_and_nothing_else(postgres: Postgres) -> None:
    dsn = emptied(postgres)
    bench = Bench(place_at(dsn))
    bench.declare()
    bench.declare("other")
    bench.settle()
    with postgres.connect("views") as reader:
        reader.execute("begin; select * from shop.sales")
        bench.declare(fingerprint="2")
        bench.put("EU", 1.0)
        bench.put("EU", 2.0, topic="shop.other")
        bench.settle()
        assert bench.rows() == {"EU": 1.0}
        assert bench.rows("other") == {"EU": 2.0}
        assert "somebody is reading it" in (bench.state().trouble or "")
        assert bench.state().rebuilding
    bench.settle()
    assert (bench.rows(), bench.state().rebuilding, bench.state().trouble) == ({"EU": 1.0}, False, None)
    bench.close()


@pytest.mark.parametrize(
    ("name", "columns", "sentence"),
    [
        ("sales", {"region": "string", "xmin": "bigint"}, 'column name "xmin" conflicts with a system column name'),
        ("sales", {"region": "string", **{f"c{number}": "int" for number in range(1600)}}, "at most 1600 columns"),
        ("headrace_owners", {"region": "string"}, "'headrace_'"),
        ("taken", {"region": "string"}, '"taken" is not a view'),
    ],
    ids=["a column of PostgreSQL's own", "too many columns", "a table of ours", "a table of others"],
)
def test_a_view_that_postgresql_cannot_have_is_told_and_other_views_go_on(
    postgres: Postgres, name: str, columns: dict[str, str], sentence: str
) -> None:
    bench = Bench(place_at(emptied(postgres)))
    bench.declare("other")
    bench.settle()
    postgres.execute("create table shop.taken (a int)", "views")
    bench.declare(name, columns)
    bench.put("EU", 1.0, "shop.other")
    bench.settle()
    assert sentence in (bench.state(name).trouble or "")
    assert (bench.rows("other"), bench.state("other").trouble) == ({"EU": 1.0}, None)
    bench.close()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ('alter table shop."sales~1" drop column revenue cascade', "column 'revenue' is gone"),
        ('alter table shop."sales~1" add column more text', "column 'more' was added"),
        ('drop view shop.sales; alter table shop."sales~1" alter orders type text', "column 'orders' is text"),
        ('drop index shop."sales~1~key"', "its index is gone"),
    ],
)
def test_a_table_that_was_altered_by_hand_is_told_and_other_views_go_on(
    postgres: Postgres, change: str, sentence: str
) -> None:
    dsn = emptied(postgres)
    columns = {"region": "string", "revenue": "double", "orders": "bigint"}
    bench = Bench(place_at(dsn))
    bench.declare(columns=columns)
    bench.settle()
    bench.declare("other")
    bench.settle()
    postgres.execute(change, "views")
    bench.restart()
    bench.put("EU", 1.0)
    bench.put("EU", 2.0, topic="shop.other")
    bench.settle()
    assert bench.rows("other") == {"EU": 2.0}
    trouble = bench.state().trouble or ""
    assert sentence in trouble
    assert 'DROP TABLE "shop"."sales~1" CASCADE' in trouble
    postgres.execute('drop table shop."sales~1" cascade', "views")
    bench.settle()
    assert bench.rows() == {"EU": 1.0}
    bench.close()


def test_a_table_that_is_altered_under_a_running_materialiser_is_told(postgres: Postgres) -> None:
    dsn = emptied(postgres)
    bench = Bench(place_at(dsn))
    bench.declare()
    bench.settle()
    postgres.execute('alter table shop."sales~1" drop column revenue cascade', "views")
    bench.put("EU", 1.0)
    bench.settle()
    assert "column 'revenue' is gone" in (bench.state().trouble or "")
    bench.close()


@pytest.fixture(scope="module")
def people(postgres: Postgres) -> Iterator[Postgres]:
    postgres.execute(f"create role alice login password '{SECRET}'; create role bob login password '{SECRET}'")
    yield postgres
    postgres.execute("drop owned by alice, bob cascade", "views")
    postgres.execute("drop role alice; drop role bob")


def test_a_schema_of_somebody_else_is_left_alone(people: Postgres) -> None:
    emptied(people)
    alice = people.dsn("views", "alice", SECRET)

    def refused() -> str:
        with pytest.raises(StoreAway) as told:
            opened_at(alice)
        assert SECRET not in str(told.value)
        return str(told.value)

    assert 'CREATE SCHEMA "shop" AUTHORIZATION "alice"' in refused()
    people.execute("create schema shop authorization bob", "views")
    assert "belongs to 'bob'" in refused()
    people.execute("alter schema shop owner to alice; create table shop.precious (a int)", "views")
    assert "has tables that are not Headrace's, say 'precious'" in refused()
    people.execute("drop table shop.precious", "views")
    opened_at(alice).close()
    people.execute("grant all on schema shop to bob", "views")
    with pytest.raises(StoreAway, match="belong to 'alice'"):
        opened_at(people.dsn("views", "bob", SECRET))
    people.execute("update shop.headrace_store set format = 99", "views")
    assert "format 99" in refused()


def test_a_database_that_cannot_be_used_is_told_without_the_password(people: Postgres) -> None:
    def told(address: str) -> str:
        with pytest.raises(HeadraceError) as error:
            ensure_usable(address)
        text = f"{error.value!r} {error.value} {error.value.__cause__!r}"
        assert SECRET not in text
        assert "wrong" not in text
        return text

    port = people.port
    assert "refuses the password of user 'alice'" in told(f"postgresql://alice:wrong@127.0.0.1:{port}/views")
    assert "there is no such database" in told(people.dsn("nowhere", "alice", SECRET))
    assert "does not answer" in told(f"postgresql://alice:{SECRET}@127.0.0.1:{free_port()}/views")
    assert "cannot be read" in told(f"postgresql://alice:{SECRET}%zz@127.0.0.1/views")
    assert "cannot be read" in told(f"alice:{SECRET}@127.0.0.1")
    assert "cannot be kept in mysql" in told(f"mysql://alice:{SECRET}@127.0.0.1/views")
    people.execute("create database latin encoding 'LATIN1' locale 'C' template template0")
    assert "encoded in LATIN1" in told(people.dsn("latin"))
    people.execute("alter role alice set default_transaction_read_only = on")
    assert "is read-only" in told(people.dsn("views", "alice", SECRET))
    people.execute("alter role alice reset default_transaction_read_only")
    people.execute("revoke temporary on database views from public")
    assert 'GRANT TEMPORARY ON DATABASE "views" TO "alice"' in told(people.dsn("views", "alice", SECRET))
    people.execute("grant temporary on database views to public")
    assert ensure_usable(people.dsn("views", "alice", SECRET)) == f"postgresql://alice@127.0.0.1:{port}/views"


def test_reads_go_on_over_connections_that_the_server_has_closed(postgres: Postgres, opened: Opened) -> None:
    build = opened.store.begin(spec(), TOPIC_ID)
    opened.store.apply(build, 0, batch(sale("EU")), 1)
    assert opened.reader.count(("shop", "sales")) == 1
    postgres.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'headrace views'")
    assert len(opened.reader.select(("shop", "sales"), asked(spec())).rows) == 1


def test_a_question_that_takes_too_long_is_ended(dsn: str, opened: Opened) -> None:
    build = opened.store.begin(spec(), TOPIC_ID)
    opened.store.apply(build, 0, batch(sale("EU")), 1)
    reader = PostgresReader(PostgresAddress(dsn), lambda: ["shop"], seconds=0.2)
    with psycopg.connect(dsn) as other:
        [table] = [name for (name,) in other.execute(_TABLES).fetchall()]
        other.execute(f'lock table shop."{table}" in access exclusive mode')
        for ask in (lambda: reader.count(("shop", "sales")), lambda: reader.select(("shop", "sales"), asked(spec()))):
            with pytest.raises(InvalidQuery, match="took longer than"):
                ask()
    assert reader.count(("shop", "sales")) == 1
    reader.close()
