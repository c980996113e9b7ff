"""An app's rows beside the oracle's."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache
from typing import Any

import polars as pl
from benchmarks.nexmark.generator import Events, Settings, generate
from benchmarks.nexmark.oracle import expected
from polars import selectors as cs

SETTINGS = Settings(rate=200, bidder_lead=0, base_ms=1_748_822_340_020)
"""Five milliseconds between events, so that no two have one time, and bids among those at the ends of windows."""
COUNT = 12_000
LAST_BIDS = [
    {"auction": 5, "bidder": 6, "price": price, "channel": "Apple", "url": f"https://a/b/c/d/{at}", "dateTime": at}
    for price, at in [
        (10**9, datetime(2025, 6, 2, 0, 30, 3)),
        (10**9, datetime(2025, 6, 2, 0, 30, 10)),
        (1, datetime(2025, 6, 2, 1)),
        (2, datetime(2025, 6, 2, 2)),
        (3, datetime(2025, 6, 2, 3)),
    ]
]
"""By hand: two bids with the highest price of a window, one of them at its very end; then three that close windows."""
CLOSED = "2025-06-02T00:45"
"""Windows before this are closed in the end."""


def last_values() -> list[bytes]:
    """The last bids as records."""
    rows = ({**bid, "dateTime": bid["dateTime"].isoformat(), "extra": ""} for bid in LAST_BIDS)
    return [json.dumps({"event_type": 2, "bid": row, "dateTime": row["dateTime"]}).encode() for row in rows]


@cache
def events() -> Events:
    """All events as columns."""
    made = generate(SETTINGS, 0, COUNT)
    last = [{"n": COUNT + at, **bid, "extra": ""} for at, bid in enumerate(LAST_BIDS)]
    bids = pl.DataFrame(last, schema_overrides={"dateTime": pl.Datetime("ms")}).select(made.bids.columns)
    return Events(made.people, made.auctions, pl.concat([made.bids, bids]))


def as_rows(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """As Headrace writes them: times in UTC with microseconds, decimals as strings."""
    shown = frame.with_columns(cs.temporal().dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ"), cs.decimal().cast(pl.String))
    return shown.to_dicts()


def ensure_same(
    name: str, found: Iterable[Mapping[str, Any]], renamed: Mapping[str, str] | None = None, closed: str | None = None
) -> None:
    """The rows of an app, of which only the oracle's columns count, are the oracle's, each as often.

    ``renamed`` says the app's names of columns; of windows that begin in the column ``closed`` only closed ones count.
    """
    wanted = as_rows(expected(name, events()))
    columns = {column: (renamed or {}).get(column, column) for column in wanted[0]}
    ours = [{column: row[theirs] for column, theirs in columns.items()} for row in found]
    if closed is not None:
        wanted, ours = ([row for row in rows if row[closed] < CLOSED] for rows in (wanted, ours))
    assert wanted, f"{name} has no rows to compare"
    mine, theirs = _counted(ours), _counted(wanted)
    missing, extra = theirs - mine, mine - theirs
    assert mine == theirs, (
        f"{name}: {len(wanted)} rows expected, {len(ours)} found; "
        f"missing {sorted(missing)[:3]}, not expected {sorted(extra)[:3]}"
    )


def _counted(rows: Iterable[Mapping[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in rows)
