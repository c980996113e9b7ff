"""TRUNCATE in the log of MariaDB and MySQL, and what it takes from a topic."""

from __future__ import annotations

import json

import pytest

from headrace.capture.binlog import Place, truncated_table
from headrace.capture.truncations import LastWritten


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("use `shop`; truncate table m", "shop.m"),
        ("use `shop`; TRUNCATE `odd``name`", "shop.odd`name"),
        ("use `shop`; /* by cron */ truncate\ttable other . m /* xid=7 */", "other.m"),
        ("use `sh``op`; -- nightly\ntruncate m", "sh`op.m"),
        ("truncate table `shop`.`m`", "shop.m"),
        ("use `shop`; alter table m add column truncate_me int", None),
        ("use `shop`; insert into m values ('truncate table m')", None),
        ("use `shop`; create table truncate_table (id int)", None),
        ("BEGIN", None),
    ],
)
def test_a_truncate_is_known_by_its_statement(text: str, table: str | None) -> None:
    assert truncated_table(text) == table


def test_places_are_in_order_of_their_files_numbers() -> None:
    places = [("binlog.000009", 900), ("binlog.000010", 4), ("binlog.000010", 100), ("binlog.1000000", 4)]
    assert sorted(Place.of(*one) for one in reversed(places)) == [Place.of(*one) for one in places]


def test_what_was_written_before_a_truncate_is_gone_and_what_came_after_is_not() -> None:
    def row(op: str, pos: int) -> bytes:
        return json.dumps({"op": op, "source": {"file": "binlog.000002", "pos": pos}}).encode()

    written = LastWritten()
    for key, value in (
        (b"snapshot", row("r", 500)),
        (b"old", row("c", 300)),
        (b"again", row("c", 300)),
        (b"deleted", row("c", 300)),
        (b"deleted", row("d", 400)),
        (b"deleted", None),
        (b"again", row("c", 501)),
        (b"new", row("c", 600)),
    ):
        written.read(key, value)
    assert written.before(Place.of("binlog.000002", 500)) == [b"snapshot", b"old"]
    assert written.before(Place.of("binlog.000001", 900)) == []
