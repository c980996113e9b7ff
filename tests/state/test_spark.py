"""An operator in a query: rows in, steps, restarts, wake-ups by the watermark, what follows it in Spark."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from pyspark.sql.types import StructType

import headrace as hr
from headrace import F
from headrace.errors import HeadraceError
from headrace.pipelines.rescale import rescale
from headrace.pipelines.state import Changes, Step, TableType, seed
from headrace.pipelines.state.frames import Keyed, keyed
from headrace.pipelines.state.inspect import read_state
from headrace.pipelines.state.operator import ID
from headrace.testing import AppUnderTest, Crash
from headrace.testing.app import shared_spark
from tests.state.failing import status_of

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


def test_a_rescaled_query_goes_on_with_its_state_in_other_buckets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seed, "_AT_ONCE", 1)  # each bucket by itself
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


def test_operators_on_two_branches_keep_their_own_state_over_a_rescale(tmp_path: Path) -> None:
    app = hr.App("shop")
    for name in ("orders", "visits"):
        app.stream(name, SCHEMA, event_time="at")

    @app.view(key="who")
    def both(orders, visits):
        bought, seen = hr.aggregate(orders, by="who", n=hr.sum("n")), hr.aggregate(visits, by="who", n=hr.sum("n"))
        return hr.join(bought, seen, on="who")

    at = "2026-01-01T00:00:00Z"
    with AppUnderTest(app, tmp_path) as under:
        under.send("orders", {"who": "a", "n": 1, "at": at}, {"who": "b", "n": 2, "at": at})
        under.send("visits", {"who": "a", "n": 100, "at": at}, {"who": "b", "n": 200, "at": at})
        before = {row["who"]: row for row in under.view("both")}
        under.stop()
        folder = checkpoint(tmp_path, "shop", "both")
        kept = sums(folder)
        assert kept == {0: {"a": 1, "b": 2}, 1: {"a": 100, "b": 200}}, "in the order of the function's calls"
        assert rescale(shared_spark, under.cluster, folder, 3) == 2
        under.start()
        under.send("orders", {"who": "a", "n": 10, "at": at})
        under.send("visits", {"who": "b", "n": 1000, "at": at})
        assert sums(folder) == {0: {"a": 11, "b": 2}, 1: {"a": 100, "b": 1200}}
        after = {row["who"]: row for row in under.view("both")}
        moved = {
            who: {name: row[name] - before[who][name] for name in row if name != "who"} for who, row in after.items()
        }
        assert sorted(moved["a"].values()) == [0, 10]
        assert sorted(moved["b"].values()) == [0, 1000]


def sums(folder: Path) -> dict[int | None, dict[str, int]]:
    """What the aggregations of a query keep, by the operator's number."""
    tables = [one for one in read_state(shared_spark(), folder) if one.table == "groups"]
    return {one.operator: {row["who"]: row["sum _v0"] for row in one.rows.to_dicts()} for one in tables}


@dataclass(frozen=True)
class OnABadDisk(Totals):
    """Totals; as long as there is a file, what is kept of a batch with ``bad`` is damaged on its way to the store."""

    file: str

    def step(self, state, delta, watermark_us):
        if Path(self.file).exists() and "bad" in delta["rows"]["who"]:
            damage_the_next_chunk()
        return super().step(state, delta, watermark_us)


def damage_the_next_chunk():
    """In a worker, which does not keep what it wrote, so that it has to be read."""
    from headrace.pipelines.state import log
    from headrace.pipelines.state.cache import worker_cache

    encode, worker_cache.put = log.encode, lambda *of: delattr(worker_cache, "put")

    def damaged(changes):
        log.encode = encode
        return encode(changes)[:-1]

    log.encode = damaged


def test_damaged_state_is_named_to_the_user_and_built_anew_as_the_error_says(tmp_path: Path) -> None:
    app, file = hr.App("sums"), tmp_path / "disk is bad"
    file.touch()
    app.stream("rows", SCHEMA, event_time="at", lateness="1 minute")

    @app.view(key="who")
    def totals(rows):
        return keyed({"rows": Keyed(rows, ["who"])}, OnABadDisk(str(file)), struct("who string, total long"))

    row = {"who": "bad", "n": 1, "at": "2026-01-01T00:00:00Z"}
    chunk = r"DamagedChunk: chunk 0 of bucket \d of the state of sums\.totals, operator 0 cannot be read\."
    with AppUnderTest(app, tmp_path) as under:
        under.send("rows", row)
        with pytest.raises(HeadraceError, match=chunk):
            under.send("rows", row)
        status = status_of(under, "totals")
        assert (status.state, status.restarts) == ("failed", 0)
        assert re.search(rf"{chunk}.* remove the query's folder among the checkpoints", status.last_error)
        under.stop()
        file.unlink()
        shutil.rmtree(checkpoint(tmp_path, "sums", "totals"))
        under.rebuild = True
        under.start()
        under.settle()
        assert under.view("totals") == [{"who": "bad", "total": 2}]
        under.send("rows", row)
        under.send("rows", row)
        for damage in (lambda file: file.write_bytes(file.read_bytes()[:-1] + b"?"), Path.unlink):
            under.stop()
            for file in tmp_path.glob("checkpoints/*/sums/sums.totals*/state/**/*.changelog"):
                damage(file)
            under.rebuild = False
            under.start()
            lost = (
                r"the state of sums\.totals\S* cannot be read: the file state/0/\d/\d\.changelog is damaged or gone\."
            )
            with pytest.raises(HeadraceError, match=lost):
                under.send("rows", row)
            status = status_of(under, "totals")
            assert (status.state, status.restarts) == ("failed", 0)
            assert re.search(rf"{lost}.* remove the query's folder among the checkpoints", status.last_error)


def test_sessions_behind_another_operator_have_a_number_and_state_of_their_own(tmp_path: Path) -> None:
    app = hr.App("visits")
    app.stream("rows", SCHEMA, event_time="at", lateness="10 seconds")
    app.table("people", "name string, age long", key="name")

    @app.view(key=["visit", "who"])
    def visits(rows, people):
        seen = hr.enrich(rows, people, on={"who": "name"}, as_of="at")
        return seen.groupBy(hr.session("5 seconds").alias("visit"), "who").agg(F.count("*").alias("n"))

    def row(second: int) -> dict[str, object]:
        return {"who": "a", "n": 1, "at": f"2026-01-01T00:00:{second:02}Z"}

    with AppUnderTest(app, tmp_path) as under:
        under.send("rows", row(10))
        under.send("rows", row(21))
        under.stop()
        folder = checkpoint(tmp_path, "visits", "visits")
        kept = {(one.operator, one.table): len(one.rows) for one in read_state(shared_spark(), folder)}
        assert kept == {(0, "held"): 1, (1, "ends"): 1, (1, "rows"): 1}, "one waits, one is in a session"
        assert rescale(shared_spark, under.cluster, folder, 5) == 2
        under.start()
        under.send("rows", row(59))
        under.send("rows", row(59))
        found = [(row["visit"][17:19], row["n"], row["final"]) for row in under.view("visits")]
        assert found[:2] == [("10", 1, True), ("21", 1, True)]
