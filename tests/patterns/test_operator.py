"""The operator: what is kept, when it wakes, what is dead, what is too much."""

from __future__ import annotations

import json
import pickle
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from headrace.errors import TooManyPartialMatches
from headrace.pipelines.patterns import compile_pattern, pattern
from headrace.pipelines.patterns.match import Matching
from tests.patterns.keeping import bucket, rows, second, step, steps, us
from tests.state.bucket import Bucket

PAYMENT = {"order": "kind = 'order'", "payment": "kind = 'payment'"}


def absence(**more):
    return pattern(by="key", time="at", pattern="order !payment", define=PAYMENT, within="30 seconds", **more)


def test_absence_is_told_when_its_time_is_over_and_nothing_is_kept_after_it() -> None:
    one = bucket(absence())
    assert step(one, rows(("a", 1, "order"), ("b", 2, "order")), 0) == []
    assert step(one, rows(("b", 20, "payment")), 5) == []
    assert one.wake_us == us(20)
    assert step(one, rows(), 25) == []
    assert one.wake_us == us(31)
    assert step(one, rows(), 30) == []
    assert step(one, rows(), 31) == [{"key": "a", "match_start": second(1), "match_end": second(31)}]
    assert one.wake_us is None
    assert one.rows("rows").is_empty()
    assert one.rows("progress").is_empty()


def test_a_payment_at_the_last_moment_is_in_time() -> None:
    assert steps(bucket(absence()), [(rows(("a", 1, "order"), ("a", 31, "payment")), 60)]) == []
    assert len(steps(bucket(absence()), [(rows(("a", 1, "order"), ("a", 31.000001, "payment")), 60)])) == 1


def test_a_key_that_was_lost_from_the_cache_goes_on_where_it_was() -> None:
    one = bucket(absence())
    step(one, rows(("a", 1, "order")), 5)
    one.lose_caches()
    assert step(one, rows(("a", 40, "order")), 35) == [{"key": "a", "match_start": second(1), "match_end": second(31)}]


def test_a_row_that_a_condition_fails_on_is_dead_and_the_rest_goes_on() -> None:
    declared = pattern(by="key", time="at", pattern="A B", define={"A": "100 / price > 1", "B": "price > 0"})
    one = bucket(declared)
    found = steps(one, [(rows(("a", 1, "x", 5), ("a", 2, "x", 0), ("a", 3, "x", 7), ("b", 1, "x", 1)), 9)])
    assert [(row["key"], row["match_start"], row["match_end"]) for row in found] == [("a", second(1), second(3))]
    (dead,) = one.dead
    assert dead.select("reason", "detail").rows() == [("condition-failed", "division by zero")]
    assert '"price":0' in dead["row"][0]


def test_the_letter_of_a_dead_row_has_all_its_columns_whenever_it_fails() -> None:
    declared = pattern(
        by="key", time="at", pattern="A B", define={"A": "1 / price > 0", "B": "first(A.price) / price > 0"}
    )
    one = bucket(declared)
    steps(one, [(rows(("a", 1, "at once", 0, 0.5), ("a", 2, "fits", 2), ("b", 1, "fits", 2)), 2)])
    later = pattern(by="key", time="at", pattern="A B", define={"B": "first(A.price) / price > 0"})
    two = bucket(later)
    steps(two, [(rows(("a", 1, "fits", 2), ("a", 2, "later", 0, 0.5)), 0), (rows(), 9)])
    found = [json.loads(row) for dead in (*one.dead, *two.dead) for row in dead["row"]]
    assert [(row["kind"], row["share"]) for row in found] == [("at once", 0.5), ("later", 0.5)]


@pytest.mark.parametrize(
    ("reason", "more"),
    [
        ("condition-failed", {"define": {"B": "sum(1 / B.price) > 3"}}),
        ("condition-failed", {"define": {"B": "cast(kind as double) > A.price"}}),
        ("condition-failed", {"define": {"B": "price > 5 % (A.price - A.price)"}}),
        ("measure-failed", {"measures": {"m": "A.price / B.price"}}),
        ("measure-failed", {"measures": {"m": "sum(1 / price)"}}),
        ("measure-failed", {"measures": {"m": "cast(B.kind as double)"}}),
    ],
)
def test_the_letter_of_a_row_that_waited_has_all_its_columns_whatever_fails(reason: str, more: dict[str, Any]) -> None:
    one = bucket(pattern(by="key", time="at", pattern="A B", **more))
    steps(one, [(rows(("a", 1, "1", 2), ("a", 2, "later", 0, 0.5)), 0), (rows(), 9)])
    (dead,) = one.dead
    (row,) = map(json.loads, dead["row"])
    assert (dead["reason"].to_list(), row["kind"], row["share"]) == ([reason], "later", 0.5)


