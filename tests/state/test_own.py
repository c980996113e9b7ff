"""Operators that users write: what they are called with, and what they may return."""

from __future__ import annotations

import datetime as dt
import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import InvalidDeclaration
from headrace.pipelines.state.own import Input, Own, WrongResult
from tests.examples import examples
from tests.state.bucket import Bucket
from tests.state.streams import AT, deliveries, frame, run, us

ROWS = {"who": pl.String(), "n": pl.Int64(), "at": AT}
STATE = {"who": pl.String(), "total": pl.Int64(), "quiet_at": AT}
OUTPUT = {"who": pl.String(), "total": pl.Int64(), "at": AT}
SECOND = dt.timedelta(seconds=1)


def silent(state, rows, watermark):
    """The total of each key once nothing came for 5 seconds."""
    both = pl.concat([state, rows.select("who", total="n", quiet_at=pl.col("at") + 5 * SECOND)])
    summed = both.group_by("who").agg(pl.col("total").sum(), pl.col("quiet_at").max())
    over = pl.col("quiet_at") <= watermark
    return summed.filter(~over), summed.filter(over).rename({"quiet_at": "at"})


def own(function=silent, wake="quiet_at", event_time="at"):
    return Own("silent", function, ("who",), STATE, OUTPUT, wake, {"rows": Input(("who",), "at")}, False, event_time)


@examples(30)
@given(st.lists(st.tuples(st.sampled_from(["a", None]), st.integers(0, 9), st.integers(0, 40)), max_size=12), st.data())
def test_a_key_is_touched_by_rows_and_by_the_time_it_asked_for(rows, data):
    bucket = Bucket(own())
    out = run(bucket, data.draw(deliveries({"rows": rows})), ROWS, "at")
    assert bucket.rows("state").is_empty()
    assert sum(total for _, total, _ in out) == sum(n for _, n, _ in rows)
    for key in {who for who, _, _ in rows}:
        last = max(at for who, _, at in rows if who == key)
        assert max(at for who, _, at in out if who == key) == last + 5


def test_only_the_state_of_touched_keys_is_given_and_replaced():
    given_states = []

    def counting(state, rows, watermark):
        given_states.append(sorted(state["who"].to_list()))
        new = rows.group_by("who").agg(total=pl.col("n").sum()).with_columns(quiet_at=None)
        return new, new.drop("quiet_at").with_columns(at=watermark)

    bucket = Bucket(own(counting, None, None))
    for who in ("ab", "b", "c", ""):
        bucket.step({"rows": frame([(one, 1, 1) for one in who], ROWS)}, us(0))
    assert given_states == [[], ["b"], []]
    assert sorted(bucket.rows("state")["who"].to_list()) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"by": "whom"}, "no column 'whom'.*did you mean 'who'"),
        ({"by": ()}, "has no key"),
        ({"state": "who strung"}, "'strung' is not a type"),
        ({"wake": "total"}, "wake of the operator, 'total', is double"),
    ],
)
def test_a_mistake_in_a_declaration_is_told_with_its_line(more, says):
    said = {"by": "who", "state": "who string, total double", "output": "who string", **more}
    with pytest.raises(InvalidDeclaration, match=says) as caught:
        hr.operator(**said)
    assert caught.value.detail.startswith(f"{__file__}, line ")


def returning(result):
    return own(lambda state, rows, watermark: result)


GOOD = frame([], STATE), frame([], OUTPUT)


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (None, "returns NoneType"),
        ((GOOD[0], 5), "returns int as its output"),
        ((GOOD[0].drop("total"), GOOD[1]), "returns state without total"),
        ((frame([("z", 1, 1)], STATE), GOOD[1]), "state of keys that it was not called for"),
        ((GOOD[0], pl.DataFrame({"who": ["x"], "total": ["many"], "at": [None]})), "output of other types"),
    ],
)
def test_a_result_that_cannot_be_used_is_an_error_that_names_the_operator(result, says):
    with pytest.raises(WrongResult, match=f"operator 'silent' .*{re.escape(says)}"):
        Bucket(returning(result)).step({"rows": frame([("a", 1, 1)], ROWS)}, us(0))


