"""MATCH_RECOGNIZE is read as the same patterns: NEXMark's CEP suite, written both ways, against a plain loop."""

from __future__ import annotations

import random
from typing import Any

import polars as pl
import pytest

from headrace.errors import InvalidDeclaration, TooManyPartialMatches
from headrace.pipelines.patterns import Pattern, compile_pattern, pattern, recognize
from headrace.pipelines.patterns.match import Matching
from tests.patterns.keeping import second, us
from tests.state.bucket import Bucket

BIDS = pl.Schema(
    {"auction": pl.Int64(), "bidder": pl.Int64(), "price": pl.Int64(), "dateTime": pl.Datetime("us", "UTC")}
)
COMMON = {"by": ("auction", "bidder"), "time": "dateTime"}
DOWN = "(last(DOWN.price, 1) is null and DOWN.price < START.price) or DOWN.price < last(DOWN.price, 1)"
WRITTEN = {
    "c0": pattern(
        **COMMON,
        pattern="START DOWN+ UP",
        define={"DOWN": DOWN, "UP": "UP.price > last(DOWN.price)"},
        measures={"low": "last(DOWN.price)", "high": "UP.price"},
        after="to last UP",
    ),
    "c1": pattern(
        **COMMON,
        pattern="A+ B",
        define={"A": "avg(A.price) < 10000"},
        measures={"mean": "avg(A.price)"},
    ),
    "c2": pattern(
        **COMMON,
        pattern="A+ B",
        define={"A": "avg(A.price) < 10000"},
        measures={"mean": "avg(A.price)"},
        after="to next row",
    ),
    "c3": pattern(
        **COMMON,
        pattern="A B* C",
        define={"B": "B.price > A.price - 50", "C": "C.price < A.price - 50"},
        measures={"fall": "A.price - C.price"},
        within="5 seconds",
    ),
}
SQL = {
    "c0": f"""SELECT * FROM bid MATCH_RECOGNIZE (
        PARTITION BY auction, bidder ORDER BY dateTime
        MEASURES LAST(DOWN.price) AS low, UP.price AS high
        ONE ROW PER MATCH AFTER MATCH SKIP TO LAST UP
        PATTERN (START DOWN+ UP)
        DEFINE DOWN AS {DOWN}, UP AS UP.price > LAST(DOWN.price)
    ) AS T""",
    "c1": """SELECT auction, bidder, mean FROM bid MATCH_RECOGNIZE (
        PARTITION BY auction, bidder ORDER BY dateTime
        MEASURES AVG(A.price) AS mean
        ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
        PATTERN (A+ B) DEFINE A AS AVG(A.price) < 10000
    )""",
    "c2": """MATCH_RECOGNIZE (
        PARTITION BY auction, bidder ORDER BY dateTime
        MEASURES FINAL AVG(A.price) AS mean
        AFTER MATCH SKIP TO NEXT ROW
        PATTERN (A+ B) DEFINE A AS AVG(A.price) < 10000
    )""",
    "c3": """SELECT * FROM bid MATCH_RECOGNIZE (
        PARTITION BY auction, bidder ORDER BY dateTime -- event time
        MEASURES A.price - C.price AS fall
        PATTERN (A B* C) WITHIN INTERVAL '5' SECOND
        DEFINE B AS B.price > A.price - 50, C AS C.price < A.price - 50
    ) T""",
}
Bid = tuple[int, int, int, float]


def bids(seed: int) -> list[Bid]:
    chance = random.Random(seed)
    return [
        (
            chance.randrange(2),
            chance.randrange(2),
            chance.choice([10, 50, 60, 120, 9000, 25000, 60000]),
            at + chance.random(),
        )
        for at in range(120)
    ]


def found(declared: Pattern, rows: list[Bid]) -> list[tuple[Any, ...]]:
    one = Bucket(Matching(compile_pattern(declared, BIDS), BIDS, False))
    out: list[pl.DataFrame | None] = []
    for start in range(0, len(rows), 17):
        part = [(*row[:3], second(row[3])) for row in rows[start : start + 17]]
        until = us(rows[start][3]) - 1
        out.append(one.step({"rows": pl.DataFrame(part, schema=BIDS, orient="row")}, until))
    out.append(one.step({"rows": pl.DataFrame(schema=BIDS)}, us(1000)))
    told = pl.concat([part for part in out if part is not None])
    columns = [name for name in told.columns if name not in ("match_start", "match_end")]
    return sorted(told.select(columns).rows())


def by_key(rows: list[Bid]) -> dict[tuple[int, int], list[tuple[int, float]]]:
    keys: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for auction, bidder, price, at in sorted(rows, key=lambda row: row[3]):
        keys.setdefault((auction, bidder), []).append((price, at))
    return keys


