"""Every type of a database, value by value: what is read from the topic is what the database had."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.capture import declarations
from headrace.capture.columns import spark_type
from headrace.capture.declarations import Captured
from headrace.capture.lookup import look_up
from headrace.capture.run import CaptureRun
from headrace.capture.settings import CaptureSettings
from headrace.feed import open_feed
from headrace.pipelines.source.captured import captured_rows
from headrace.pipelines.source.options import SourceOptions
from headrace.pipelines.source.shape import Shape
from headrace.views.arrow import arrow_type
from tests.capture.databases import MariaDB, Postgres, mariadb_bin
from tests.capture.topics import Reader
from tests.servers import ROOT, Headrace

NAN = math.nan


def utc(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=dt.UTC)  # type: ignore[arg-type,misc]


LAST, FIRST = utc(9999, 12, 31, 23, 59, 59, 999999), utc(1, 1, 1)

POSTGRES: dict[str, tuple[str, dict[str, Any]]] = {
    "boolean": ("boolean", {"true": True, "false": False}),
    "smallint": ("smallint", {"-32768": -32768, "32767": 32767}),
    "integer": ("int", {"-2147483648": -(2**31), "7": 7}),
    "bigint": ("bigint", {"9223372036854775807": 2**63 - 1, "-9223372036854775808": -(2**63)}),
    "oid": ("bigint", {"4294967295": 2**32 - 1}),
    "real": ("float", {"1.5": 1.5, "'NaN'": NAN, "'-Infinity'": -math.inf}),
    "double precision": (
        "double",
        {"0.1": 0.1, "'NaN'": NAN, "'Infinity'": math.inf, "1e-320": 1e-320, "1e308": 1e308},
    ),
    "numeric(10,2)": (
        "decimal(10,2)",
        {"12345678.90": Decimal("12345678.90"), "-0.005": Decimal("-0.01"), "'NaN'": None},
    ),
    "numeric(5,-2)": ("decimal(7,0)", {"12345": Decimal(12300)}),
    "numeric(40,5)": ("string", {"12345678901234567890123456789012345.5": "12345678901234567890123456789012345.50000"}),
    "numeric": ("string", {"123456789012345678901234567890.1": "123456789012345678901234567890.1", "'NaN'": "NAN"}),
    "money": ("decimal(19,2)", {"'12.34'": Decimal("12.34"), "'-1000000.5'": Decimal("-1000000.50")}),
    "text": ("string", {"'ä\n\"x'": 'ä\n"x', "''": ""}),
    "character varying(20)": ("string", {"'abc'": "abc"}),
    "character(5)": ("string", {"'ab'": "ab   "}),
    "uuid": ("string", {"'A0EEBC99-9c0b-4ef8-bb6d-6bb9bd380a11'": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"}),
    "mood": ("string", {"'ok'": "ok"}),
    "json": ("string", {"'{\"a\": [1,  2]}'": '{"a": [1,  2]}'}),
    "jsonb": ("string", {'\'{"b":1.0, "a":null}\'': '{"a": null, "b": 1.0}'}),
    "xml": ("string", {"'<a>1</a>'": "<a>1</a>"}),
    "bytea": ("binary", {"'\\x00ff10'": b"\x00\xff\x10", "''": b""}),
    "date": (
        "date",
        {
            "'2026-01-31'": dt.date(2026, 1, 31),
            "'0001-01-01'": dt.date(1, 1, 1),
            "'infinity'": dt.date(9999, 12, 31),
        },
    ),
    "timestamp without time zone": (
        "timestamp",
        {
            "'2026-01-31 12:34:56.123456'": utc(2026, 1, 31, 12, 34, 56, 123456),
            "'1969-12-31 23:59:59.5'": utc(1969, 12, 31, 23, 59, 59, 500000),
            "'1970-01-01 00:00:00.000001'": utc(1970, 1, 1, 0, 0, 0, 1),
            "'infinity'": LAST,
            "'-infinity'": FIRST,
            "'20000-01-01'": LAST,
        },
    ),
    "timestamp(3) without time zone": ("timestamp", {"'2026-01-31 12:34:56.7'": utc(2026, 1, 31, 12, 34, 56, 700000)}),
    "timestamp with time zone": (
        "timestamp",
        {
            "'2026-01-31 12:34:56.123456+02'": utc(2026, 1, 31, 10, 34, 56, 123456),
            "'1970-01-01 00:00:01+00'": utc(1970, 1, 1, 0, 0, 1),
            "'infinity'": LAST,
            "'-infinity'": FIRST,
        },
    ),
    "time without time zone": ("string", {"'12:34:56.123456'": "12:34:56.123456Z"}),
    "time with time zone": ("string", {"'12:34:56+02'": "10:34:56Z"}),
    "interval": (
        "string",
        {"'1 year 2 mons 3 days 04:05:06.789'": "P1Y2M3DT4H5M6.789S", "'-1 day'": "P0Y0M-1DT0H0M0S"},
    ),
    "bit(1)": ("boolean", {"B'1'": True, "B'0'": False}),
    "bit(8)": ("binary", {"B'10000001'": b"\x81"}),
    "bit varying(12)": ("binary", {"B'101'": b"\x05"}),
    "inet": ("string", {"'10.0.0.1/8'": "10.0.0.1/8"}),
    "macaddr": ("string", {"'08:00:2b:01:02:03'": "08:00:2b:01:02:03"}),
    "point": ("struct<x:double,y:double>", {"'(1.5,-2)'": {"x": 1.5, "y": -2.0}}),
    "int4range": ("string", {"'[1,5)'": "[1,5)"}),
    "tsvector": ("string", {"'fat cat'": "'cat' 'fat'"}),
    "integer[]": ("array<int>", {"'{1,NULL,3}'": [1, None, 3], "'{}'": []}),
    "text[]": ("array<string>", {"'{a,NULL,\"b c\"}'": ["a", None, "b c"]}),
    "numeric(10,2)[]": ("array<decimal(10,2)>", {"'{1.50,2}'": [Decimal("1.50"), Decimal("2.00")]}),
    "double precision[]": ("array<double>", {"'{0.1,NaN}'": [0.1, NAN]}),
    "boolean[]": ("array<boolean>", {"'{t,f}'": [True, False]}),
    "date[]": ("array<date>", {"'{2026-01-31}'": [dt.date(2026, 1, 31)]}),
    "timestamp with time zone[]": ("array<timestamp>", {"'{2026-01-31 12:00+00}'": [utc(2026, 1, 31, 12)]}),
    "uuid[]": ("array<string>", {"'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]}),
    "jsonb[]": ("array<string>", {"array['{\"a\":1}'::jsonb]": ['{"a": 1}']}),
    "bytea[]": ("array<binary>", {"array['\\x01ff'::bytea]": [b"\x01\xff"]}),
}


MARIADB: dict[str, tuple[str, dict[str, Any]]] = {
    "tinyint(4)": ("smallint", {"-128": -128, "127": 127}),
    "tinyint(1)": ("smallint", {"1": 1, "0": 0}),
    "tinyint(3) unsigned": ("smallint", {"255": 255}),
    "smallint(6)": ("smallint", {"-32768": -32768}),
    "smallint(5) unsigned": ("int", {"65535": 65535}),
    "mediumint(9)": ("int", {"8388607": 8388607}),
    "int(11)": ("int", {"-2147483648": -(2**31)}),
    "int(10) unsigned": ("bigint", {"4294967295": 2**32 - 1}),
    "bigint(20)": ("bigint", {"9223372036854775807": 2**63 - 1, "-9223372036854775808": -(2**63)}),
    "bigint(20) unsigned": ("decimal(20,0)", {"18446744073709551615": Decimal(2**64 - 1)}),
    "float": ("float", {"1.5": 1.5}),
    "double": ("double", {"0.1": 0.1, "1e308": 1e308, "-2.5e-300": -2.5e-300}),
    "decimal(10,2)": ("decimal(10,2)", {"12345678.90": Decimal("12345678.90"), "-0.01": Decimal("-0.01")}),
    "decimal(65,5)": (
        "string",
        {"12345678901234567890123456789012345678901.5": "12345678901234567890123456789012345678901.50000"},
    ),
    "bit(1)": ("boolean", {"b'1'": True, "b'0'": False}),
    "bit(8)": ("binary", {"b'10000001'": b"\x81"}),
    "varchar(20)": ("string", {"'ä\"x'": 'ä"x', "''": ""}),
    "char(5)": ("string", {"'ab'": "ab"}),
    "text": ("string", {"'abc'": "abc"}),
    "enum('sad','ok')": ("string", {"'ok'": "ok"}),
    "set('a','b')": ("string", {"'a,b'": "a,b"}),
    "json": ("string", {"'{\"a\": [1, 2]}'": '{"a": [1, 2]}'}),
    "uuid": ("string", {"'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"}),
    "blob": ("binary", {"x'00ff10'": b"\x00\xff\x10", "''": b""}),
    "varbinary(10)": ("binary", {"x'01ff'": b"\x01\xff"}),
    "date": ("date", {"'2026-01-31'": dt.date(2026, 1, 31), "'9999-12-31'": dt.date(9999, 12, 31)}),
    "datetime": ("timestamp", {"'2026-01-31 12:34:56'": utc(2026, 1, 31, 12, 34, 56)}),
    "datetime(6)": ("timestamp", {"'1969-12-31 23:59:59.123456'": utc(1969, 12, 31, 23, 59, 59, 123456)}),
    "timestamp(6)": ("timestamp", {"'2026-01-31 12:34:56.123456'": utc(2026, 1, 31, 12, 34, 56, 123456)}),
    "time(6)": ("string", {"'12:34:56.123456'": "12:34:56.123456Z"}),
    "year(4)": ("int", {"2026": 2026}),
}


@pytest.mark.parametrize("native", POSTGRES)
def test_a_type_of_postgres_is_read_as(native: str) -> None:
    assert spark_type("postgres", native) == POSTGRES[native][0]


@pytest.mark.parametrize("native", MARIADB)
def test_a_type_of_mariadb_is_read_as(native: str) -> None:
    assert spark_type("mariadb", native) == spark_type("mysql", native) == MARIADB[native][0]


def documented(heading: str) -> dict[str, str]:
    """The types of a table of the document, each with the type of Spark that stands at its place."""
    text = (ROOT / "docs" / "capture.md").read_text().split("## Types")[1].split("\n## ")[0]
    lines = text.split(heading)[1].split("\nOf ")[0].splitlines()
    found: dict[str, str] = {}
    for line in (line for line in lines if line.startswith("| `")):
        natives, _, sparks = (cell.strip() for cell in line.strip("|").split("|"))
        groups, kinds = natives.split(" · "), sparks.split(" · ")
        for at, group in enumerate(groups):
            for number, native in enumerate(re.findall(r"`([^`]+)`", group)):
                several = re.findall(r"`([^`]+)`", kinds[min(at, len(kinds) - 1)])
                found[native] = several[number] if native.endswith("[]") else several[0]
    return found


@pytest.mark.parametrize(
    ("kind", "heading"),
    [("postgres", "Of PostgreSQL:"), ("mariadb", "Of MariaDB and MySQL:"), ("sqlite", "Of SQLite, whose")],
)
def test_the_document_says_which_type_is_read_as_which(kind: str, heading: str) -> None:
    types = documented(heading)
    assert len(types) > 9
    assert {native: spark_type(kind, native) for native in types} == types


def rows_of(types: dict[str, tuple[str, dict[str, Any]]]) -> Iterator[tuple[list[str], list[Any]]]:
    """Rows of literals, and what they are: each row has the next value of each type, the last has none."""
    for number in range(1 + max(len(values) for _, values in types.values())):
        chosen = [list(values.items())[number : number + 1] or [("NULL", None)] for _, values in types.values()]
        yield [one[0][0] for one in chosen], [one[0][1] for one in chosen]


def read(log: Headrace, topic: str, source: declarations.Source) -> dict[int, list[Any]]:
    """The rows of a topic by key, as Spark's source has them."""
    columns = look_up(source).columns
    declared = pa.schema([(one.name, arrow_type(spark_type(source.kind, one.native))) for one in columns])
    shape = Shape(declared, tuple(declared.names), declared, {})
    options = SourceOptions("", topic, "", "", kind="changes", form="debezium")
    found: dict[int, list[Any]] = {}
    feed = open_feed(log.bootstrap, log.data)
    for partition, (start, end) in feed.bounds(topic).items():
        for batch in feed.read(topic, partition, start, end):
            rows, told = captured_rows(batch, partition, options, shape)
            assert not told, told
            found |= {row[declared.names[0]]: list(row.values())[1:] for row in rows.to_pylist()}
    feed.close()
    return found


