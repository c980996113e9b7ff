"""The table of types, value by value: what a changelog says has PostgreSQL's own type, and comes back as it was."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.views.arrow import to_table
from headrace.views.columns import Column
from headrace.views.postgres.types import TYPES, postgres_type
from headrace.views.question import asked
from headrace.views.store import SqlLimits
from tests.capture.databases import Postgres
from tests.servers import ROOT
from tests.views.schemas import emptied, opened_at
from tests.views.store_laws import TOPIC_ID, Opened, batch, spec

VALUES: list[tuple[str, str, list[Any], list[Any]]] = [
    # Spark's type, PostgreSQL's, values that come back as they are, values that do not fit
    ("tinyint", "smallint", [0, -128, 127], ["x", 1.5, True, 40000]),
    ("smallint", "smallint", [-32768, 32767], [32768]),
    ("int", "integer", [-(2**31), 2**31 - 1], [2**31, "much", [1]]),
    ("bigint", "bigint", [-(2**63), 2**63 - 1], [2**63, {"a": 1}]),
    ("float", "real", [0.0, 0.1, -1.5, 3.4028235e38, 1e-45], [1e39]),
    ("double", "double precision", [0.1 + 0.2, 1e-320, 1.7976931348623157e308, -0.0], ["much"]),
    ("boolean", "boolean", [True, False], ["perhaps", 2]),
    (
        "decimal(38,18)",
        "numeric(38,18)",
        ["12345678901234567890.123456789012345678", "-0.000000000000000001"],
        ["1e30"],
    ),
    ("decimal(10,0)", "numeric(10,0)", ["9999999999", "0"], ["10000000000", "ten"]),
    ("decimal(5,5)", "numeric(5,5)", ["0.12345"], ["1.0"]),
    (
        "timestamp",
        "timestamp with time zone",
        ["2026-01-02T03:04:05.000006Z", "0001-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.999999Z"],
        ["soon", 5],
    ),
    ("timestamp_ntz", "timestamp without time zone", ["2026-03-29T02:30:00.000000Z"], ["soon"]),
    ("date", "date", ["2026-02-28", "0001-01-01", "9999-12-31"], ["2026-02-30", 7]),
    ("binary", "bytea", ["", "AAE=", "/+8=", "QUJD" * 100], ["not base64!", 5]),
    ("string", "text", ["", "ü 𝄞", "a\tb\nc\\d", "\\N", "null", "'"], ["nul \0 byte", ["a"]]),
    ("varchar(3)", "text", ["abc"], []),
    ("interval day to second", "text", ["INTERVAL '1 00:00:00' DAY TO SECOND"], []),
    ("array<string>", "jsonb", [[], ["a", None, "ü"], ["\\"]], [["\0"]]),
    ("struct<x:int,y:double>", "jsonb", [{"x": 1, "y": 0.1}, {"x": None, "y": 1e22}], []),
    ("map<string,bigint>", "jsonb", [{}, {"a": 2**63 - 1}], []),
]


@pytest.fixture(scope="module")
def both(postgres: Postgres) -> Iterator[dict[str, Opened]]:
    """Stores that put rows one by one and that copy them."""
    made = {"few": opened_at(emptied(postgres), 100)}
    made["many"] = opened_at(postgres.dsn("views"), 1)
    yield made
    for opened in made.values():
        opened.close()


@pytest.mark.system
@pytest.mark.parametrize("how", ["few", "many"])
@pytest.mark.parametrize(("kind", "native", "good", "bad"), VALUES, ids=[row[0] for row in VALUES])
def test_a_value_is_what_the_changelog_says(
    postgres: Postgres, both: dict[str, Opened], kind: str, native: str, good: list[Any], bad: list[Any], how: str
) -> None:
    opened, name = both[how], f"{how} {kind}"
    build = opened.store.begin(spec({"id": "int", "v": kind}, ["id"], name=name), TOPIC_ID)
    values = [*good, None, *bad]
    changes = [({"id": at}, {"id": at, "v": value}) for at, value in enumerate(values)]
    applied = opened.store.apply(build, 0, batch(*changes), len(values))
    assert [record.offset for record in applied.bad] == list(range(len(good) + 1, len(values)))
    answer = opened.reader.select(("shop", name), asked(build.spec, order="id"))
    shown = [row[1] for row in answer.rows]
    assert shown == [*good, None]
    assert [math.copysign(1, value) for value in shown if isinstance(value, float)] == [
        math.copysign(1, value) for value in good if isinstance(value, float)
    ]
    [(declared,)] = postgres.execute(
        "select format_type(atttypid, atttypmod) from pg_attribute"
        f" where attrelid = 'shop.\"{name}~{build.number}\"'::regclass and attname = 'v'",
        "views",
    )
    assert declared == native == postgres_type(Column("v", kind))
    to_table(answer)
    loose = opened.reader.sql(f'SELECT v FROM "{name}" WHERE v IS NOT NULL ORDER BY id', (), SqlLimits())
    if native != "jsonb":
        assert [row[0] for row in loose.rows] == good
    to_table(loose)


@pytest.mark.system
@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("bigint", "7", 7),
        ("float", "0.1", 0.1),
        ("boolean", "true", True),
        ("decimal(6,2)", "9.5", "9.50"),
        ("timestamp", "2026-01-02 04:04:05+01:00", "2026-01-02T03:04:05.000000Z"),
        ("date", "2026-01-02", "2026-01-02"),
        ("binary", "AAE=", "AAE="),
        ("array<int>", "[1, 2]", [1, 2]),
        ("string", "7", "7"),
    ],
)
def test_a_value_is_found_by_its_text(both: dict[str, Opened], kind: str, text: str, value: Any) -> None:
    opened, name = both["few"], f"found {kind}"
    build = opened.store.begin(spec({"id": "int", "v": kind}, ["id"], name=name), TOPIC_ID)
    opened.store.apply(build, 0, batch(({"id": 1}, {"id": 1, "v": value}), ({"id": 2}, {"id": 2, "v": None})), 2)
    found = opened.reader.select(("shop", name), asked(build.spec, where=[f"v={text}"]))
    assert found.rows == [(1, value)]


def test_the_documentation_has_the_same_table() -> None:
    text = (ROOT / "docs" / "views.md").read_text()
    rows = re.findall(r"^\| ((?:`[\w()<>,]+`(?:, )?)+) \| `([\w (),]+)` \|", text, re.MULTILINE)
    said = {word: native for words, native in rows for word in re.findall(r"`(\w+)", words)}
    official = {word for word in TYPES if word not in ("byte", "short", "integer", "long", "real", "timestamp_ltz")}
    assert {word: native.partition("(")[0] for word, native in said.items() if word in TYPES} == {
        word: TYPES[word] for word in official
    }
