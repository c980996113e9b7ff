"""Strangers' SQL over views in PostgreSQL reads views and does nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.errors import InvalidQuery
from headrace.views.postgres.strangers import with_parameters
from headrace.views.store import SqlLimits
from tests.capture.databases import Postgres
from tests.views.schemas import emptied, opened_at
from tests.views.store_laws import TOPIC_ID, Opened, batch, sale, spec

LIMITS = SqlLimits(seconds=5.0, rows=100)


@pytest.fixture(scope="module")
def shop(postgres: Postgres) -> Iterator[Opened]:
    """A view, and beside it what nobody may see or touch."""
    opened = opened_at(emptied(postgres))
    build = opened.store.begin(spec(), TOPIC_ID)
    opened.store.apply(build, 0, batch(sale("EU", 1.5, 3), sale("US", 2.0, 4)), 2)
    postgres.execute(
        "drop schema if exists private cascade; create schema private; create table private.secret as select 42 as n;"
        "create function private.leak() returns int language sql immutable as 'select n from private.secret';"
        "create view private.window as select * from private.secret; create domain private.word as text;"
        "create function private.plus(int, int) returns int language sql immutable as 'select n from private.secret';"
        "create operator private.<=> (leftarg = int, rightarg = int, function = private.plus)",
        "views",
    )
    yield opened
    opened.close()


@pytest.mark.system
@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM private.secret",
        "SELECT * FROM private.window",
        "SELECT private.leak()",
        "SELECT 1 OPERATOR(private.<=>) 2",
        "SELECT 'x'::private.word",
        "SELECT (SELECT n FROM private.secret) FROM sales",
        "WITH x AS (SELECT * FROM private.secret) SELECT * FROM sales, x",
        "SELECT * FROM sales WHERE EXISTS (SELECT FROM private.secret)",
        "SELECT rolpassword FROM pg_authid",
        "SELECT * FROM pg_catalog.pg_stat_activity",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM shop.headrace_owners",
        'SELECT * FROM shop."sales~1"',
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT * FROM pg_ls_dir('/')",
        "SELECT pg_sleep(1)",
        "SELECT pg_terminate_backend(1)",
        "SELECT set_config('transaction_read_only', 'off', false)",
        "SELECT current_setting('data_directory')",
        "SELECT query_to_xml('select * from private.secret', true, true, '')",
        "SELECT table_to_xml('private.secret', true, true, '')",
        "SELECT lo_import('/etc/passwd')",
        "SELECT nextval('shop.headrace_builds_number_seq')",
        "SELECT count(*) FILTER (WHERE pg_advisory_lock(1) IS NULL) FROM sales",
        "SELECT * FROM sales ORDER BY pg_read_file('/etc/passwd')",
        "SELECT * FROM sales TABLESAMPLE system (1)",
        "SELECT * FROM sales FOR UPDATE",
        "WITH gone AS (DELETE FROM sales RETURNING *) SELECT * FROM gone",
        "SELECT * INTO stolen FROM sales",
        "INSERT INTO shop.sales VALUES ('X') RETURNING 1",
        "EXPLAIN ANALYZE SELECT pg_sleep(1)",
        "SHOW data_directory",
        "COPY sales TO STDOUT",
        "TABLE private.secret",
        "VALUES ((SELECT n FROM private.secret))",
        "SELECT 1; DROP SCHEMA private CASCADE",
        "SELECT 1); DROP SCHEMA private CASCADE; --",
        "SELECT 1 \0 FROM private.secret",
        "SELECT 1 / 0",
        "SELECT $1",
        "",
        "   -- nothing",
    ],
)
def test_what_is_no_reading_of_views_is_refused(postgres: Postgres, shop: Opened, statement: str) -> None:
    with pytest.raises(InvalidQuery):
        shop.reader.sql(statement, (), LIMITS)
    assert len(shop.rows()) == 2
    assert postgres.execute("select n from private.secret", "views") == [(42,)]


@pytest.mark.system
@pytest.mark.parametrize(
    ("statement", "rows", "types"),
    [
        ("SELECT region, sum(orders) AS n FROM sales GROUP BY 1 ORDER BY 1", [("EU", 3), ("US", 4)], "string bigint"),
        ("SELECT avg(orders), sum(revenue), count(*) FROM sales", [(3.5, 3.5, 2)], "double double bigint"),
        ("SELECT * FROM shop.sales s JOIN sales t USING (region, day) WHERE region = 'EU' ORDER BY 1", None, None),
        ("SELECT s.region, t.region FROM sales s, sales t ORDER BY 1 DESC, 2 LIMIT 1", [("US", "EU")], "string string"),
        ("VALUES (1, 'x', true), (2, NULL, false)", [(1, "x", True), (2, None, False)], "int string boolean"),
        (
            "SELECT date_trunc('month', day)::date, day + 1 FROM sales LIMIT 1",
            [("2026-01-01", "2026-01-03")],
            "date date",
        ),
        ("SELECT timestamptz '2026-01-02 04:00+01'", [("2026-01-02T03:00:00.000000Z",)], "timestamp"),
        ("SELECT 1.50::numeric(5,2), 10::numeric / 4, 2.0::numeric * 3", None, "decimal(5,2) double double"),
        (
            "SELECT row_number() OVER (ORDER BY region), lower(region) FROM sales",
            [(1, "eu"), (2, "us")],
            "bigint string",
        ),
        ("SELECT json_agg(region ORDER BY region) FROM sales", [('["EU", "US"]',)], "string"),
        ("SELECT x FROM generate_series(1, 3) x ORDER BY 1 DESC", [(3,), (2,), (1,)], "int"),
        (
            "SELECT now() > '2020-01-01', random() < 2, coalesce(NULL, 'a;b')",
            [(True, True, "a;b")],
            "boolean boolean string",
        ),
        ("SELECT array[1,2]::text, 'x'::bytea; ", [("{1,2}", "eA==")], "string binary"),
        ("SELECT '{\"a\": 1}'::jsonb ? 'a'", [(True,)], "boolean"),
    ],
)
def test_what_reads_views_is_answered_with_types(
    shop: Opened, statement: str, rows: list[object] | None, types: str | None
) -> None:
    answer = shop.reader.sql(statement, (), LIMITS)
    assert rows is None or answer.rows == rows
    assert types is None or " ".join(column.type for column in answer.columns) == types


@pytest.mark.system
def test_an_answer_has_the_names_of_its_statement_also_where_two_are_the_same(shop: Opened) -> None:
    answer = shop.reader.sql('SELECT region, region, 1 AS "odd "" name" FROM sales LIMIT 1', (), LIMITS)
    assert [column.name for column in answer.columns] == ["region", "region", 'odd " name']


@pytest.mark.system
def test_an_answer_that_is_too_large_is_cut(shop: Opened) -> None:
    large = "SELECT repeat('x', 1000) FROM generate_series(1, 90)"
    answer = shop.reader.sql(large, (), SqlLimits(seconds=5.0, rows=100, cells_bytes=10_000))
    assert (len(answer.rows), answer.truncated) == (11, True)
    assert shop.reader.sql("SELECT 1 AS one", (), LIMITS).rows == [(1,)]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("a = ? AND b = ?", "a = 1 AND b = 'it''s'"),
        ("'?' || ? || \"?\" || ?", "'?' || 1 || \"?\" || 'it''s'"),
        ("'it''s ?' ? -- ?\n, ?", "'it''s ?' 1 -- ?\n, 'it''s'"),
        ("/* ? */ ? $$ ? $$ $a$ ? $$ ? $a$ ?", "/* ? */ 1 $$ ? $$ $a$ ? $$ ? $a$ 'it''s'"),
        ("E'\\' ?' ? e'?' ?", "E'\\' ?' 1 e'?' 'it''s'"),
    ],
)
def test_parameters_are_literals_where_they_are_not_part_of_a_text(statement: str, expected: str) -> None:
    assert with_parameters(statement, [1, "it's"]) == expected


@pytest.mark.parametrize("statement", ["? ? ?", "?", "'?'"])
def test_a_wrong_number_of_parameters_is_told(statement: str) -> None:
    with pytest.raises(InvalidQuery, match="parameters"):
        with_parameters(statement, [1, 2])


def test_without_parameters_a_question_mark_is_an_operator() -> None:
    assert with_parameters("a ? 'b'", []) == "a ? 'b'"
