"""State as a person looks at it: by key, and with whatever columns it has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest

from headrace.pipelines.groups import Groups, Measure
from headrace.pipelines.state import Operator, seed
from headrace.pipelines.state.chunks import DamagedChunk, encode
from headrace.pipelines.state.dead import dead, readable
from headrace.pipelines.state.inspect import BUCKET, Kept, TableState, _Chunks, tables_of
from headrace.pipelines.state.log import Entry, Head
from headrace.pipelines.state.operator import ID, Changes
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


class Rows:
    """What Spark reads of a state variable."""

    def __init__(self, *pieces: tuple[int, int, int, bytes]) -> None:
        self._pieces = pieces

    def toLocalIterator(self) -> Iterator[dict[str, Any]]:
        for bucket, number, piece, data in self._pieces:
            key = {"number": number, "piece": piece}
            yield {"key": {"bucket": bucket}, "user_map_key": key, "user_map_value": {"data": bytearray(data)}}


def head(*chunks: tuple[int, int]) -> Head:
    found = Head([Entry(number, pieces, 0, "") for number, pieces in chunks], operator=0)
    found.by, found.key = {"rows": ["n"]}, {"rows": ["n"]}
    return found


def chunk(*numbers: int) -> bytes:
    rows = pl.DataFrame({ID: range(len(numbers)), "n": numbers}, {ID: pl.UInt64(), "n": pl.Int64()})
    return encode({"rows": Changes(rows, None, len(numbers))})


def test_a_bucket_is_given_as_soon_as_its_pieces_are_there_in_whatever_order_they_come() -> None:
    one, other = chunk(1, 2), chunk(3)
    rows = Rows((7, 4, 1, one[9:]), (2, 0, 0, other), (7, 3, 0, b"merged since"), (7, 4, 0, one[:9]), (5, 0, 0, one))
    kept = Kept(heads := {7: head((4, 2)), 2: head((0, 1)), 6: head()}, _Chunks(rows, heads))  # type: ignore[arg-type]
    assert [bucket for bucket, _ in kept.pieces] == [2, 7]
    assert [one.rows.rows() for one in kept.tables(0)] == [[(3, 2)], [(1, 7), (2, 7)]]
    (table,) = tables_of([kept])
    assert sorted(table.rows.rows()) == [(1, 7), (2, 7), (3, 2)]


@pytest.mark.parametrize("there", [0, 1])
def test_a_bucket_whose_pieces_are_not_all_there_is_damaged(there: int) -> None:
    rows = Rows(*[(7, 4, 0, chunk(1)[:9])][:there])
    kept = Kept(heads := {7: head((4, 2))}, _Chunks(rows, heads))  # type: ignore[arg-type]
    with pytest.raises(DamagedChunk, match="chunk 4 of bucket 7 of operator 0"):
        list(kept.tables(0))


def test_what_is_put_into_other_buckets_at_a_time_is_of_one_operator_and_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(seed, "_AT_ONCE", 100)
    sizes = [(0, 5), (0, 5), (0, 5), (0, 50), (0, 1), (1, 1), (1, 1)]
    parts = [TableState(operator, "rows", (), (), None, pl.DataFrame({"n": range(size)})) for operator, size in sizes]
    turns = [[(one.operator, len(one.rows)) for one in turn] for turn in seed._in_turn(parts)]
    assert turns == [sizes[:2], sizes[2:3], sizes[3:4], sizes[4:5], sizes[5:]]
