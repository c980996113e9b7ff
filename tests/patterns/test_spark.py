"""``hr.match`` in an app: from a stream to alerts and derived streams, over crashes, with dead letters."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

import headrace as hr
from headrace.errors import HeadraceError, InvalidDeclaration
from headrace.testing import AppUnderTest, Crash
from tests.state.failing import status_of

pytestmark = pytest.mark.system

SCHEMA = "card string, amount double, at timestamp"


def paid(card, amount, second):
    return {"card": card, "amount": amount, "at": f"2026-01-01T00:00:{second:02d}Z"}


def test_matches_of_an_app_are_told_once_over_crashes_and_disorder(tmp_path: Path) -> None:
    app = hr.App("fraud")
    app.stream("payments", f"{SCHEMA}, due decimal(18,2), day date", event_time="at", lateness="5 seconds")

    @app.view(key=["card", "match_start"])
    def tested(payments):
        return hr.match(
            payments,
            by="card",
            pattern="small{3,} big",
            within="30 seconds",
            define={"small": "amount < 1 and 1 / amount > 0", "big": "amount > 500"},
            measures={
                "tries": "count(small.*)",
                "taken": "big.amount",
                "took": "last(at) - first(at)",
                "due": "big.due",
                "day": "max(day)",
                "rate": "small.amount / (big.amount - 900)",
            },
            rows=True,
        )

    @app.view(key=["card", "end"])
    def falls(payments):
        return hr.match_recognize(
            payments,
            """SELECT card, Until AS end, low, match_rows AS fell FROM payments MATCH_RECOGNIZE (
                PARTITION BY card ORDER BY at MEASURES LAST(D.amount) AS low, LAST(D.at) AS until, card AS c
                PATTERN (S D+ U) DEFINE D AS D.amount < PREV(amount), U AS U.amount > PREV(amount))""",
            rows=True,
            max_partials=100,
        )

    with AppUnderTest(app, tmp_path) as under:
        under.send("payments", paid("a", 0.2, 3), paid("a", 0.1, 1), paid("b", 0.5, 2))
        under.send("payments", paid("a", 0.0, 4), paid("a", 0.3, 4), Crash("after-commit"))
        due = {"due": "12.50", "day": "2026-02-03"}
        under.send("payments", paid("a", 900.0, 6) | due, paid("b", 0.4, 6), paid("b", 700.0, 7))
        under.send("payments", paid("z", 1.0, 50))
        under.send("payments", paid("z", 1.0, 59))
        (found,) = under.view("tested")
        assert (found["card"], found["tries"], found["taken"], found["took"]) == ("a", 3, 900.0, 5.0)
        assert (Decimal(str(found["due"])), found["day"], found.get("rate")) == (Decimal("12.50"), "2026-02-03", None)
        assert [(row["amount"], row["variable"]) for row in found["match_rows"]] == [
            (0.1, "small"),
            (0.2, "small"),
            (0.3, "small"),
            (900.0, "big"),
        ]
        assert [(row["card"], row["low"]) for row in under.view("falls")] == [("a", 0.0), ("b", 0.4)]
        assert ["".join(one["variable"] for one in row["fell"]) for row in under.view("falls")] == ["SDU", "SDU"]
        dead = {one.reason: json.loads(one.value or b"") for one in under.letters("fraud.tested.dead")}
        assert {reason: (row["card"], row["amount"]) for reason, row in dead.items()} == {
            "condition-failed": ("a", 0.0),
            "measure-failed": ("a", 900.0),
        }


def test_a_mistake_is_found_before_anything_runs(tmp_path: Path) -> None:
    app = hr.App("wrong")
    app.stream("payments", SCHEMA, event_time="at")

    @app.derive()
    def found(payments):
        return hr.match(payments, by="card", pattern="A B", define={"A": "amuont > 1"})

    with (
        pytest.raises(InvalidDeclaration, match=r"no column 'amuont', at character 1"),
        AppUnderTest(app, tmp_path) as under,
    ):
        under.view("found")


def test_a_pattern_over_its_limit_is_stopped_and_says_the_limit(tmp_path: Path) -> None:
    app = hr.App("limits")
    app.stream("payments", SCHEMA, event_time="at", lateness="1 second")

    @app.derive()
    def ways(payments):
        define = {"A": "sum(B.amount) >= 0 or amount > 0", "C": "amount < 0"}
        return hr.match(payments, by="card", pattern="(A | B)+ C", define=define, max_partials=2)

    limit = "TooManyPartialMatches: pattern .* has more than 2 partial matches for card='a'"
    with AppUnderTest(app, tmp_path) as under:

        def pay() -> None:
            under.send("payments", *(paid("a", 1.0, second) for second in range(20)), paid("z", 1.0, 50))
            under.send("payments", paid("z", 1.0, 59))

        with pytest.raises(HeadraceError, match=limit):
            pay()
        status = status_of(under, "ways")
        assert (status.state, status.restarts) == ("failed", 0), "it would be the same again"
        assert status.last_error.endswith("use reluctant quantifiers (A*?), or raise max_partials")