def same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and math.isnan(one):
        return isinstance(other, float) and math.isnan(other)
    return type(one) is type(other) and bool(one == other)


def ensure_read_as_they_were(
    types: dict[str, tuple[str, dict[str, Any]]],
    source: declarations.Source,
    execute: Callable[[str], Any],
    log: Headrace,
    folder: Path,
) -> None:
    """All values, by the snapshot and by streaming."""
    topic = f"types_of_{source.kind}"
    kinds = ", ".join(f"c{number} {native} NULL" for number, native in enumerate(types))
    execute(f"create table every_type (id int primary key, {kinds})")
    wanted: dict[int, list[Any]] = {}

    def insert(first: int) -> None:
        for number, (literals, values) in enumerate(rows_of(types), first):
            execute(f"insert into every_type values ({number}, {', '.join(literals)})")
            wanted[number] = values

    insert(0)
    settings = CaptureSettings(log.bootstrap, folder, home=ROOT / ".tools" / "capture")
    run = CaptureRun(topic, [Captured(topic, source, ("id",))], settings, print)
    run.start()
    reader = Reader(log.bootstrap, topic)
    try:
        reader.until(lambda: len(reader.changes) >= len(wanted))
        insert(100)
        reader.until(lambda: len(reader.changes) >= len(wanted))
    finally:
        reader.close()
        run.stop()
    found = read(log, topic, source)
    assert found.keys() == wanted.keys()
    wrong = [
        (native, number, was, is_)
        for number, row in wanted.items()
        for native, was, is_ in zip(types, row, found[number], strict=True)
        if not same(was, is_)
    ]
    assert not wrong


@pytest.mark.system
@pytest.mark.timeout(900)
def test_every_value_of_postgres_is_read_as_it_was(postgres: Postgres, log: Headrace, tmp_path: Path) -> None:
    postgres.execute("create type mood as enum ('sad', 'ok')")
    source = declarations.Postgres(postgres.dsn(), table="public.every_type")
    ensure_read_as_they_were(POSTGRES, source, postgres.execute, log, tmp_path)


@pytest.mark.system
@pytest.mark.timeout(900)
@pytest.mark.skipif(mariadb_bin() is None, reason="MariaDB is not installed: apt-get install mariadb-server")
def test_every_value_of_mariadb_is_read_as_it_was(log: Headrace, tmp_path: Path) -> None:
    server = MariaDB()
    try:
        server.execute("create database shop character set utf8mb4; set global time_zone = '+00:00'")
        source = declarations.MariaDB(server.dsn("shop"), table="every_type")
        ensure_read_as_they_were(MARIADB, source, lambda sql: server.execute(sql, "shop"), log, tmp_path)
    finally:
        server.close()
