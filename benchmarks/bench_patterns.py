"""Rows per second of processor time of the pattern matcher, without Spark: NEXMark's CEP suite, and keys that are hot.

Each case is run as the operator runs it: in steps of 100,000 rows, with the state of the keys that a step touches.
Prints a table; ``--json`` prints JSON. Run it as ``POLARS_MAX_THREADS=1 python -m benchmarks.bench_patterns``.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from headrace.pipelines.patterns import Pattern, compile_pattern, pattern
from headrace.pipelines.patterns.match import Matching
from headrace.pipelines.state.keyed_state import KeyedState

SCHEMA = pl.Schema(
    {"auction": pl.Int64(), "bidder": pl.Int64(), "price": pl.Int64(), "dateTime": pl.Datetime("us", "UTC")}
)
KEY = {"by": ("auction", "bidder"), "time": "dateTime"}
DOWN = "(last(DOWN.price, 1) is null and price < START.price) or price < last(DOWN.price, 1)"
LOW = {"A": "avg(A.price) < 10000"}


@dataclass(frozen=True)
class Case:
    name: str
    declared: Pattern
    keys: int
    """How many keys there are; half of all rows are of the first if it is hot."""
    hot: bool = False
    rows: int = 1_000_000
    step: int = 100_000
    per_second: int = field(default=10_000)


def cases() -> list[Case]:
    fall = {"B": "B.price > A.price - 50", "C": "C.price < A.price - 50"}
    c0 = pattern(
        **KEY,
        pattern="START DOWN+ UP",
        define={"DOWN": DOWN, "UP": "price > last(DOWN.price)"},
        measures={"low": "last(DOWN.price)", "high": "UP.price"},
        after="to last UP",
    )
    c1 = pattern(**KEY, pattern="A+ B", define=LOW, measures={"mean": "avg(A.price)"})
    c2 = pattern(**KEY, pattern="A+ B", define=LOW, measures={"mean": "avg(A.price)"}, after="to next row")
    c3 = pattern(**KEY, pattern="A B* C", define=fall, measures={"fall": "A.price - C.price"}, within="5 seconds")
    tests = {"small": "price < 1000", "big": "price > 10000000"}
    few = {"small": "price < 90000000", "big": "price > 99999990"}
    small = pattern(**KEY, pattern="small{3,} big", define=tests, within="5 minutes")
    waiting = pattern(**KEY, pattern="small{3,} big", define=few, within="30 seconds")
    absent = pattern(**KEY, pattern="big !small", define=tests, within="10 seconds")
    return [
        *(Case(name, one, 100_000) for name, one in (("c0", c0), ("c1", c1), ("c2", c2), ("c3", c3))),
        *(Case(f"{name}, 100 keys", one, 100) for name, one in (("c0", c0), ("c1", c1), ("c2", c2), ("c3", c3))),
        Case("small{3,} big", small, 100_000),
        Case("small{3,} big, hot", small, 1_000, hot=True),
        Case("small{3,} big, hot, always open", waiting, 1_000, hot=True),
        Case("big !small, hot", absent, 1_000, hot=True),
    ]


def bids(case: Case) -> pl.DataFrame:
    chance = np.random.default_rng(7)
    auction = chance.integers(0, case.keys, case.rows)
    if case.hot:
        auction[chance.random(case.rows) < 0.5] = 0
    price = np.round(10 ** (6 * chance.random(case.rows)) * 100).astype(np.int64)
    at = np.arange(case.rows) * (1_000_000 // case.per_second)
    columns = {"auction": auction, "bidder": auction % 7, "price": price, "dateTime": at}
    return pl.DataFrame(columns).select(pl.all().exclude("dateTime"), pl.col("dateTime").cast(pl.Datetime("us", "UTC")))


def measured(case: Case) -> dict[str, Any]:
    rows = bids(case)
    operator = Matching(compile_pattern(case.declared, SCHEMA), SCHEMA, False)
    state = KeyedState(operator)
    matches, slowest, begin = 0, 0.0, time.process_time()
    watermark = -1
    for start in range(0, case.rows, case.step):
        part, began = rows[start : start + case.step], time.process_time()
        step = operator.step(state.tables, {"rows": part}, watermark)
        state.take(step.changes)
        matches += 0 if step.output is None else len(step.output)
        slowest = max(slowest, time.process_time() - began)
        watermark = int(part["dateTime"].to_physical().max())  # type: ignore[arg-type]
    seconds = time.process_time() - begin
    return {
        "case": case.name,
        "rows_per_second": round(case.rows / seconds),
        "matches": matches,
        "slowest_step_ms": round(slowest * 1000),
        "kept_rows": len(state.tables["rows"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    found = [measured(case) for case in cases() if options.only in case.name]
    if options.json:
        print(json.dumps(found, indent=2))
        return
    for one in found:
        print(
            f"{one['case']:<34} {one['rows_per_second']:>12,} rows/s   {one['matches']:>9,} matches   "
            f"slowest step {one['slowest_step_ms']:>6,} ms   {one['kept_rows']:>9,} rows kept"
        )


if __name__ == "__main__":
    main()
