"""Session windows in apps: partial results, sessions that grow together, the final flag."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace as hr
from headrace import F
from headrace.testing import AppUnderTest, Crash

pytestmark = pytest.mark.system


def visits_app() -> hr.App:
    app = hr.App("visits")
    app.stream("clicks", "who string, cents long, at timestamp", event_time="at", lateness="1 minute")

    @app.view(key=["visit", "who"])
    def visits(clicks):
        priced = clicks.where("cents >= 0").withColumn("price", F.col("cents") / 100)
        session = hr.session("5 minutes").alias("visit")
        return priced.groupBy(session, F.upper("who").alias("who")).agg(
            F.sum("price").alias("spent"), F.count("*").alias("clicks")
        )

    app.view_sql(
        "busy",
        key=["visit"],
        sql="SELECT session_window(at, '5 minutes') AS visit, count(*) AS n FROM clicks "
        "GROUP BY session_window(at, '5 minutes') HAVING count(*) > 1 AND count(*) < 4",
    )
    return app


def click(who: str, minute: int, cents: int = 100) -> dict[str, object]:
    return {"who": who, "cents": cents, "at": f"2026-01-01T00:{minute:02}:00Z"}


def shown(under: AppUnderTest, view: str = "visits") -> list[tuple[object, ...]]:
    rows = under.view(view)
    return [(row["visit"][14:16], row["visit_end"][14:16], *list(row.values())[2:]) for row in rows]


def test_sessions_show_partial_results_grow_together_and_become_final(tmp_path: Path) -> None:
    with AppUnderTest(visits_app(), tmp_path) as under:
        under.send("clicks", click("ada", 10), click("ada", 12, 50), click("bo", 11), click("bo", 11, -5))
        assert shown(under) == [("10", "17", "ADA", 1.5, 2, False), ("11", "16", "BO", 1.0, 1, False)]
        assert shown(under, "busy") == []
        under.send("clicks", click("ada", 20), Crash())
        assert shown(under)[-1] == ("20", "25", "ADA", 1.0, 1, False)
        under.send("clicks", click("ada", 40))
        rows = shown(under)
        assert rows[0] == ("10", "17", "ADA", 1.5, 2, True)
        assert rows[-1] == ("40", "45", "ADA", 1.0, 1, False)


def test_a_session_that_begins_earlier_or_is_swallowed_is_shown_once(tmp_path: Path) -> None:
    app = hr.App("visits")
    app.stream("clicks", "who string, cents long, at timestamp", event_time="at", lateness="1 hour")

    @app.view(key=["visit", "who"])
    def visits(clicks):
        return clicks.groupBy(hr.session("5 minutes").alias("visit"), "who").agg(F.count("*").alias("n"))

    app.view_sql(
        "busy",
        key=["visit"],
        sql="SELECT session_window(at, '5 minutes') AS visit, count(*) AS n FROM clicks "
        "GROUP BY session_window(at, '5 minutes') HAVING count(*) < 4",
    )
    with AppUnderTest(app, tmp_path) as under:
        under.send("clicks", click("ada", 10), click("ada", 18))
        assert shown(under) == [("10", "15", "ada", 1, False), ("18", "23", "ada", 1, False)]
        under.send("clicks", click("ada", 8), Crash("before-commit"))
        assert shown(under) == [("08", "15", "ada", 2, False), ("18", "23", "ada", 1, False)]
        assert [row[:3] for row in shown(under, "busy")] == [("08", "15", 2), ("18", "23", 1)]
        under.send("clicks", click("ada", 14))
        assert shown(under) == [("08", "23", "ada", 4, False)]
        assert shown(under, "busy") == []
