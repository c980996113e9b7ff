"""The demo's verdict: every view against a plain recomputation from the log.

The topic is read from its first to its last record. Records that are no events must be in ``events.dead``, and nothing
else may be there. What came too late for a view (``events.late``) is left out of it, by position; all the rest must be
in the views, once. Nothing here uses Spark or what the queries use.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from headrace.cli.demo_events import CLOSER
from headrace.errors import UnknownTopic

if TYPE_CHECKING:
    from headrace.feed import Feed

__all__ = ["Difference", "Log", "compare", "expected", "read_log"]

APP, TOPIC = "shop", "events"
GAP = timedelta(minutes=5)

Position = tuple[int, int]
"""Partition and offset."""
Rows = dict[tuple[Any, ...], tuple[Any, ...]]
"""Rows of a view: key values to the other values."""


@dataclass(frozen=True)
class Log:
    """What the log holds, by position: events, broken records, what was put aside as dead, and as late for a view."""

    found: dict[Position, dict[str, Any]]
    broken: frozenset[Position]
    dead: frozenset[Position]
    late: Mapping[str, frozenset[Position]]

    def events(self, view: str) -> Iterator[dict[str, Any]]:
        """The events that a view counts."""
        late = self.late.get(view, frozenset())
        return (event for position, event in self.found.items() if position not in late)


@dataclass(frozen=True)
class Difference:
    """How a view compares."""

    view: str
    rows: int
    missing: int
    extra: int
    different: int
    example: str | None

    @property
    def equal(self) -> bool:
        """Whether there is none."""
        return not (self.missing or self.extra or self.different)


def read_log(feed: Feed) -> Log:
    """Everything that the verdict needs."""
    found, broken = {}, set()
    for partition, offset, _, value in _records(feed, TOPIC):
        event = _event(value or b"")
        if event is None:
            broken.add((partition, offset))
        else:
            found[partition, offset] = event
    dead = frozenset(_position(key) for _, _, key, _ in _records(feed, f"{TOPIC}.dead"))
    late: dict[str, set[Position]] = {}
    for _, _, key, _ in _records(feed, f"{TOPIC}.late"):
        query = key.decode().split("/")[0]
        late.setdefault(query.removeprefix(f"{APP}."), set()).add(_position(key))
    return Log(found, frozenset(broken), dead, {view: frozenset(positions) for view, positions in late.items()})


def _records(feed: Feed, topic: str) -> Iterator[tuple[int, int, bytes, bytes | None]]:
    try:
        bounds = feed.bounds(topic)
    except UnknownTopic:
        return
    for partition, (start, end) in bounds.items():
        for batch in feed.read(topic, partition, start, end):
            columns = (batch.column(name).to_pylist() for name in ("offset", "key", "value"))
            for offset, key, value in zip(*columns, strict=True):
                yield partition, offset, key or b"", value


def _event(value: bytes) -> dict[str, Any] | None:
    """The event that a record holds; None if it is broken."""
    try:
        event = json.loads(value)
        whole = not isinstance(event["amount"], str) and datetime.fromisoformat(event["at"]).year < 2900
    except (ValueError, KeyError, TypeError):
        return None
    return event if whole else None


def _position(key: bytes) -> Position:
    _, partition, offset = key.decode().rsplit("/", 2)
    return int(partition), int(offset)


def expected(log: Log) -> dict[str, Rows]:
    """What every view must hold."""
    return {
        "revenue": _revenue(log.events("revenue")),
        "sessions": _sessions(log.events("sessions")),
        "products": _products(log.events("products")),
    }


def _revenue(events: Iterable[dict[str, Any]]) -> Rows:
    amounts: dict[str, list[float]] = {}
    for event in events:
        if event["kind"] == "order":
            amounts.setdefault(event["at"][:16] + ":00.000000Z", []).append(event["amount"])
    return {(minute,): (math.fsum(sold), len(sold)) for minute, sold in amounts.items()}


def _products(events: Iterable[dict[str, Any]]) -> Rows:
    amounts: dict[str, list[float]] = {}
    for event in events:
        if event["kind"] == "order":
            amounts.setdefault(event["product"], []).append(event["amount"])
    return {(product,): (len(sold), math.fsum(sold)) for product, sold in amounts.items()}


def _sessions(events: Iterable[dict[str, Any]]) -> Rows:
    by_customer: dict[int, list[tuple[datetime, float | None]]] = {}
    for event in events:
        if event["customer_id"] != CLOSER:
            moment = datetime.fromisoformat(event["at"])
            by_customer.setdefault(event["customer_id"], []).append((moment, event["amount"]))
    rows: Rows = {}
    for customer, steps in by_customer.items():
        steps.sort(key=lambda step: step[0])
        visit = [steps[0]]
        for step in [*steps[1:], None]:
            if step is not None and step[0] <= visit[-1][0] + GAP:
                visit.append(step)
                continue
            spent = [amount for _, amount in visit if amount is not None]
            start = visit[0][0].strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            rows[customer, start] = (len(visit), math.fsum(spent) if spent else None)
            visit = [step] if step is not None else []
    return rows


SHAPES = {
    "revenue": (("minute",), ("revenue", "orders")),
    "sessions": (("customer_id", "session"), ("steps", "spent")),
    "products": (("product",), ("sold", "revenue")),
}


def compare(view: str, found: Iterable[Mapping[str, Any]], wanted: Rows) -> Difference:
    """A view's rows against what they must be; sums of doubles may differ in the last digits."""
    key, values = SHAPES[view]
    rows = {tuple(row[name] for name in key): tuple(row[name] for name in values) for row in found}
    rows = {key: row for key, row in rows.items() if not (view == "sessions" and key[0] == CLOSER)}
    missing, extra = wanted.keys() - rows.keys(), rows.keys() - wanted.keys()
    different = [one for one in wanted.keys() & rows.keys() if not _same(wanted[one], rows[one])]
    example = None
    if odd := sorted(missing | extra | set(different), key=str)[:1]:
        example = f"{odd[0]}: {rows.get(odd[0])} in the view, {wanted.get(odd[0])} from the log"
    return Difference(view, len(rows), len(missing), len(extra), len(different), example)


def _same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return all(
        a == b or (isinstance(a, float) and isinstance(b, float) and math.isclose(a, b, rel_tol=1e-9))
        for a, b in zip(one, other, strict=True)
    )