def test_a_measure_that_fails_is_null_in_its_match_and_told_in_a_letter_that_names_it() -> None:
    measures = {"rate": "B.price / A.price", "n": "count(*)", "whole": "cast(B.kind as int)", "total": "sum(price)"}
    declared = pattern(by="key", time="at", pattern="A B", measures=measures, define={"A": "kind = 'a'"})
    one = bucket(declared)
    new = rows(
        ("k", 1, "a", 0), ("k", 2, "7", 5), ("k", 3, "a", 0), ("k", 4, "b", 5), ("k", 5, "a", 2), ("k", 6, "1", 4)
    )
    found = [(row["rate"], row["n"], row["whole"], row["total"]) for row in steps(one, [(new, 9)])]
    assert found == [(None, 2, 7, 5), (None, 2, None, 5), (2.0, 2, 1, 6)]
    assert sorted(row for dead in one.dead for row in dead.select("reason", "detail").rows()) == [
        ("measure-failed", "rate: division by zero"),
        ("measure-failed", "rate: division by zero; whole: text that is no whole number"),
    ]
    assert sorted(seconds_of_dead(one)) == ["02", "04"]


def test_a_measure_that_fails_before_the_end_is_told_with_what_ran_out_of_time_only() -> None:
    declared = pattern(
        by="key",
        time="at",
        pattern="A ->> B",
        define={"B": "kind = 'b'"},
        measures={"part": "1 / (count(*) - 1)"},
        within="9 seconds",
        partials=True,
        timeouts=True,
    )
    one = bucket(declared)
    found = steps(one, [(rows(("k", 1, "a")), 1), (rows(), 99)])
    assert [(row["outcome"], row["part"]) for row in found] == [("partial", None), ("timeout", None)]
    assert [dead["detail"].to_list() for dead in one.dead] == [["part: division by zero"]]


def test_columns_that_no_condition_looks_at_are_not_kept() -> None:
    one = bucket(absence())
    step(one, rows(("a", 1, "order")), 0)
    assert one.rows("rows").columns == ["~id", "key", "at", "kind"]


def test_a_row_that_came_after_later_ones_were_matched_is_dead_with_all_its_columns() -> None:
    one = bucket(absence())
    step(one, rows(("a", 5, "order")), 9)
    step(one, rows(("a", 3, "order", 7, 0.5)), 9)
    (dead,) = one.dead
    assert (dead["reason"][0], json.loads(dead["row"][0])["share"]) == ("late", 0.5)


def in_single_steps(one: Bucket, prices: list[int]) -> list[tuple[datetime, datetime]]:
    """A row in each step, at seconds from 1 on; the matches."""
    new = [(rows(("a", at, "x", price)), at) for at, price in enumerate(prices, 1)]
    return [(row["match_start"], row["match_end"]) for row in steps(one, [*new, (rows(), 99)])]


def seconds_of_dead(one: Bucket) -> list[str]:
    return [json.loads(row)["at"][17:19] for dead in one.dead for row in dead["row"]]


def test_a_row_that_fails_in_the_middle_of_a_match_ends_that_way_and_is_told_once() -> None:
    declared = pattern(
        by="key", time="at", pattern="A B+ C", define={"B": "first(A.price) / price > 1", "C": "price = 9"}
    )
    one = bucket(declared)
    new = rows(*(("a", at, "x", price) for at, price in enumerate((8, 4, 0, 8, 4, 9), 1)))
    found = [row for until in (2, 5, 9) for row in step(one, new if until == 2 else rows(), until)]
    assert [(row["match_start"], row["match_end"]) for row in found] == [(second(4), second(6))]
    assert [dead["detail"].to_list() for dead in one.dead] == [["division by zero"]]
    assert seconds_of_dead(one) == ["03"], "though it failed from both of the rows before it"


