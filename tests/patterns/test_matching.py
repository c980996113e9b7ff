"""The operator against the model: any patterns, conditions, rows, disorder and steps; lost caches, repeated steps."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidDeclaration
from headrace.pipelines.patterns import compile_pattern, pattern
from headrace.pipelines.patterns.match import OUTCOME, Matching
from tests.examples import examples
from tests.patterns.model import Condition, FailedError, Model, Shape, Taken, text
from tests.state.bucket import Bucket

SCHEMA = pl.Schema({"id": pl.Int64(), "key": pl.String(), "time": pl.Datetime("us"), "v": pl.Int64()})
NAMES = ("A", "B", "C")
Steps = list[tuple[list[dict[str, Any]], int, str]]
"""Rows, the watermark after them, and what befalls the workers."""
END = 40
"""A time after everything."""
MEASURES = {
    "total": "sum(v)",
    "mean": "avg(A.v)",
    "lowest": "min(v)",
    "highest": "max(B.v)",
    "rows": "count(*)",
    "bs": "count(B.v)",
    "last_a": "A.v",
    "second": "last(v, 1)",
    "begin": "first(B.id)",
    "kind": "classifier()",
    "took": "last(time) - first(time)",
    "number": "match_number()",
}


def values(rows: list[dict[str, Any]], taken: Taken, name: str | None = None) -> list[Any]:
    return [rows[number]["v"] for variable, number in taken if name in (None, variable)]


def is_true(test: Callable[[Any, Any], bool], left: Any, right: Any) -> bool:
    return left is not None and right is not None and test(left, right)


def known(found: list[Any]) -> list[Any]:
    return [value for value in found if value is not None]


LOCAL: list[tuple[str, Condition]] = [
    ("v < 2", lambda rows, n, _: is_true(int.__lt__, rows[n]["v"], 2)),
    ("v >= 1", lambda rows, n, _: is_true(int.__ge__, rows[n]["v"], 1)),
    ("v <> 1", lambda rows, n, _: is_true(int.__ne__, rows[n]["v"], 1)),
    ("v is null or v in (0, 2)", lambda rows, n, _: rows[n]["v"] in (None, 0, 2)),
    ("not (v between 1 and 2)", lambda rows, n, _: rows[n]["v"] is not None and not 1 <= rows[n]["v"] <= 2),
]
LOOKING_BACK: list[tuple[str, Condition]] = [
    ("v > prev(v)", lambda rows, n, _: n > 0 and is_true(int.__gt__, rows[n]["v"], rows[n - 1]["v"])),
    (
        "v = prev(v, 2) or v = 0",
        lambda rows, n, _: rows[n]["v"] == 0 or (n > 1 and is_true(int.__eq__, rows[n]["v"], rows[n - 2]["v"])),
    ),
]
HISTORY: list[tuple[str, Condition]] = [
    ("v >= first(v)", lambda rows, n, taken: is_true(int.__ge__, rows[n]["v"], values(rows, taken)[0])),
    ("sum(v) < 4", lambda rows, _, taken: sum(known(values(rows, taken))) < 4 and bool(known(values(rows, taken)))),
    ("count(A.*) < 3 and v >= 1", lambda rows, n, t: len(values(rows, t, "A")) < 3 and (rows[n]["v"] or 0) >= 1),
    (
        "avg(A.v) <= 1.5",
        lambda rows, _, t: (
            bool(known(values(rows, t, "A")))
            and sum(known(values(rows, t, "A"))) <= 1.5 * len(known(values(rows, t, "A")))
        ),
    ),
    (
        "last(B.v, 1) is null or v <> last(B.v)",
        lambda rows, n, t: (
            (values(rows, t, "B")[-2:-1] or [None])[0] is None
            or is_true(int.__ne__, rows[n]["v"], (values(rows, t, "B")[-1:] or [None])[0])
        ),
    ),
    (
        "v < max(v) or count(*) < 3",
        lambda rows, n, t: is_true(int.__lt__, rows[n]["v"], max(known(values(rows, t)), default=None)) or len(t) < 3,
    ),
    (
        "first(A.v) is null or v <= A.v",
        lambda rows, n, t: (
            (values(rows, t, "A")[:1] or [None])[0] is None
            or is_true(int.__le__, rows[n]["v"], values(rows, t, "A")[-1])
        ),
    ),
]


def ratio(left: Any, right: Any) -> float | None:
    if left is None or right is None:
        return None
    if right == 0:
        raise FailedError
    return float(left / right)


ALONE, SUMMED = "6 / v >= 3", "sum(2 / A.v) >= 1 or count(*) > 2"
FAILING: list[tuple[str, Condition]] = [
    (ALONE, lambda rows, n, _: is_true(float.__ge__, ratio(6, rows[n]["v"]), 3.0)),
    (
        SUMMED,
        lambda rows, _, t: sum(known([ratio(2, v) for v in values(rows, t, "A")])) >= 1 or len(t) > 2,
    ),
    (
        "v / prev(v) >= 1",
        lambda rows, n, _: n > 0 and is_true(float.__ge__, ratio(rows[n]["v"], rows[n - 1]["v"]), 1.0),
    ),
    (
        "v / first(v) < 2",
        lambda rows, n, t: is_true(float.__lt__, ratio(rows[n]["v"], values(rows, t)[0]), 2.0),
    ),
    (
        "first(A.v) / v >= 1",
        lambda rows, n, t: is_true(float.__ge__, ratio((values(rows, t, "A") or [None])[0], rows[n]["v"]), 1.0),
    ),
    (
        "v > 1 or 1 / last(B.v, 1) < 1",
        lambda rows, n, t: (
            is_true(int.__gt__, rows[n]["v"], 1)
            or is_true(float.__lt__, ratio(1, (values(rows, t, "B")[-2:-1] or [None])[0]), 1.0)
        ),
    ),
]


@dataclass(frozen=True)
class Case:
    shape: Shape
    define: dict[str, tuple[str, Condition]]
    within: int | None
    relaxed: bool
    after: str
    partials: bool

    def fails_alone(self, row: dict[str, Any]) -> bool:
        """Whether a condition that looks at nothing else fails on a row."""
        return row["v"] == 0 and any(text == ALONE for text, _ in self.define.values())

    def aggregated(self, name: str, row: dict[str, Any]) -> bool:
        return name != "A" or row["v"] != 0 or all(text != SUMMED for text, _ in self.define.values())


TAKES = st.sampled_from([("take", name) for name in NAMES])
GAPS = st.sampled_from([None, None, None, ("gap",), *(("gap", name) for name in NAMES)])
OFTEN = [(1, None), (1, None), (2, None), (1, 2), (2, 2), (1, 3)]
PERHAPS = [(0, None), (0, 1), (0, 2), *OFTEN]


def repeated(part: st.SearchStrategy[Shape], bounds: list[tuple[int, int | None]]) -> st.SearchStrategy[Shape]:
    return st.builds(lambda p, b, g: ("many", p, *b, g), part, st.sampled_from(bounds), st.booleans())


def in_a_row(first: st.SearchStrategy[Shape], others: st.SearchStrategy[Shape]) -> st.SearchStrategy[Shape]:
    together = st.tuples(first, st.lists(st.tuples(GAPS, others), min_size=1, max_size=2))
    return together.map(lambda t: ("seq", t[0], *(part for pair in t[1] for part in pair if part is not None)))


NECESSARY = st.one_of(
    TAKES,
    repeated(TAKES, OFTEN),
    in_a_row(TAKES, TAKES),
    st.tuples(TAKES, TAKES).map(lambda p: ("or", *p)),
    st.tuples(TAKES, TAKES).map(lambda p: ("permute", *p)),
)
PARTS = st.one_of(TAKES, TAKES, repeated(TAKES, PERHAPS), NECESSARY, repeated(NECESSARY, PERHAPS))
SHAPES = in_a_row(st.one_of(TAKES, NECESSARY, repeated(NECESSARY, OFTEN)), PARTS)


@st.composite
def cases(draw: st.DrawFn, *, history: bool, failing: bool = False) -> Case:
    shape = draw(SHAPES)
    if draw(st.integers(0, 5)) == 0:
        shape = (*shape, ("absent", draw(st.sampled_from(NAMES))))
    written = text(shape)
    relaxed = draw(st.booleans())
    timed = relaxed or "!" in written or "->>" in written
    within = draw(st.integers(1, 12)) if timed else draw(st.one_of(st.none(), st.integers(1, 12)))
    names = [name for name in NAMES if name in written.replace("PERMUTE", "")]
    pool = LOCAL + LOOKING_BACK + (HISTORY * 2 if history else []) + (FAILING * 8 if failing else [])
    pool = [known for known in pool if all(name in names or f"{name}." not in known[0] for name in NAMES)]
    define = {name: draw(st.sampled_from(pool)) for name in names if failing or draw(st.booleans())}
    after = draw(
        st.sampled_from(
            ["past last row", "to next row", *(f"to {end} {n}" for end in ("first", "last") for n in names)]
        )
    )
    return Case(shape, define, within, relaxed, after, draw(st.booleans()))


@st.composite
def arrivals(draw: st.DrawFn) -> Steps:
    """Rows in steps, out of order, each with the watermark after it, which no later row is at or before."""
    size = draw(st.integers(3, 18))
    row = st.tuples(st.sampled_from(["x", "x", "x", None]), st.integers(0, 12), st.sampled_from([0, 1, 1, 2, 3, None]))
    rows = [
        {"id": i, "key": k, "time": t, "v": v}
        for i, (k, t, v) in enumerate(draw(st.lists(row, min_size=size, max_size=size)))
    ]
    if draw(st.booleans()):
        rows.sort(key=lambda row: row["time"])
    cuts = sorted(draw(st.lists(st.integers(0, size), max_size=4)))
    steps: Steps = []
    watermark = -1
    for start, end in zip([0, *cuts], [*cuts, size], strict=True):
        latest = min((row["time"] for row in rows[end:]), default=draw(st.sampled_from([END, END, 15, 6]))) - 1
        watermark = max(watermark, latest - draw(st.sampled_from([0, 0, 1, 5])))
        steps.append((rows[start:end], watermark, draw(st.sampled_from(["stay", "other worker", "lost", "again"]))))
    return steps


def shown(rows: list[dict[str, Any]], taken: Taken) -> list[tuple[str, int]]:
    return [(name, rows[number]["id"]) for name, number in taken]


def expected(case: Case, steps: Steps, key: str | None) -> Model:
    """What the model finds in a key's rows once all of these steps are done."""
    rows = sorted((row for step, _, _ in steps for row in step), key=lambda row: (row["time"], row["id"]))
    watermark = steps[-1][1]
    conditions = {name: condition for name, (_, condition) in case.define.items()}
    own = [row for row in rows if row["key"] == key and row["time"] <= watermark and not case.fails_alone(row)]
    model = Model(case.shape, conditions, own, watermark, case.within, case.relaxed, case.after, case.aggregated)
    model.run()
    return model


