"""Schemas and lengths of time as people write them."""

from __future__ import annotations

import pytest

from headrace.pipelines.durations import milliseconds
from headrace.pipelines.schema import BadSchema, Column, parse_schema, schema_text

TYPES = [
    ("long", "bigint"),
    ("INTEGER", "int"),
    ("decimal", "decimal(10,0)"),
    ("Numeric( 16 , 8 )", "decimal(16,8)"),
    ("varchar(20)", "string"),
    ("array< map<string, array<short>> >", "array<map<string,array<smallint>>>"),
    ("struct<a: int, b struct<c string>>", "struct<a:int,b:struct<c:string>>"),
    ("timestamp_ltz", "timestamp"),
]


@pytest.mark.parametrize(("text", "simple"), TYPES)
def test_a_type_is_kept_in_its_simple_form(text: str, simple: str) -> None:
    assert parse_schema(f"x {text}, y: {text} NOT NULL COMMENT 'why, not'") == (
        Column("x", simple),
        Column("y", simple, nullable=False),
    )


def test_a_schema_survives_being_written_and_read() -> None:
    columns = parse_schema("`odd, ``name` long not null, b array<struct<c:decimal(3,1)>>")
    assert columns[0].name == "odd, `name"
    assert parse_schema(schema_text(columns)) == columns


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a int,",
        "a int b int",
        "a array<int",
        "a map<int>",
        "a int>",
        "a decimal(3,4)",
        "a int, a string",
        "a ?",
    ],
)
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(BadSchema):
        parse_schema(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("10 minutes", 600_000), ("1 hour 30 min", 5_400_000), ("250ms", 250), ("1.5 s", 1500), ("2 Days", 172_800_000)],
)
def test_a_length_of_time_is_a_number_of_milliseconds(text: str, ms: int) -> None:
    assert milliseconds(text) == ms


@pytest.mark.parametrize("text", ["", "soon", "5", "5 parsecs", "minutes 5"])
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        milliseconds(text)
