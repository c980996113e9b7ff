"""Which build of a query a run goes on with, and what counts as a change."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

import pytest

from headrace.errors import HeadraceError, TooManyPartialMatches
from headrace.pipelines.declarations import Kind, Query
from headrace.pipelines.fingerprint import fingerprint
from headrace.pipelines.generations import ChangedQuery, Generation, choose, generations_of
from headrace.pipelines.marks import Mark, mark_key
from headrace.pipelines.places import Place
from headrace.pipelines.running import reason
from headrace.pipelines.state.chunks import DamagedChunk
from headrace.pipelines.state.keyed_state import WrongSeed
from headrace.pipelines.state.own import WrongResult

HERE = Place(__file__, 1)
RATE = 2


def helper(frame: Any) -> Any:
    return frame.where(RATE)


def view(orders: Any) -> Any:
    return helper(orders)


def query(function: Callable[..., Any] | None = None, sql: str | None = None) -> Query:
    return Query("shop", "revenue", Kind.VIEW, ("orders",), HERE, ("k",), function=function, sql=sql)


def marks(*numbers: int, said: str = "same") -> dict[str, bytes]:
    found = {}
    for number in numbers:
        generation = Generation(query(), number, said)
        found[mark_key(generation.id)] = Mark(1, "run", 7, "entry", number, said).value()
    found[mark_key("shop.revenue_2")] = Mark(1, "run", 7, "entry", 1, said).value()
    return found


def test_marks_are_found_by_the_name_of_the_query() -> None:
    assert sorted(generations_of(query(), marks(1, 3))) == [1, 3]


def test_a_query_that_was_never_built_is_generation_one() -> None:
    found = choose(query(), "same", {}, {}, rebuild=False)
    assert (found.number, found.id, found.topic, found.is_new) == (1, "shop.revenue", "shop.revenue", True)


def test_an_unchanged_query_goes_on_with_the_latest_of_its_builds() -> None:
    built = generations_of(query(), marks(1, 2))
    found = choose(query(), "same", built, built, rebuild=True)
    assert (found.number, found.id, found.topic, found.is_new) == (2, "shop.revenue.g2", "shop.revenue.g2", False)


def test_a_changed_query_is_refused_or_becomes_the_next_generation() -> None:
    built = generations_of(query(), marks(1, 2))
    with pytest.raises(ChangedQuery, match="--rebuild"):
        choose(query(), "other", built, built, rebuild=False)
    assert choose(query(), "other", built, built, rebuild=True).number == 3


def test_what_takes_the_place_of_a_query_that_never_wrote_needs_no_rebuild() -> None:
    built = generations_of(query(), marks(1, 2))
    assert choose(query(), "other", built, {}, rebuild=False) == Generation(query(), 1, "other", is_new=True)
    assert choose(query(), "same", built, {}, rebuild=False).number == 2


def test_a_derived_stream_has_a_topic_of_its_own_name() -> None:
    derived = replace(query(), kind=Kind.DERIVE)
    assert (Generation(derived, 1, "").topic, Generation(derived, 2, "").topic) == ("revenue", "revenue.g2")


def test_comments_and_layout_are_no_change_and_code_is() -> None:
    def view(orders: Any) -> Any:
        """Says something."""
        # and something else
        return helper(
            orders,
        )

    same = fingerprint(query(globals()["view"]), ["orders a int"])
    assert fingerprint(query(view), ["orders a int"]) == same
    assert fingerprint(query(view), ["orders a string"]) != same
    assert fingerprint(replace(query(view), key=("l",)), ["orders a int"]) != same
    assert fingerprint(query(lambda orders: orders), ["orders a int"]) != same
    assert fingerprint(query(sql="SELECT  1"), []) == fingerprint(query(sql="SELECT 1"), [])


def test_a_change_of_what_a_function_uses_is_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(query(view), [])
    monkeypatch.setitem(globals(), "RATE", 3)
    assert fingerprint(query(view), []) != before


def test_a_change_of_a_udf_is_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    def udf(function: Callable[..., Any]) -> Callable[..., Any]:
        return wraps(function)(lambda *_: None)  # as Spark has it

    found = set()
    for function in (lambda amount: amount, lambda amount: 2 * amount):
        monkeypatch.setitem(globals(), "helper", udf(function))
        found.add(fingerprint(query(view), []))
    assert len(found) == 2


def test_the_reason_of_a_failure_is_one_line() -> None:
    text = (
        'Aborted: Traceback (most recent call last):\n  File "x.py", line 3, in f\nValueError: no such coin\n\n at a.b'
    )
    assert reason(RuntimeError(text)) == "ValueError: no such coin"
    assert reason(RuntimeError("[BAD] it is bad. SQLSTATE: 42000\nmore")) == "[BAD] it is bad."
    assert reason(HeadraceError("a.", hint="b")) == "a. Hint: b"
    assert reason(ValueError()) == "ValueError"
    assert reason(RuntimeError("An error occurred while calling o1.stop.\n: a.TimeoutException: 5 s\n\tat a.b")) == (
        "a.TimeoutException: 5 s"
    )


@pytest.mark.parametrize("kind", [DamagedChunk, TooManyPartialMatches, WrongResult, WrongSeed])
def test_what_operators_raise_in_workers_is_told_whole(kind: type[HeadraceError]) -> None:
    try:
        try:
            raise ValueError("the cause")
        except ValueError as cause:
            raise kind("it is so.", detail="that much", hint="do this") from cause
    except HeadraceError as error:
        text = "[STREAM_FAILED] Query ended: PythonException: " + "".join(traceback.format_exception(error))
    assert reason(RuntimeError(f"{text}\n\tat a.b")) == f"{kind.__name__}: it is so. Detail: that much Hint: do this"
