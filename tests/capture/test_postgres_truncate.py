"""TRUNCATE of captured tables of PostgreSQL: the application's own goes on working, whatever references what."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from headrace.capture import postgres_setup
from headrace.capture.connectors import Connector, connectors_of
from headrace.capture.declarations import Captured
from headrace.capture.declarations import Postgres as Source
from tests.capture.databases import Postgres

TABLES = """
    create table parent (id int primary key, up int references parent);
    create table child (id int primary key, p int references parent on delete restrict);
    create table grandchild (id int primary key, c int references child deferrable initially deferred);
    create table one (id int primary key);
    create table other (id int primary key, o int references one);
    alter table one add o int references other;
"""
ROWS = """
    insert into parent values (1, null), (2, 1); insert into child values (1, 1), (2, 2);
    insert into grandchild values (1, 1); insert into one values (1); insert into other values (1, 1);
    update one set o = 1;
"""


@pytest.fixture
def database(postgres: Postgres) -> Iterator[str]:
    name = "truncates"
    postgres.create(name)
    postgres.execute("grant all on schema public to public; create role owner; create role worker", name)
    yield name
    postgres.execute(f"drop database {name} with (force)")
    postgres.execute("drop role owner; drop role worker")


def connector(postgres: Postgres, database: str, *tables: str) -> Connector:
    (one,) = connectors_of("app", [Captured(name, Source(postgres.dsn(database), table=name)) for name in tables])
    return one


def count(postgres: Postgres, database: str, table: str) -> int:
    return int(postgres.execute(f"select count(*) from {table}", database)[0][0])


@pytest.mark.parametrize("owner", ["postgres", "owner"])
def test_tables_that_reference_each_other_are_truncated_as_without_capture(
    postgres: Postgres, database: str, owner: str
) -> None:
    postgres.execute(f"set role {owner};" + TABLES, database)
    postgres_setup.prepare(connector(postgres, database, "parent", "child", "grandchild", "one", "other"))
    for truncate in (
        "truncate parent cascade; truncate one cascade",
        "truncate parent, child, grandchild, one, other",
        "truncate other, one, grandchild, child, parent",
        "truncate grandchild; truncate child, grandchild; truncate parent, child, grandchild; truncate one, other",
    ):
        postgres.execute(ROWS, database)
        postgres.execute(f"set role {owner}; begin; {truncate};" + ROWS + "commit; " + truncate, database)
        assert {count(postgres, database, name) for name in ("parent", "child", "grandchild", "one", "other")} == {0}
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="referenced in a foreign key"):
        postgres.execute("truncate parent, child", database)


@pytest.mark.parametrize("owner", ["postgres", "owner"])
def test_checks_that_were_deferred_are_deferred_again_after_a_truncate(
    postgres: Postgres, database: str, owner: str
) -> None:
    postgres.execute(f"set role {owner};" + TABLES + ROWS, database)
    postgres_setup.prepare(connector(postgres, database, "child"))
    postgres.execute(
        f"set role {owner}; begin; truncate child cascade; insert into grandchild values (1, 7);"
        " insert into child values (7, 1); commit",
        database,
    )
    assert count(postgres, database, "grandchild") == 1


def test_who_may_truncate_need_not_have_the_right_to_delete(postgres: Postgres, database: str) -> None:
    postgres.execute("set role owner;" + TABLES + ROWS, database)
    postgres_setup.prepare(connector(postgres, database, "parent", "child"))
    postgres.execute("grant truncate on parent, child, grandchild to worker", database)
    postgres.execute("set role worker; truncate parent cascade", database)
    assert count(postgres, database, "parent") == 0
    assert postgres.execute(
        "select distinct pg_get_userbyid(proowner), prosecdef from pg_proc where proname like 'headrace%'", database
    ) == [("owner", True)]


@pytest.mark.parametrize(("owner", "told"), [("postgres", 0), ("owner", 2)])
def test_delete_triggers_of_the_application_do_not_fire_where_the_owner_may_hold_them(
    postgres: Postgres, database: str, owner: str, told: int
) -> None:
    postgres.execute(
        f"set role {owner}; create table t (id int primary key); create table told (id int);"
        "create function tell() returns trigger language plpgsql as $$ begin insert into told values (old.id);"
        " return old; end $$; create trigger tell before delete on t for each row execute function tell()",
        database,
    )
    postgres_setup.prepare(connector(postgres, database, "t"))
    postgres.execute(f"insert into t values (1), (2); set role {owner}; truncate t", database)
    assert count(postgres, database, "told") == told
    postgres.execute(f"insert into t values (3); set role {owner}; delete from t", database)
    assert count(postgres, database, "told") == told + 1


@pytest.mark.parametrize("how", ["always", "replica"])
def test_nobody_gets_code_run_as_the_owner_of_a_captured_table(postgres: Postgres, database: str, how: str) -> None:
    postgres.execute("create table mine (id int primary key); insert into mine values (1)", database)
    postgres_setup.prepare(connector(postgres, database, "mine"))
    postgres.execute(
        "grant truncate, references on mine to worker; set role worker;"
        "create table theirs (id int references public.mine); insert into theirs values (1);"
        "create function rise() returns trigger language plpgsql as $$ begin alter role worker superuser;"
        " return old; end $$; create trigger rise before delete on theirs for each row execute function rise();"
        f"alter table theirs enable {how} trigger rise",
        database,
    )
    with pytest.raises(psycopg.errors.RaiseException, match=r"theirs has another owner than public\.mine"):
        postgres.execute("set role worker; truncate mine cascade", database)
    (name,) = postgres.execute("select proname from pg_proc where proname like 'headrace%'", database)[0]
    postgres.execute(
        "set role worker; drop trigger rise on theirs;"
        f"create trigger again before insert on theirs for each statement execute function {name}()",
        database,
    )
    with pytest.raises(psycopg.errors.RaiseException, match="for triggers before TRUNCATE"):
        postgres.execute("set role worker; insert into theirs values (1)", database)
    assert postgres.execute("select rolsuper from pg_roles where rolname = 'worker'") == [(False,)]


def test_a_referencing_table_that_the_owner_may_not_empty_is_told_with_its_cure(
    postgres: Postgres, database: str
) -> None:
    postgres.execute(
        "set role owner; create table mine (id int primary key); grant references on mine to worker;"
        "reset role; set role worker; create table theirs (id int references mine)",
        database,
    )
    one = connector(postgres, database, "mine")
    (problem,) = postgres_setup.problems(one)
    assert problem.cure == 'GRANT DELETE ON "public"."theirs" TO "owner";'
    postgres.execute(problem.cure, database)
    assert postgres_setup.problems(one) == []
    postgres_setup.prepare(one)
    postgres.execute("insert into mine values (1); insert into theirs values (1); truncate mine cascade", database)
    assert count(postgres, database, "mine") == 0


def test_a_truncate_of_only_a_table_leaves_those_that_inherit_from_it(postgres: Postgres, database: str) -> None:
    postgres.execute('create table "Odd one" (id int primary key); create table heir () inherits ("Odd one")', database)
    postgres_setup.prepare(connector(postgres, database, "Odd one"))
    postgres.execute('insert into heir values (1); truncate only "Odd one"', database)
    assert count(postgres, database, "heir") == 1


def test_partitions_of_other_owners_are_emptied_with_their_table(postgres: Postgres, database: str) -> None:
    postgres.execute(
        "create table low (id int primary key); create table refers (id int primary key, l int references low);"
        "set role owner; create table p (id int primary key) partition by range (id); reset role;"
        "alter table p attach partition low for values from (0) to (10); grant delete on refers to owner",
        database,
    )
    one = connector(postgres, database, "p")
    assert postgres_setup.problems(one) == []
    postgres_setup.prepare(one)
    postgres.execute("insert into p values (1); insert into refers values (1, 1); truncate p cascade", database)
    assert {count(postgres, database, name) for name in ("p", "refers")} == {0}


def test_a_trigger_of_an_earlier_version_is_made_anew_and_a_current_one_is_left(
    postgres: Postgres, database: str
) -> None:
    one = connector(postgres, database, "t")
    postgres.execute(
        "create table t (id int primary key); create function headrace_truncate() returns trigger language plpgsql as"
        " $$ begin delete from t; return null; end $$; create trigger headrace_truncate before truncate on t"
        " for each statement execute function headrace_truncate()",
        database,
    )
    postgres_setup.prepare(one)
    made = postgres.execute(
        "select t.oid, p.xmin, proname from pg_trigger t join pg_proc p on p.oid = tgfoid", database
    )
    assert made[0][2] != "headrace_truncate"
    postgres_setup.prepare(one)
    again = "select t.oid, p.xmin, proname from pg_trigger t join pg_proc p on p.oid = tgfoid"
    assert postgres.execute(again, database) == made
    assert postgres.execute("select count(*) from pg_proc where proname like 'headrace%'", database) == [(1,)]
