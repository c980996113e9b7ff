"""Mistakes in patterns, conditions and measures are errors that say where they are and what to do."""

from __future__ import annotations

import re

import polars as pl
import pytest

from headrace.errors import InvalidDeclaration
from headrace.pipelines.patterns import compile_pattern, pattern
from tests.patterns.keeping import COLUMNS, bucket, rows, steps


def declared(text: str, **more: object) -> None:
    columns = {**COLUMNS, "exact": pl.Decimal(18, 2)}
    compile_pattern(pattern(by="key", time="at", pattern=text, **more), columns)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "sentence", "hint"),
    [
        ("", "a variable is missing before the end, at character 1", "write the name of a variable"),
        ("A (B", "'\\)' is missing to close the group, before the end, at character 5", "write ')'"),
        ("A B)", "'\\)' is not expected, at character 4", "remove it"),
        ("A{2", "'}' is missing to close the quantifier", "write '}'"),
        ("A{4,2}", "fits nothing, at character 2", "smaller number first"),
        ("A{x}", "a whole number is missing before 'x', at character 3", "write {2}"),
        ("A*", "fits no rows at all", "A+ in place of A*"),
        ("!A B", "nothing before this, at character 1", "begin with a variable"),
        ("A ->>", "has nothing after it", "write what follows"),
        ("(A !B) C", "an absence \\(!\\) in a group", "end of the whole pattern"),
        ("A !B", "its end is known only when a time runs out", "within="),
        ("A ->> B?", "its end is known only when a time runs out", "within="),
        ("^A B", "no first and no last row, at character 1", "remove"),
        ("A ~ B", "'~' is not expected, at character 3", "remove it"),
        ("PERMUTE(A, B", "'\\)' is missing to close PERMUTE", "write ')'"),
        ("A B a", "but for their case", "different names"),
        ("(A{1000}){1000}", "more than 20000 steps", "aggregate"),
        ("A{99999}", "too often, at character 2", "aggregate"),
    ],
)
def test_a_mistake_in_a_pattern_is_named_with_its_place_and_remedy(text: str, sentence: str, hint: str) -> None:
    with pytest.raises(InvalidDeclaration, match=sentence) as caught:
        declared(text)
    assert hint in str(caught.value.hint)
    assert "test_language.py, line" in str(caught.value.detail)


