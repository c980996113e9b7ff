"""State as a person looks at it: by key, and with whatever columns it has."""

from __future__ import annotations

import polars as pl
import pytest

from headrace.pipelines.groups import Groups, Measure
from headrace.pipelines.state import Operator
from headrace.pipelines.state.dead import dead, readable
from headrace.pipelines.state.inspect import BUCKET, TableState
from headrace.pipelines.state.operator import ID
from tests.state.bucket import Bucket
from tests.state.streams import frame, us
from tests.state.test_enrich import SCHEMAS, enriching
from tests.state.test_window_join import COLUMNS, joining


def table(operator: Operator, bucket: Bucket, name: str) -> TableState:
    kind = operator.tables[name]
    rows = bucket.rows(name).drop(ID).with_columns(pl.lit(3).alias(BUCKET))
    return TableState(0, name, kind.by, kind.key_of(1), None, rows)


def test_rows_of_a_window_join_are_found_by_their_key_and_by_their_place() -> None:
    operator = joining(-60, 60, "inner")
    bucket = Bucket(operator)
    rows = frame([("a", 1, 5), ("a", 2, 500), ("b", 3, 5), (None, 4, 5)], COLUMNS)
    bucket.step({"left": rows, "right": rows}, us(0))
    found = table(operator, bucket, "left")
    assert sorted(found.of_key("a")["n"]) == [1, 2]
    (slot,) = found.rows.filter(pl.col("n") == 2)["~slot"]
    assert found.of_key(f"a,{slot}")["n"].to_list() == [2]
    assert found.of_key("c").is_empty()


def test_events_that_wait_in_an_enrich_are_found_by_their_key() -> None:
    operator = enriching("at", "null")
    bucket = Bucket(operator)
    events = frame([(1, "a", 30, 30), (2, "b", 30, 30)], SCHEMAS["stream"])
    bucket.step({"stream": events, "table": frame([], SCHEMAS["table"])}, us(0))
    held = table(operator, bucket, "held")
    assert (held.by, held.key) == ((), ("who",))
    assert held.of_key("a")["_id"].to_list() == [1]
    assert held.of_key("z").is_empty()


@pytest.mark.parametrize("kind", [pl.String(), pl.List(pl.Int64()), pl.Binary()])
def test_values_of_a_group_are_found_by_its_key(kind: pl.DataType) -> None:
    value = {pl.String(): "x", pl.Binary(): b"\xff"}.get(kind, [1])
    measures = {"n": Measure("count_distinct", "v")}
    operator = Groups({"who": pl.String()}, {"v": kind}, measures)
    bucket = Bucket(operator)
    bucket.step({"rows": pl.DataFrame({"who": ["a", "b"], "v": [value, value]}, {"who": pl.String(), "v": kind})})
    assert table(operator, bucket, "values v").of_key("a")["who"].to_list() == ["a"]


def test_a_table_without_keys_is_shown_whole() -> None:
    assert len(TableState(0, "rows", (), (), None, pl.DataFrame({"n": [1, 2]})).of_key("7")) == 2


def test_bytes_are_shown_as_base64_wherever_they_are() -> None:
    inner = pl.Struct({"raw": pl.Binary(), "n": pl.Int64()})
    rows = pl.DataFrame(
        {"raw": [b"\xff\x00", None], "list": [[b"\xff", None], None], "deep": [[{"raw": b"\xff", "n": 1}], []]},
        {"raw": pl.Binary(), "list": pl.List(pl.Binary()), "deep": pl.List(inner)},
    )
    count, shown = TableState(0, "rows", (), (), None, rows).shown(20)
    assert (count, shown) == (
        2,
        [
            {"raw": "/wA=", "list": ["/w==", None], "deep": [{"raw": "/w==", "n": 1}]},
            {"raw": None, "list": None, "deep": []},
        ],
    )
    assert readable(rows.select("raw").head(0)).columns == ["raw"]
    assert dead(rows.head(1), "bad", "it is")["row"].to_list() == [
        '{"raw":"/wA=","list":["/w==",null],"deep":[{"raw":"/w==","n":1}]}'
    ]
