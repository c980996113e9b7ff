"""Records as text, out and in."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.failures import CommandFailed
from headrace.cli.formats import writer_for
from headrace.cli.lines import LineFormat, Outgoing, parse_lines

TIME_MS = 1_769_860_800_123


def message(
    key: bytes | None = b"k", value: bytes | None = b"v", headers: list[tuple[str, bytes | None]] | None = None
) -> Message:
    return Message("t", 2, 7, key, value, headers, None, (1, TIME_MS))


@pytest.mark.parametrize(
    ("form", "printed"),
    [
        ("value", b"v\n"),
        ("key-value", b"k\tv\n"),
        ("%t[%p]:%o %k=%s\\n", b"t[2]:7 k=v\n"),
        ("%K %S %T %%", b"1 1 1769860800123 %"),
        ("%I", b"2026-01-31T12:00:00.123Z"),
        ("%s\\x00", b"v\x00"),
    ],
)
def test_a_format_prints_what_it_names(form: str, printed: bytes) -> None:
    assert writer_for(form)(message()) == printed


def test_null_keys_and_values_print_as_nothing_and_have_length_minus_one() -> None:
    assert writer_for("%k|%s|%K|%S")(message(None, None)) == b"||-1|-1"


def test_headers_print_as_name_value_pairs() -> None:
    assert writer_for("%h")(message(headers=[("a", b"1"), ("b", None)])) == b"a=1,b=NULL"


@pytest.mark.parametrize("form", ["values", "%q", "100%"])
def test_an_unknown_format_is_refused_with_a_hint(form: str) -> None:
    with pytest.raises(CommandFailed) as failed:
        writer_for(form)
    assert failed.value.hint


some_bytes = st.none() | st.binary(max_size=20)


@given(some_bytes, some_bytes, st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3))
def test_what_json_prints_the_envelope_reads_back(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    line = writer_for("json")(message(key, value, headers))
    [(length, record)] = parse_lines([line], LineFormat(envelope=True), "test")
    assert record == Outgoing(key, value, headers, TIME_MS)
    assert length == len(line)
    assert {"topic": "t", "partition": 2, "offset": 7}.items() <= json.loads(line).items()


def parsed(text: str, form: LineFormat) -> list[tuple[bytes | None, bytes | None]]:
    lines = text.encode().splitlines(keepends=True)
    return [(record.key, record.value) for _, record in parse_lines(lines, form, "test")]


def test_a_plain_line_is_a_value_without_a_key() -> None:
    assert parsed("a\n\nb\tc", LineFormat()) == [(None, b"a"), (None, b""), (None, b"b\tc")]


def test_one_key_can_be_for_all() -> None:
    assert parsed("a\nb\n", LineFormat(key=b"k")) == [(b"k", b"a"), (b"k", b"b")]


def test_a_separator_splits_at_its_first_place() -> None:
    assert parsed("a\tb\tc\n\tx\n", LineFormat(separator=b"\t")) == [(b"a", b"b\tc"), (b"", b"x")]


def test_an_empty_value_can_mean_null() -> None:
    assert parsed("a:\nb:1\n", LineFormat(separator=b":", empty_is_null=True)) == [(b"a", None), (b"b", b"1")]


def test_a_key_field_is_taken_from_the_json_and_the_value_stays_as_it_is() -> None:
    text = '{"id": 7,  "who": {"name": "Ada"}}\n\n{"id": null, "who": {"name": "Bo"}}\n'
    lines = [line.encode() for line in text.split("\n") if line]
    assert parsed(text, LineFormat(key_field="who.name", json_values=True)) == [(b"Ada", lines[0]), (b"Bo", lines[1])]
    assert [key for key, _ in parsed(text, LineFormat(key_field="id", json_values=True))] == [b"7", None]


@pytest.mark.parametrize(
    ("text", "form", "complaint"),
    [
        ("a:1\nb\n", LineFormat(separator=b":"), "line 2 of test has no key separator ':'"),
        ('{"a": 1}\nnope\n', LineFormat(json_values=True), "line 2 of test is not JSON"),
        ('{"a": 1}\n', LineFormat(json_values=True, key_field="b"), "line 1 of test has no field 'b'"),
        ("[1]\n", LineFormat(envelope=True), "line 1 of test is not a record"),
        ('{"value_base64": "?"}\n', LineFormat(envelope=True), "line 1 of test has a 'value' that is neither"),
    ],
)
def test_a_bad_line_is_named(text: str, form: LineFormat, complaint: str) -> None:
    with pytest.raises(CommandFailed) as failed:
        parsed(text, form)
    assert failed.value.message.startswith(complaint)