@pytest.mark.parametrize(
    ("condition", "sentence", "hint"),
    [
        ("prise > 1", "define A 'prise > 1': there is no column 'prise', at character 1", "columns are key, at, kind"),
        ("X.price > 1", "there is no variable 'X' in the pattern, at character 1", "variables are A, B"),
        ("price > 'a'", "int and text cannot be compared, at character 7", "cast"),
        ("price", "of type int, and not bool, at character 1", "price > 10"),
        ("price +", "a value is missing before the end, at character 8", "write a column"),
        ("price > 1 and", "a value is missing before the end, at character 14", "write a column"),
        ("kind + 1 > 2", "text \\+ int has no meaning, at character 6", "use numbers"),
        ("median(price) > 1", "no function 'median', at character 1", "first, last"),
        ("sum(kind) > 1", "sum needs numbers, not text", "count, min or max"),
        ("sum(A.price + B.price) > 1", "over the rows of one variable", "one aggregate for each"),
        ("sum(last(price)) > 1", "last cannot be inside an aggregate", "take it out"),
        ("last(price + 1) > 1", "last takes a column", "last(price)"),
        ("prev(price, 'x') > 1", "from 0 to 1000", "prev(price"),
        ("first(price, 2) > 1", "first takes no number of rows", "variable of its own"),
        ("match_number() > 1", "is for measures", "remove it"),
        ("kind like price", "LIKE takes a text", "single quotes"),
        ("price in ()", "IN has no values", "at least one"),
        ("price in (1, 'a')", "int is never text", "type int"),
        ("at > 'yesterday'", "'yesterday' is no timestamp", "2026-01-31"),
        ("cast(price as blob) > 1", "cast to 'blob' is not supported", "double"),
        ("price > 99999999999999999999", "too large for a whole number", "decimal point"),
        ("kind = 'open", '"\'" is not expected, at character 8', "close the quotes"),
        ("upper(kind) = 'X'", "no function 'upper', at character 1", "a column computed before"),
        ("case when price > 1 then true end", "CASE is not known here, at character 1", "a column computed before"),
        ("price > 1 and case kind when 'x' then 1 end = 1", "CASE is not known here, at character 15", "coalesce"),
        ("count(*) > 1 price", "'price' is not expected", "remove it"),
    ],
)
def test_a_mistake_in_a_condition_is_named_with_its_place_and_remedy(condition: str, sentence: str, hint: str) -> None:
    with pytest.raises(InvalidDeclaration, match=sentence) as caught:
        declared("A B", define={"A": condition})
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"define": {"X": "price > 1"}}, "no variable 'X' in the pattern"),
        ({"after": "to last X"}, "no variable 'X' in the pattern"),
        ({"after": "somewhere"}, "after 'somewhere' is not known"),
        ({"contiguity": "loose"}, "contiguity 'loose' is not known"),
        ({"within": "soon"}, "within 'soon'"),
        ({"within": "0 seconds"}, "no time at all"),
        ({"timeouts": True}, "time-outs need a time"),
        ({"measures": {"key": "sum(price)"}}, "the result has that column already"),
        ({"measures": {"x": "prev(price)"}}, "prev is for conditions"),
        ({"measures": {"x": "null"}}, "always null"),
        ({"max_partials": 0}, "at least 1"),
        (
            {"measures": {"x": "sum(exact)"}},
            "measure x 'sum\\(exact\\)': what is computed from decimals would be rounded",
        ),
        ({"measures": {"x": "A.exact * 2"}}, "would be rounded, at character 9"),
        ({"measures": {"x": "coalesce(A.exact, 0)"}}, "would be rounded, at character 1"),
        ({"measures": {"x": "avg(exact) / 2"}}, "would be rounded"),
    ],
)
def test_a_declaration_whose_parts_do_not_fit_is_refused(more: dict[str, object], sentence: str) -> None:
    with pytest.raises(InvalidDeclaration, match=sentence):
        declared("A B", **more)


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("A B", "price < B.price"),
        ("A B", "kind = 'x' and (price < B.price or sum(b.price) > 1)"),
        ("A+ B*", "not price < last(B.price, 2)"),
        ("A (B | C)", "coalesce(B.price, C.price + 1) > 0"),
        ("A{2,} !C B", "abs(cast(max(B.price) as double)) in (1, 2)"),
        ("(C A) | (C B)", "first(B.kind) like 'x%'"),
        ("C !A B", "B.price > price"),
        ("C !B A", "B.price > price"),
    ],
)
def test_a_condition_on_what_can_only_come_later_is_refused(text: str, condition: str) -> None:
    sentence = f"define A .*: no B can come before A in '{re.escape(text)}', so this is never true, at character"
    with pytest.raises(InvalidDeclaration, match=sentence) as caught:
        declared(text, define={"A": condition})
    assert "if B comes later, say it there: A." in str(caught.value.hint)


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("(A B)+", "price < B.price"),
        ("(A | B)+", "price < B.price"),
        ("PERMUTE(A, B)", "price < B.price"),
        ("(C A) | (B A)", "price < B.price"),
        ("C (B | D)? A", "price < B.price"),
        ("B C !A", "price < B.price"),
        ("A B", "B.price is null"),
        ("A B", "count(B.*) = 0 or price < B.price"),
        ("A B", "coalesce(B.price, price) > 0"),
        ("A B", "price < A.price or prev(price) > 0"),
    ],
)
def test_a_condition_that_may_hold_in_some_way_is_not_refused(text: str, condition: str) -> None:
    declared(text, define={"A": condition}, within="1 minute")


@pytest.mark.parametrize(
    ("condition", "fits"),
    [
        ("price between 2 and 3", [2, 3]),
        ("price not between 2 and 3", [1, 4, 0]),
        ("price not in (1, 2, null)", []),
        ("price in (1, null)", [1]),
        ("price is null", [None]),
        ("price is not null and not price > 1", [1, 0]),
        ("price % 2 = 1", [1, 3]),
        ("-price < -3 or price * 2 = 2", [1, 4]),
        ("price / 2 = 0.5", [1]),
        ("coalesce(price, 7) > 3", [4, None]),
        ("abs(price - 3) <= 1", [2, 3, 4]),
        ("kind like '_3%' or kind like 'p4'", [3, 4]),
        ("kind not like 'p%'", []),
        ("cast(share as int) = 1", [2, 3]),
        ("cast('3' as bigint) = price", [3]),
        ("share >= 1.5", [3, 4]),
        ("at >= '2026-01-01 00:00:04' and price > 0", [4]),
        ("at - timestamp '2026-01-01T00:00:00Z' < interval '3 seconds' and price > 0", [1, 2]),
        ("at + interval '1' second = timestamp '2026-01-01 00:00:03'", [2]),
        ('PRICE = 1 AND `key` = "key"', [1]),
        ("true", [1, 2, 3, 4, 0, None]),
        ("price = 1 or price / 0 > 1", None),
    ],
)
def test_conditions_mean_what_they_mean_in_sql(condition: str, fits: list[int | None] | None) -> None:
    values = [1, 2, 3, 4, 0, None]
    new = rows(
        *(("k", at + 1, f"p{value}", value, None if value is None else value / 2) for at, value in enumerate(values))
    )
    one = bucket(pattern(by="key", time="at", pattern="A", define={"A": condition}, measures={"p": "A.price"}))
    found = [row["p"] for row in steps(one, [(new, 99)])]
    if fits is None:
        assert found == [1]
        assert sum(map(len, one.dead)) == 4
    else:
        assert found == fits
        assert one.dead == []