@pytest.mark.parametrize("after", ["past last row", "to next row"])
@pytest.mark.parametrize("condition", ["price / A.price > 2", "price / prev(price) > 2", "price / sum(A.price) > 2"])
@pytest.mark.parametrize("text", ["A B", "A ->> B", "A !C B"])
def test_a_row_that_makes_others_fail_ends_one_way_to_match_and_no_more(text: str, condition: str, after: str) -> None:
    define = {"B": condition, **({"C": "price > A.price and price < 0"} if "C" in text else {})}
    one = bucket(pattern(by="key", time="at", pattern=text, define=define, after=after))
    found = in_single_steps(one, [0, 1, 5, 6, 20])
    assert {(second(2), second(3)), (second(4), second(5))} <= set(found)
    assert seconds_of_dead(one) == ["02"]


def test_an_absence_is_not_told_where_nobody_can_say_whether_it_was_one() -> None:
    define = {"payment": "price / order.price >= 1"}
    one = bucket(pattern(by="key", time="at", pattern="order !payment", define=define, within="9 seconds"))
    assert in_single_steps(one, [0, 7]) == [(second(2), second(11))]
    assert seconds_of_dead(one) == ["02"]


def test_a_way_that_fails_leaves_the_match_that_there_is() -> None:
    one = bucket(pattern(by="key", time="at", pattern="A B+", define={"B": "10 / (price - A.price) > 1"}))
    assert in_single_steps(one, [1, 5, 1]) == [(second(1), second(2))]
    assert seconds_of_dead(one) == ["03"]


def test_a_condition_that_guards_another_is_asked_first() -> None:
    declared = pattern(by="key", time="at", pattern="A", define={"A": "price <> 0 and 10 / price > 1"})
    one = bucket(declared)
    assert len(steps(one, [(rows(("a", 1, "x", 0), ("a", 2, "x", 5)), 9)])) == 1
    assert one.dead == []


def test_a_row_without_a_time_is_dead() -> None:
    one = bucket(absence())
    new = rows(("a", 1, "order"))
    assert step(one, new.with_columns(at=None).cast(dict(new.schema)), 9) == []
    assert [dead["detail"].to_list() for dead in one.dead] == [["no event time"]]


def test_a_pattern_that_would_match_in_too_many_ways_is_an_error_that_names_the_limit() -> None:
    declared = pattern(
        by="key",
        time="at",
        pattern="(A | B)+ C",
        define={"A": "sum(B.price) >= 0 or price > 0", "C": "price < 0"},
        max_partials=100,
    )
    new = rows(*(("hot", at, "x", 1) for at in range(30)))
    with pytest.raises(TooManyPartialMatches, match=r"more than 100 partial matches for key='hot'.*max_partials"):
        step(bucket(declared), new, 60)


def test_ambiguity_that_makes_no_difference_costs_nothing() -> None:
    declared = pattern(by="key", time="at", pattern="(A | B)+? C", define={"C": "price < 0"}, max_partials=10)
    new = rows(*(("hot", at, "x", 1) for at in range(1000)), ("hot", 1000, "x", -1), ("hot", 1001, "x", 1))
    (found,) = step(bucket(declared), new, 1000)
    assert found["match_end"] == second(1000)


def test_null_is_a_key_and_unknown_conditions_do_not_hold() -> None:
    declared = pattern(by="key", time="at", pattern="A B", define={"A": "price > 1", "B": "not (price > 1)"})
    found = steps(
        bucket(declared), [(rows((None, 1, "x", 2), (None, 2, "x", None), (None, 3, "x", 2), (None, 4, "x", 0)), 9)]
    )
    assert [(row["key"], row["match_start"]) for row in found] == [(None, second(3))]


def test_what_is_under_way_and_what_ran_out_of_time_are_told_when_asked_for() -> None:
    declared = pattern(
        by="key",
        time="at",
        pattern="A ->> B ->> C",
        define={"A": "kind = 'a'", "B": "kind = 'b'", "C": "kind = 'c'"},
        within="10 seconds",
        timeouts=True,
        partials=True,
        rows=True,
        measures={"n": "count(*)"},
    )
    one = bucket(declared)
    found = [
        (row["outcome"], row["n"], [taken["variable"] for taken in row["match_rows"]])
        for new, until in [
            (rows(("k", 1, "a")), 1),
            (rows(("k", 2, "x")), 2),
            (rows(("k", 3, "b")), 3),
            (rows(), 20),
        ]
        for row in step(one, new, until)
    ]
    assert found == [("partial", 1, ["A"]), ("partial", 2, ["A", "B"]), ("timeout", 2, ["A", "B"])]


