"""The operator: what is kept, when it wakes, what is dead, what is too much."""

from __future__ import annotations

import json
import pickle

import pytest

from headrace.errors import TooManyPartialMatches
from headrace.pipelines.patterns import pattern
from tests.patterns.keeping import bucket, rows, second, step, steps, us

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


def test_a_row_that_fails_in_the_middle_of_a_match_is_as_if_it_were_not_there() -> None:
    declared = pattern(
        by="key", time="at", pattern="A B+ C", define={"B": "first(A.price) / price > 1", "C": "price = 9"}
    )
    one = bucket(declared)
    new = rows(("a", 1, "x", 8), ("a", 2, "x", 4), ("a", 3, "x", 0), ("a", 4, "x", 2), ("a", 5, "x", 9))
    found = [row for until in (2, 4, 9) for row in step(one, new if until == 2 else rows(), until)]
    assert [(row["match_start"], row["match_end"]) for row in found] == [(second(1), second(5))]
    assert [dead["detail"].to_list() for dead in one.dead] == [["division by zero"]]


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


def test_a_length_of_time_is_rounded_once() -> None:
    declared = pattern(by="key", time="at", pattern="A B", measures={"took": "last(at) - first(at)"})
    (found,) = steps(bucket(declared), [(rows(("k", 1, "a"), ("k", 1.007, "b")), 9)])
    assert found["took"] == 0.007


def test_the_operator_can_be_sent_to_a_worker() -> None:
    one = bucket(absence()).operator
    assert pickle.loads(pickle.dumps(one)) == one