def as_told(model: Model, found: list[tuple[int, int, Taken]]) -> list[tuple[int, int, list[tuple[str, int]]]]:
    return [(model.rows[start]["time"], end, shown(model.rows, taken)) for start, end, taken in found]


def partials(case: Case, steps: Steps, key: str | None) -> list[tuple[int, int, list[tuple[str, int]]]]:
    """What is under way after each step and took a row that this step's watermark passed."""
    found, before = [], -1
    for number, (_, watermark, _) in enumerate(steps, 1):
        model = expected(case, steps[:number], key)
        found += [one for one in as_told(model, model.under_way) if one[1] > before]
        before = watermark
    return found


def frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema={**SCHEMA, "time": pl.Int64()}, orient="row").with_columns(
        (pl.col("time") * 1000).cast(pl.Datetime("us"))
    )


def in_steps(operator: Matching, steps: Steps, *, forgets: bool) -> tuple[pl.DataFrame, list[int]]:
    """What comes out of a bucket that is called, as by Spark, when there are rows or it is due; the dead rows' ids."""
    bucket, worker, out = Bucket(operator), 0, []
    for rows, watermark, fate in steps:
        until = watermark * 1000
        if fate == "lost":
            bucket.lose_caches()
        worker = 1 - worker if fate == "other worker" else worker
        if rows or (bucket.wake_us is not None and bucket.wake_us <= until):
            if fate == "again":
                bucket.step({"rows": frame(rows)}, until, worker=worker, aborted=True)
            out.append(bucket.step({"rows": frame(rows)}, until, worker=worker))
    if steps[-1][1] == END - 1 and forgets:
        assert bucket.rows("rows").is_empty(), "nothing is kept for longer than a match may take"
    letters = [json.loads(row)["id"] for dead in bucket.dead for row in dead["row"]]
    return pl.concat(part for part in out if part is not None), letters