def falls_and_rises(rows: list[tuple[int, float]]) -> list[tuple[Any, ...]]:
    told, start = [], 0
    while start < len(rows):
        at = start + 1
        while at < len(rows) and rows[at][0] < rows[at - 1][0]:
            at += 1
        if at == len(rows):
            break
        if at > start + 1 and rows[at][0] > rows[at - 1][0]:
            told.append((rows[at - 1][0], rows[at][0]))
            start = at
        else:
            start += 1
    return told


def low_means(rows: list[tuple[int, float]], step_over: bool) -> list[tuple[Any, ...]]:
    told, start = [], 0
    while start < len(rows):
        at = start
        while at < len(rows) and sum(price for price, _ in rows[start : at + 1]) / (at + 1 - start) < 10000:
            at += 1
        if at == len(rows):
            if step_over:
                break
        elif at > start:
            told.append((sum(price for price, _ in rows[start:at]) / (at - start),))
            start = at if step_over else start
        start += 1
    return told


def drops(rows: list[tuple[int, float]]) -> list[tuple[Any, ...]]:
    told, start = [], 0
    while start < len(rows):
        price, begin = rows[start]
        for at in range(start + 1, len(rows)):
            if us(rows[at][1]) - us(begin) > 5_000_000:
                break
            if rows[at][0] < price - 50:
                told.append((price - rows[at][0],))
                start = at
                break
            if not rows[at][0] > price - 50:
                break
        start += 1
    return told


PLAIN = {
    "c0": falls_and_rises,
    "c1": lambda rows: low_means(rows, True),
    "c2": lambda rows: low_means(rows, False),
    "c3": drops,
}


@pytest.mark.parametrize("name", ["c0", "c1", "c2", "c3"])
def test_the_cep_suite_is_found_alike_by_both_ways_and_a_plain_loop(name: str) -> None:
    for seed in range(4):
        rows = bids(seed)
        expected = sorted((*key, *told) for key, own in by_key(rows).items() for told in PLAIN[name](own))
        assert expected
        assert found(WRITTEN[name], rows) == expected
        assert found(recognize(SQL[name]).pattern, rows) == expected


def test_the_stream_and_the_columns_are_read_too() -> None:
    read = recognize(SQL["c1"].replace("mean FROM", "T.mean AS m FROM"))
    assert read.source == "bid"
    assert read.columns == (("auction", "auction"), ("bidder", "bidder"), ("mean", "m"))
    assert recognize(SQL["c0"]).columns is None


def test_what_sql_has_no_words_for_is_said_beside_it() -> None:
    said = {"timeouts": True, "partials": True, "rows": True, "max_partials": 7}
    read = recognize(SQL["c3"], **said).pattern
    assert {name: getattr(read, name) for name in said} == said
    with pytest.raises(InvalidDeclaration, match="time-outs need a time"):
        recognize(SQL["c0"], timeouts=True)
    with pytest.raises(InvalidDeclaration, match="max_partials must be at least 1"):
        recognize(SQL["c0"], max_partials=0)


def test_too_many_partial_matches_are_cured_as_the_hint_says() -> None:
    rows = [(1, 1, 1, at) for at in range(5)] + [(1, 1, -1, 5)]
    sql = """MATCH_RECOGNIZE (PARTITION BY auction ORDER BY dateTime PATTERN ((A | B)+ C) WITHIN INTERVAL '9' SECOND
        DEFINE A AS sum(B.price) >= 0 or price > 0, C AS price < 0)"""
    with pytest.raises(TooManyPartialMatches) as caught:
        found(recognize(sql, max_partials=8).pattern, rows)
    assert "raise max_partials" in str(caught.value.hint)
    assert found(recognize(sql, max_partials=1000).pattern, rows) == [(1,)]


@pytest.mark.parametrize(
    ("sql", "sentence", "hint"),
    [
        ("MATCH_RECOGNIZE (PATTERN (A B))", "ORDER BY is missing before 'PATTERN', at character 18", "write ORDER BY"),
        ("MATCH_RECOGNIZE (ORDER BY t ALL ROWS PER MATCH PATTERN (A))", "ALL ROWS PER MATCH is not", "rows=True"),
        ("MATCH_RECOGNIZE (ORDER BY t DESC PATTERN (A))", "ascending order, at character 29", "remove DESC"),
        (
            "MATCH_RECOGNIZE (ORDER BY t PATTERN (A) DEFINE A AS x >)",
            "a value is missing before '\\)'",
            "write a column",
        ),
        ("SELECT * FROM b MATCH_RECOGNIZE (ORDER BY t PATTERN (A)) WHERE x", "'x' is not expected", "remove it"),
        ("MATCH_RECOGNIZE (ORDER BY t PATTERN (A) WITHIN INTERVAL '5' APPLES)", "is no length of time", "'5' minute"),
    ],
)
def test_a_mistake_in_sql_is_named_with_its_place_and_remedy(sql: str, sentence: str, hint: str) -> None:
    with pytest.raises(InvalidDeclaration, match=sentence) as caught:
        recognize(sql)
    assert caught.value.hint is not None
    assert hint in caught.value.hint
    assert "test_recognize.py, line" in str(caught.value.detail)