def test_rows_of_one_time_are_ordered_by_the_columns_that_say_so() -> None:
    declared = pattern(by="key", time="at", pattern="A B", define={"A": "kind = 'a'", "B": "kind = 'b'"}, order="price")
    assert len(steps(bucket(declared), [(rows(("k", 1, "b", 2)), 0), (rows(("k", 1, "a", 1)), 5)])) == 1
    assert steps(bucket(declared), [(rows(("k", 1, "b", 1)), 0), (rows(("k", 1, "a", 2)), 5)]) == []


def test_without_a_key_all_rows_are_one_sequence() -> None:
    declared = pattern(time="at", pattern="A B", define={"A": "kind = 'a'", "B": "kind = 'b'"})
    batches = [(rows(("x", 1, "a"), ("z", 9, "c")), 3), (rows(("y", 4, "b")), 5)]
    assert steps(bucket(declared), batches) == [{"match_start": second(1), "match_end": second(4)}]


def test_a_column_of_a_row_keeps_its_type_and_value_in_the_match() -> None:
    schema = pl.Schema(
        {
            "at": pl.Datetime("us", "UTC"),
            "paid": pl.Decimal(18, 2),
            "day": pl.Date(),
            "small": pl.Int16(),
            "tags": pl.List(pl.String()),
        }
    )
    measures = {
        "paid": "B.paid",
        "first_paid": "first(A.paid)",
        "before": "last(paid, 1)",
        "most": "max(paid)",
        "earliest": "min(day)",
        "day": "B.day",
        "either": "coalesce(C.day, A.day)",
        "length": "B.day - A.day",
        "small": "small",
        "tags": "A.tags",
        "none": "C.paid",
        "total": "cast(sum(paid) as double)",
        "more": "B.paid > A.paid",
    }
    declared = pattern(
        time="at", pattern="A B C?", define={"B": "paid > 1.5 and day > '2026-01-01'"}, measures=measures
    )
    one = Bucket(Matching(compile_pattern(declared, schema), schema, False))
    large = Decimal("1234567890123456.78")
    new = pl.DataFrame(
        [(second(1), large, date(2026, 1, 1), 1, ["x", "y"]), (second(2), Decimal("2.01"), date(2026, 1, 3), 2, [])],
        schema=schema,
        orient="row",
    )
    assert one.step({"rows": new.slice(0, 1)}, us(1)).is_empty()  # type: ignore[union-attr]
    found = one.step({"rows": new.slice(1)}, us(2))
    assert found is None or found.is_empty(), "a C may come"
    later = new.slice(1).with_columns(at=pl.lit(second(3)), small=None).cast(dict(schema))
    found = one.step({"rows": later.with_columns(paid=pl.lit(None, schema["paid"]))}, us(3))
    assert found is not None
    assert {name: found.schema[name] for name in ("paid", "before", "most", "day", "either", "small", "tags")} == {
        "paid": schema["paid"],
        "before": schema["paid"],
        "most": schema["paid"],
        "day": schema["day"],
        "either": schema["day"],
        "small": schema["small"],
        "tags": schema["tags"],
    }
    (row,) = found.drop("match_start", "match_end").to_dicts()
    assert row == {
        "paid": Decimal("2.01"),
        "first_paid": large,
        "before": Decimal("2.01"),
        "most": large,
        "earliest": date(2026, 1, 1),
        "day": date(2026, 1, 3),
        "either": date(2026, 1, 3),
        "length": 2 * 86_400.0,
        "small": None,
        "tags": ["x", "y"],
        "none": None,
        "total": float(large) + 2.01,
        "more": False,
    }


def test_a_length_of_time_is_rounded_once() -> None:
    declared = pattern(by="key", time="at", pattern="A B", measures={"took": "last(at) - first(at)"})
    (found,) = steps(bucket(declared), [(rows(("k", 1, "a"), ("k", 1.007, "b")), 9)])
    assert found["took"] == 0.007


def test_the_operator_can_be_sent_to_a_worker() -> None:
    one = bucket(absence()).operator
    assert pickle.loads(pickle.dumps(one)) == one
