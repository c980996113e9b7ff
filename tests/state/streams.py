"""Rows of streams as they may arrive: in batches, out of order within the lateness, with watermarks and mishaps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
from hypothesis import strategies as st

from tests.state.bucket import Bucket

AT = pl.Datetime("us", "UTC")
END = 10**6
"""A watermark after everything."""


def us(seconds: int) -> int:
    """Tests count seconds; operators microseconds."""
    return seconds * 1_000_000


FATES = ["stay", "other worker", "lost", "again", "again elsewhere"]
"""What befalls a batch: ``again`` is an attempt before it that Spark forgets, though the worker may not."""
Rows = list[tuple[Any, ...]]
"""Rows whose last column is the event time in seconds."""


@st.composite
def deliveries(draw: st.DrawFn, streams: Mapping[str, Rows], tables: tuple[str, ...] = ()) -> list[Any]:
    """Batches of (rows by stream, watermark in seconds, what befalls the workers); the last are empty, at the end.

    Rows come up to a lateness out of order; the watermark is the largest time so far minus that, as in Spark, so no
    row is late. Those of ``tables`` do not move it. Some are as operators in event time give them out: see ``_held``.
    """
    lateness = draw(st.integers(0, 20))
    rows = [(name, row) for name in streams for row in streams[name]]
    jitter = draw(st.lists(st.integers(0, lateness), min_size=len(rows), max_size=len(rows)))
    arrival = [one for _, one in sorted(zip(jitter, rows, strict=True), key=lambda pair: pair[1][1][-1] + pair[0])]
    size = draw(st.integers(1, 8))
    batches, watermark = [], None
    for begin in range(0, len(arrival), size):
        part: dict[str, Rows] = {name: [] for name in streams}
        for name, row in arrival[begin : begin + size]:
            part[name].append(row)
        batches.append((part, watermark, draw(st.sampled_from(FATES))))
        times = [row[-1] for name, row in arrival[: begin + size] if name not in tables]
        watermark = max(times) - lateness - 1 if times else None
    ends = [(watermark, "stay"), (END, "lost"), (END, "stay")]
    batches += [({name: [] for name in streams}, at, fate) for at, fate in ends]
    return _held(draw, batches, tables) if draw(st.booleans()) else batches


def _held(draw: st.DrawFn, batches: list[Any], tables: tuple[str, ...]) -> list[Any]:
    """The same, as an operator in event time before this one may let the rows out: in their batch, or in the first
    whose watermark has passed them."""
    out: list[Any] = [({name: [] for name in part}, at, fate) for part, at, fate in batches]
    for place, (part, _, _) in enumerate(batches):
        for name in part:
            for row in part[name]:
                passed = (n for n, (_, at, _) in enumerate(batches) if n >= place and at is not None and at >= row[-1])
                to = place if name in tables else draw(st.sampled_from([place, next(passed)]))
                out[to][0][name].append(row)
    return out


def run(bucket: Bucket, batches: list[Any], columns: Any, time: str) -> list[tuple[Any, ...]]:
    """Everything that comes out, times in seconds; checks that it comes in time and that wake-ups are asked for.

    ``columns`` is the schema of every stream, or schemas by stream.
    """
    out, worker, before = [], 0, None
    for part, watermark, fate in batches:
        if fate == "lost":
            bucket.lose_caches()
        worker = 1 - worker if fate == "other worker" else worker
        watermark_us = None if watermark is None else us(watermark)
        delta = {name: frame(rows, columns.get(name, columns)) for name, rows in part.items()}
        asked = bucket.wake_us
        if fate.startswith("again"):
            bucket.step(delta, watermark_us, worker=worker, aborted=True)
        worker = 1 - worker if fate == "again elsewhere" else worker
        found = bucket.step(delta, watermark_us, worker=worker)
        due = asked is not None and watermark_us is not None and asked <= watermark_us
        if found is not None and len(found):
            assert due or any(part.values()), "what comes out without new rows was due"
            if before is not None and time:
                assert found[time].to_physical().min() > us(before), "nothing comes out too late for a further step"
            out += found.with_columns(pl.col(AT).to_physical() // us(1)).rows()
        before = watermark
    return out


def frame(rows: Rows, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Rows as a frame, times from seconds."""
    times = [name for name, kind in schema.items() if kind == AT]
    plain = {name: pl.Int64() if name in times else kind for name, kind in schema.items()}
    found = pl.DataFrame(rows, schema=plain, orient="row")
    return found.with_columns((pl.col(name) * us(1)).cast(AT) for name in times)
