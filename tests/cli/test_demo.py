"""``headrace demo`` shows a shop and checks every view against the log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from headrace.cli import demo
from headrace.cli.demo_check import compare, expected, read_log
from headrace.cli.demo_events import ShopEvents, closing_event
from headrace.errors import UnknownView
from tests.cli.command import Cli
from tests.views.memory_feed import MemoryFeed

START = 1_767_225_600.0


@pytest.mark.system
@pytest.mark.timeout(900)
def test_the_demo_ends_with_views_that_are_what_the_log_says() -> None:
    ran = Cli().run("demo", "--seconds", "8", timeout=580)
    assert ran.code == 0, ran.out + ran.err
    assert ran.lines[-1] == "Every view is what the log says."
    assert sum("equal to the recomputation" in line for line in ran.lines) == 3
    assert "http://127.0.0.1:" in ran.lines[0]


class Answers:
    """What a node would say."""

    def __init__(self, rows: list[dict[str, Any]] | None) -> None:
        self._rows = rows

    def queries(self) -> list[dict[str, Any]]:
        return [{"late": 3, "dead": 5}, {"late": None, "dead": 4}]

    def view(self, name: str) -> Answers:
        return self

    def rows(self, *, order: str, limit: int) -> list[dict[str, Any]]:
        if self._rows is None:
            raise UnknownView("not yet")
        return self._rows


@pytest.mark.parametrize("there", [True, False])
def test_the_live_table_shows_what_is_there(there: bool) -> None:
    row = {"minute": "2026-01-01T12:34:00.000000Z", "revenue": 1234.5, "orders": 7, "product": "tea", "sold": 9}
    row |= {"customer_id": 42, "steps": 3, "spent": None}
    console = Console(width=140, record=True, file=StringIO())
    console.print(demo._screen(Answers([row] if there else None), "http://127.0.0.1:1", 12345, 3.0, 60.0))  # type: ignore[arg-type]
    shown = console.export_text()
    assert "12,345 records   3 late   5 broken   http://127.0.0.1:1" in shown
    assert ("12:34" in shown, "1,234.50" in shown, "42" in shown) == (there, there, there)


def some_events(seed: int) -> Iterator[tuple[bytes, bytes]]:
    shop = ShopEvents(seed, START, customers=40)
    yield from shop.until(START + 3600)
    yield from shop.rest()
    yield closing_event(START + 7200)


def test_a_seed_gives_the_same_events_with_disorder_late_and_broken_ones() -> None:
    events = list(some_events(7))
    assert events == list(some_events(7)) != list(some_events(8))
    times, broken = [], 0
    for _, value in events:
        try:
            times.append(json.loads(value)["at"])
        except (ValueError, KeyError):
            broken += 1
    assert broken > 0
    assert times != sorted(times)


def logged() -> MemoryFeed:
    feed = MemoryFeed(rows_at_once=100)
    feed.create("events", 2)
    for number, (key, value) in enumerate(some_events(7)):
        feed.append("events", key, value, partition=number % 2)
    return feed


def rows_of(view: str, wanted: dict[Any, Any]) -> list[dict[str, Any]]:
    names = {"revenue": ("minute", "revenue", "orders"), "sessions": ("customer_id", "session", "steps", "spent")}
    shape = names.get(view, ("product", "sold", "revenue"))
    return [dict(zip(shape, (*key, *row), strict=True)) for key, row in wanted.items()]


@pytest.mark.parametrize("view", ["revenue", "sessions", "products"])
def test_a_row_that_is_missing_too_much_or_different_is_found(view: str) -> None:
    wanted = expected(read_log(logged()))[view]
    rows = rows_of(view, wanted)
    assert len(rows) > 5
    assert compare(view, rows, wanted).equal
    assert compare(view, rows[1:], wanted).missing == 1
    assert compare(view, rows, dict(list(wanted.items())[1:])).extra == 1
    number = {"revenue": "orders", "sessions": "steps", "products": "sold"}[view]
    changed = [rows[0] | {number: rows[0][number] + 1}, *rows[1:]]
    assert compare(view, changed, wanted).different == 1


def test_what_came_too_late_for_a_view_is_left_out_of_that_view_only() -> None:
    feed = logged()
    before = expected(read_log(feed))
    positions = [position for position, event in read_log(feed).found.items() if event["kind"] == "order"]
    partition, offset = positions[0]
    feed.append("events.late", f"shop.products/events/{partition}/{offset}".encode(), b"{}")
    after = expected(read_log(feed))
    assert sum(row[0] for row in after["products"].values()) == sum(row[0] for row in before["products"].values()) - 1
    assert after["revenue"] == before["revenue"]


def test_a_broken_record_must_be_in_the_dead_letters() -> None:
    feed = logged()
    log = read_log(feed)
    assert log.broken
    assert log.dead != log.broken
    for partition, offset in log.broken:
        feed.append("events.dead", f"events/{partition}/{offset}".encode(), b"x")
    assert read_log(feed).dead == log.broken