def told(found: pl.DataFrame, what: str, key: str | None) -> list[dict[str, Any]]:
    rows = found.filter(pl.col("key").eq_missing(key) & (pl.col(OUTCOME) == what))
    return rows.with_columns(pl.col("match_start", "match_end").cast(pl.Int64) // 1000).to_dicts()


def summary(row: dict[str, Any]) -> tuple[int, int, list[tuple[str, int]]]:
    taken = [(taken["variable"], taken["id"]) for taken in row["match_rows"]]
    return row["match_start"], row["match_end"], taken


def check_measures(row: dict[str, Any]) -> None:
    row = dict.fromkeys(MEASURES) | {"bs": 0} | row
    taken = row["match_rows"]
    all_v = known([one["v"] for one in taken])
    a = [one["v"] for one in taken if one["variable"] == "A"]
    b = [one for one in taken if one["variable"] == "B"]
    assert row["total"] == (sum(all_v) if all_v else None)
    assert row["mean"] == (sum(known(a)) / len(known(a)) if known(a) else None)
    assert row["lowest"] == min(all_v, default=None)
    assert row["highest"] == max(known([one["v"] for one in b]), default=None)
    assert row["rows"] == len(taken)
    assert row["bs"] == len(known([one["v"] for one in b]))
    assert row["last_a"] == (a[-1] if a else None)
    assert row["second"] == (taken[-2]["v"] if len(taken) > 1 else None)
    assert row["begin"] == (b[0]["id"] if b else None)
    assert row["kind"] == taken[-1]["variable"]
    assert row["took"] == (taken[-1]["time"] - taken[0]["time"]).total_seconds()


def check_refused(case: Case, steps: Steps, why: str) -> None:
    """A condition that is said to be never true is so."""
    (name,) = (name for name in case.define if why.startswith(f"define {name} ") and "so this is never true" in why)
    for key in ("x", None):
        matches = expected(case, steps, key).matches
        assert not any(variable == name for _, _, taken in matches for variable, _ in taken)


def check_letters(case: Case, steps: Steps, letters: list[int]) -> None:
    """One for each row that a condition failed on; of ways that are not preferred the matcher may see more."""
    assert len(set(letters)) == len(letters)
    alone = {row["id"] for rows, _, _ in steps for row in rows if case.fails_alone(row)}
    models = [expected(case, steps, key) for key in ("x", None)]
    assert {model.rows[number]["id"] for model in models for number in model.failed} | alone <= set(letters)
    if all(condition in LOCAL + LOOKING_BACK + HISTORY + FAILING[:1] for condition in case.define.values()):
        assert set(letters) == alone


def check(case: Case, steps: Steps) -> None:
    names = text(case.shape).replace("PERMUTE", "")
    measures = {
        name: value for name, value in MEASURES.items() if all(n in names or f"{n}." not in value for n in NAMES)
    }
    declared = pattern(
        by="key",
        time="time",
        pattern=text(case.shape),
        define={name: condition for name, (condition, _) in case.define.items()},
        measures=measures,
        within=None if case.within is None else f"{case.within} ms",
        after=case.after,
        contiguity="relaxed" if case.relaxed else "strict",
        timeouts=case.within is not None,
        partials=case.partials,
        rows=True,
    )
    try:
        program = compile_pattern(declared, SCHEMA)
    except InvalidDeclaration as refused:
        check_refused(case, steps, str(refused))
        return
    forgets = case.within is not None and not any("prev(" in condition for condition, _ in case.define.values())
    found, letters = in_steps(Matching(program, SCHEMA, True), steps, forgets=forgets)
    check_letters(case, steps, letters)
    for key in ("x", None):
        model, matches = expected(case, steps, key), told(found, "match", key)
        assert [row["number"] for row in matches] == list(range(1, len(matches) + 1))
        for row in matches:
            check_measures(row)
        assert sorted(map(summary, matches)) == sorted(as_told(model, model.matches))
        if case.after != "to next row":
            assert [row["match_start"] for row in matches] == [
                model.rows[start]["time"] for start, _, _ in model.matches
            ]
        if case.within is not None:
            assert sorted(map(summary, told(found, "timeout", key))) == sorted(as_told(model, model.timeouts))
        if case.partials:
            assert sorted(map(summary, told(found, "partial", key))) == sorted(partials(case, steps, key))


@examples(40)
@given(cases(history=False), arrivals())
def test_conditions_that_do_not_look_at_the_match_find_what_the_model_finds(case: Case, steps: Steps) -> None:
    check(case, steps)


@examples(40)
@given(cases(history=True), arrivals())
def test_conditions_on_earlier_rows_find_what_the_model_finds(case: Case, steps: Steps) -> None:
    check(case, steps)


@examples(60)
@given(cases(history=True, failing=True), arrivals())
def test_a_condition_that_fails_ends_only_the_way_that_it_fails_in(case: Case, steps: Steps) -> None:
    check(case, steps)