def unpaid(state, rows, watermark):
    """Orders that are not paid 5 seconds after they came. A payment of nobody is dead."""
    orders = rows["orders"].select("who", total="n", quiet_at=pl.col("at") + 5 * SECOND)
    paid = rows["payments"].filter(pl.col("payer").is_not_null())
    nobodys = rows["payments"].filter(pl.col("payer").is_null()).with_columns(_reason=pl.lit("nobody"))
    left = pl.concat([state, orders])
    open_ = left.join(paid.select(who="payer", paid_at="at"), on="who", how="left", nulls_equal=True)
    is_paid = (pl.col("paid_at") < pl.col("quiet_at")).fill_null(value=False)
    waiting = open_.group_by("who", "total", "quiet_at").agg(is_paid.any().alias("paid")).filter(~pl.col("paid"))
    over = pl.col("quiet_at") <= watermark
    out = waiting.filter(over).select("who", "total", at="quiet_at")
    return waiting.filter(~over).drop("paid"), out, nobodys


PAYMENTS = {"payer": pl.String(), "at": AT}
KEYS = st.sampled_from(["a", "b", None])


@examples(30)
@given(
    st.lists(st.tuples(KEYS, st.integers(0, 40)), max_size=10),
    st.lists(st.tuples(KEYS, st.integers(0, 40)), max_size=10),
    st.data(),
)
def test_several_inputs_come_by_their_tags_and_rows_that_are_given_back_are_dead(orders, payments, data):
    inputs = {"orders": Input(("who",), "at"), "payments": Input(("payer",), "at")}
    operator = Own("unpaid", unpaid, ("who",), STATE, OUTPUT, "quiet_at", inputs, True, "at")
    bucket = Bucket(operator)
    numbered = [(who, n, at) for n, (who, at) in enumerate(orders)]
    batches = data.draw(deliveries({"orders": numbered, "payments": payments}))
    out = run(bucket, batches, {"orders": ROWS, "payments": PAYMENTS}, "at")
    assert {n for _, n, _ in out} >= {n for who, n, _ in numbered if who not in [payer for payer, _ in payments]}
    assert all(at == numbered[n][2] + 5 for _, n, at in out)
    letters = pl.concat(bucket.dead).select("reason", "detail").rows() if bucket.dead else []
    assert letters == [("nobody", "by operator 'unpaid'")] * sum(payer is None for payer, _ in payments)
    assert bucket.rows("state").is_empty()


def at_time(state_at: int | None, out_at: int | None):
    """Keeps a key until a time, and lets out a row of a time."""
    kept = frame([("a", 1, state_at or 0)], STATE)
    kept = kept.with_columns(quiet_at=None).cast(kept.schema) if state_at is None else kept
    out = frame([("a", 1, out_at or 0)], OUTPUT)
    return returning((kept, out.with_columns(at=None).cast(out.schema) if out_at is None else out))


@pytest.mark.parametrize(
    ("state_at", "out_at", "says"),
    [
        (None, 4, "returns output of 1970-01-01 00:00:04+00:00, before all that it was called for"),
        (None, None, "returns output without at, its event time"),
        (7, 5, "keeps state whose quiet_at the watermark has reached"),
    ],
)
def test_what_would_be_late_for_a_further_step_is_an_error(state_at, out_at, says):
    with pytest.raises(WrongResult, match=f"operator 'silent' {re.escape(says)}"):
        Bucket(at_time(state_at, out_at)).step({"rows": frame([("a", 1, 5)], ROWS)}, us(7))
    assert len(Bucket(at_time(8, 5)).step({"rows": frame([("a", 1, 5)], ROWS)}, us(7))) == 1


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"event_time": "whom"}, "event_time of the operator: there is no column 'whom'"),
        ({"event_time": "who"}, "event_time of the operator, 'who', is string"),
        ({"inputs": {"left": "who", "right": ("a", "b")}}, "input 'right' of the operator is by a, b, but the state"),
    ],
)
def test_a_mistake_in_inputs_or_event_time_is_told(more, says):
    with pytest.raises(InvalidDeclaration, match=says):
        hr.operator(by="who", state="who string", output="who string", **more)


def test_an_operator_of_several_inputs_is_called_with_all_of_them_by_name():
    two = hr.operator(by="who", state="who string", output="who string", inputs={"left": "who", "right": "whom"})
    with pytest.raises(InvalidDeclaration, match="not called with its inputs") as caught:
        two(unpaid)(object())
    assert caught.value.hint == "write unpaid(left=..., right=...)"
