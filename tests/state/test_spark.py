"""An operator in a query: rows in, steps, restarts, wake-ups by the watermark, what follows it in Spark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from pyspark.sql.types import StructType

import headrace as hr
from headrace import F
from headrace.errors import HeadraceError
from headrace.pipelines.rescale import rescale
from headrace.pipelines.state import Changes, Step, TableType
from headrace.pipelines.state.frames import Keyed, keyed
from headrace.pipelines.state.inspect import read_state
from headrace.pipelines.state.operator import ID
from headrace.testing import AppUnderTest, Crash
from headrace.testing.app import shared_spark

pytestmark = pytest.mark.system

SCHEMA = "who string, n long, at timestamp"
AT = pl.Datetime("us", "UTC")


@dataclass(frozen=True)
class Totals:
    """The sum per key so far, for each key that has new rows."""

    tables = {"totals": TableType({"who": pl.String(), "total": pl.Int64()}, ("who",))}

    def step(self, state, delta, watermark_us):
        old = state["totals"].lookup(delta["rows"].select("who"))
        new = delta["rows"].group_by("who").agg(pl.col("n").sum())
        joined = new.join(old, on="who", how="left", nulls_equal=True)
        totals = joined.select("who", total=pl.col("n") + pl.col("total").fill_null(0))
        return Step(totals, {"totals": Changes(totals, old[ID])})


@dataclass(frozen=True)
class Held:
    """Holds each row until the watermark has passed it. A row without ``who`` is dead."""

    tables = {"held": TableType({"who": pl.String(), "n": pl.Int64(), "at": AT}, ("who",))}

    def step(self, state, delta, watermark_us):
        rows = delta["rows"]
        dead = rows.filter(pl.col("who").is_null()).select(
            reason=pl.lit("nobody"), detail=pl.lit("who is null"), row=pl.struct(pl.all()).struct.json_encode()
        )
        rows = rows.filter(pl.col("who").is_not_null())
        over = state["held"].where(pl.col("at") <= (watermark_us or 0))
        left = state["held"].where(pl.col("at") > (watermark_us or 0))
        times = pl.concat([left["at"], rows["at"]]).to_physical()
        return Step(over.drop(ID), {"held": Changes(rows, over[ID])}, times.min() if len(times) else None, dead)


def struct(text):
    return StructType.fromDDL(text)


def test_an_operator_goes_on_where_it_was_after_crashes(tmp_path: Path) -> None:
    app = hr.App("sums")
    app.stream("rows", SCHEMA, event_time="at", lateness="1 minute")

    @app.view(key="who")
    def totals(rows):
        return keyed({"rows": Keyed(rows, ["who"])}, Totals(), struct("who string, total long"))

    with AppUnderTest(app, tmp_path) as under:
        for number in range(3):
            at = f"2026-01-01T00:00:0{number}Z"
            under.send("rows", {"who": "a", "n": 1, "at": at}, {"who": "b", "n": 10, "at": at})
            under.send("rows", {"who": "a", "n": 100, "at": at}, Crash("before-commit"), Crash("after-commit"))
        assert under.view("totals") == [{"who": "a", "total": 303}, {"who": "b", "total": 30}]
        (table,) = read_state(shared_spark(), checkpoint(tmp_path, "sums", "totals"))
        assert (table.operator, table.table, table.by, len(table.rows)) == (0, "totals", ("who",), 2)
        assert table.of_key("a").select("who", "total").rows() == [("a", 303)]


def test_a_rescaled_query_goes_on_with_its_state_in_other_buckets(tmp_path: Path) -> None:
    app = hr.App("scaled")
    app.stream("rows", SCHEMA, event_time="at", lateness="10 seconds")

    @app.view(key="who")
    def totals(rows):
        return keyed({"rows": Keyed(rows, ["who"])}, Totals(), struct("who string, total long"))

    @app.derive()
    def passed(rows):
        return keyed({"rows": Keyed(rows, ["who"])}, Held(), struct(SCHEMA), event_time="at").select("who", "n")

    def row(number: int, second: int) -> dict[str, object]:
        return {"who": f"w{number}", "n": number, "at": f"2026-01-01T00:00:{second:02}Z"}

    with AppUnderTest(app, tmp_path) as under:
        under.send("rows", *(row(number, 1 + number // 10) for number in range(40)))
        under.stop()
        for name, buckets in (("totals", 32), ("passed", 3)):
            folder = checkpoint(tmp_path, "scaled", name)
            with pytest.raises(HeadraceError, match="5000 buckets"):
                rescale(shared_spark, under.cluster, folder, 5000)
            assert rescale(shared_spark, under.cluster, folder, buckets) == 2
        under.start()
        under.send("rows", *(row(number, 30) for number in range(20, 60)), Crash(), row(0, 50))
        expected = {f"w{number}": number * (2 if 20 <= number < 40 else 1) for number in range(60)}
        assert {one["who"]: one["total"] for one in under.view("totals")} == expected
        came = sorted((one["n"], one["who"]) for one in under.stream("passed"))
        assert came == sorted([(n, f"w{n}") for n in range(40)] + [(n, f"w{n}") for n in range(20, 60)])
        (table,) = read_state(shared_spark(), checkpoint(tmp_path, "scaled", "totals"))
        assert table.rows["_bucket"].max() > 2


def checkpoint(folder: Path, app: str, query: str) -> Path:
    (found,) = folder.glob(f"checkpoints/*/{app}/{app}.{query}")
    return found


def test_held_rows_come_out_when_the_watermark_passes_and_windows_over_them_close(tmp_path: Path) -> None:
    app = hr.App("holding")
    app.stream("rows", SCHEMA, event_time="at", lateness="10 seconds")

    @app.view(key="minute")
    def minutes(rows):
        held = keyed({"rows": Keyed(rows, ["who"])}, Held(), struct(SCHEMA), event_time="at")
        return held.groupBy(hr.tumbling("1 minute").alias("minute")).agg(F.sum("n").alias("n"))

    with AppUnderTest(app, tmp_path) as under:
        under.send("rows", {"who": "a", "n": 1, "at": "2026-01-01T00:00:05Z"})
        nobody = {"who": None, "n": 1, "at": "2026-01-01T00:00:05Z"}
        under.send("rows", nobody, nobody)
        assert under.view("minutes") == []
        under.send("rows", {"who": "b", "n": 2, "at": "2026-01-01T00:00:40Z"}, nobody, Crash("before-commit"))
        (row,) = under.view("minutes")
        assert (row["n"], row["final"]) == (1, False)
        under.send("rows", {"who": "c", "n": 4, "at": "2026-01-01T00:01:30Z"})
        (row,) = under.view("minutes")
        assert (row["n"], row["final"]) == (3, True)
        letters = under.letters("holding.minutes.dead")
        assert [letter.reason for letter in letters] == ["nobody"] * 3, "rows that are equal are a letter each"
