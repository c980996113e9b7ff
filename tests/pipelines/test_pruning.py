"""What nothing looks at behind an operator is not kept by it, and what comes out is the same."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace as hr
from headrace import F
from headrace.pipelines.building import Building
from headrace.pipelines.plan import built, empty, sources
from headrace.pipelines.pruning import unneeded_columns
from headrace.pipelines.state.inspect import read_state
from headrace.testing import AppUnderTest
from headrace.testing.app import shared_spark
from tests.pipelines.conftest import at
from tests.state.test_spark import checkpoint

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

CLICKS = "who string, page string, agent string, at timestamp"


def clicks_app() -> hr.App:
    app = hr.App("clicks")
    app.stream("clicks", CLICKS, event_time="at", lateness="1 second")

    @app.view(key="who")
    def pairs(clicks):
        other = clicks.select("who", F.col("page").alias("next"), F.col("agent").alias("by"), "at")
        both = hr.window_join(clicks, other, on="who", within=("1 second", "1 minute"))
        last = hr.latest(both.select("who", "page", "next", "agent", "by", "joined_at"), by="who", order="joined_at")
        return hr.aggregate(last, by="who", last=hr.max("next"))

    return app


def either_app() -> hr.App:
    app = hr.App("clicks")
    app.stream("clicks", CLICKS, event_time="at", lateness="1 second")

    @app.derive()
    def either(clicks):
        one = hr.window_join(clicks, clicks, on="who", within="1 second", suffix="_2").select("who", "page")
        other = hr.window_join(clicks, clicks, on="who", within="1 minute", suffix="_2").select("who", "agent")
        return one.unionAll(other)

    return app


def unneeded(app: hr.App, name: str) -> dict[int, set[str]]:
    spark, inputs = shared_spark(), sources(app, {}, {})
    (query,) = [one for one in app.queries if one.name == name]

    def build(known: Building):
        return built(spark, query, inputs, lambda one: empty(spark, one), known).frame

    found: dict[int, set[str]] = {}
    for number, column in unneeded_columns(build):
        found.setdefault(number, set()).add(column)
    return found


def test_columns_that_nothing_looks_at_are_found_through_operators_one_after_the_other() -> None:
    found = unneeded(clicks_app(), "pairs")
    assert {"page", "agent", "by"} <= found[0], "of the join"
    assert {"page", "agent", "by"} <= found[1], "of the latest rows"
    assert not {"who", "next", "joined_at"} & found[0]
    assert not {"who", "next"} & found[1], "what they are ordered by is kept, though nothing looks at it behind them"


def test_both_sides_of_a_union_count() -> None:
    found = unneeded(either_app(), "either")
    assert "page" not in found[0]
    assert "agent" in found[0]
    assert "agent" not in found[1]
    assert "page" in found[1]


def test_what_is_not_needed_is_not_in_the_state_and_the_result_is_the_same(tmp_path: Path) -> None:
    with AppUnderTest(clicks_app(), tmp_path) as under:
        rows = [("a", "home", 0), ("a", "cart", 5), ("b", "home", 6), ("a", "paid", 20), ("b", "gone", 400)]
        under.send("clicks", *({"who": w, "page": p, "agent": f"agent of {w}", "at": at(s)} for w, p, s in rows))
        assert under.view("pairs") == [{"who": "a", "last": "paid"}]
        tables = read_state(shared_spark(), checkpoint(tmp_path, "clicks", "pairs"))
        kept = {(one.operator, one.table): one.rows for one in tables}
        assert kept[0, "right"]["next"].null_count() == 0
        assert kept[0, "right"]["by"].null_count() == len(kept[0, "right"]) > 0
        assert kept[1, "rows"]["agent"].null_count() == len(kept[1, "rows"]) > 0
