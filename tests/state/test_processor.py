"""What Spark calls: whose state it is, what it may begin with, and what is said when it is damaged."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any

import pandas as pd
import polars as pl
import pytest

from headrace.errors import HeadraceError
from headrace.pipelines.rescale import ensure_told_apart
from headrace.pipelines.running import reason
from headrace.pipelines.state import Changes, Step, TableType
from headrace.pipelines.state.cache import worker_cache
from headrace.pipelines.state.chunks import DamagedChunk, encode
from headrace.pipelines.state.inspect import Kept, tables_of
from headrace.pipelines.state.keyed_state import WrongSeed
from headrace.pipelines.state.log import BucketLog, Head
from headrace.pipelines.state.operator import ID
from headrace.pipelines.state.packing import write_blob
from headrace.pipelines.state.processor import Address, KeyedProcessor
from tests.state.bucket import Store

COLUMNS = {"who": pl.String(), "n": pl.Int64()}
BS = [(0, "b"), (1, "c"), (2, "d")]


@dataclass(frozen=True)
class Rows:
    """Keeps its rows."""

    name: str = "rows"

    @property
    def tables(self):
        return {self.name: TableType(COLUMNS, ("who",))}

    def step(self, state, delta, watermark_us):
        return Step(None, {self.name: Changes(delta["rows"])})


class Spark:
    """One bucket in Spark's store, and an operator over it."""

    def __init__(self, number: int, operator: Rows | None = None) -> None:
        self.head: str | None = None
        self.chunks = Store()
        address = Address("shop.sums", number, "", (), 8)
        self._processor = KeyedProcessor(operator or Rows(), {"rows": pl.Schema(COLUMNS)}, 1, address)
        self._processor.init(self)
        worker_cache.take(("shop.sums", number, 3))

    def getValueState(self, name: str, schema: str) -> Spark:
        return self

    def getMapState(self, name: str, key: str, value: str) -> Store:
        return self.chunks

    def get(self) -> tuple[str] | None:
        return None if self.head is None else (self.head,)

    def update(self, value: tuple[str]) -> None:
        (self.head,) = value

    def getCurrentWatermarkInMs(self) -> int:
        return 0

    def send(self, *rows: tuple[str, int]) -> None:
        blob = write_blob(pl.DataFrame(rows, COLUMNS, orient="row"))
        packed = pd.DataFrame({"task": [0], "number": [0], "tag": ["rows"], "rows": [blob]})
        list(self._processor.handleInputRows((3,), iter([packed]), self))

    def begin_with(self, *chunks: bytes) -> None:
        seeds = pd.DataFrame({"data": chunks, "wake": [-1] * len(chunks)})
        self._processor.handleInitialState((3,), seeds, self)

    def kept(self, *, by_an_earlier_version: bool = False) -> Kept:
        head = Head.read(self.head)
        if by_an_earlier_version:
            head.operator = None
        return Kept({3: head}, [(3, {key: value[0] for key, value in self.chunks.items()})])


def two() -> tuple[Spark, Spark]:
    """Operators with equal tables and other rows."""
    found = Spark(0), Spark(1)
    for number, one in enumerate(found):
        one.send(("a", number))
    return found


@pytest.mark.parametrize("order", [1, -1])
def test_state_is_of_the_operator_that_wrote_it_however_spark_counts(order: int) -> None:
    tables = tables_of([one.kept() for one in two()][::order])
    assert [(one.operator, one.rows["n"].to_list()) for one in tables] == [(0, [0]), (1, [1])]


def test_an_operator_whose_result_is_used_twice_counts_once() -> None:
    first, second = (one.kept() for one in two())
    assert [one.operator for one in tables_of([first, second, first])] == [0, 1]


def test_the_only_operator_is_known_and_of_several_that_do_not_say_it_none_is_guessed() -> None:
    kept = [one.kept(by_an_earlier_version=True) for one in two()]
    (one,) = tables_of(kept[:1])
    assert one.operator == 0
    ensure_told_apart([one.operator], "shop.sums")
    tables = tables_of(kept)
    assert [one.operator for one in tables] == [None, None]
    with pytest.raises(HeadraceError, match=r"shop\.sums has several operators.*Hint: let `headrace run FILE --once`"):
        ensure_told_apart([one.operator for one in tables], "shop.sums")


def test_an_operator_begins_with_its_own_tables_only() -> None:
    rows = pl.DataFrame({ID: [0], "who": ["a"], "n": [7]}, {ID: pl.UInt64(), **COLUMNS})
    spark = Spark(0)
    spark.begin_with(encode({"rows": Changes(rows, None, 1)}))
    spark.send(("b", 1))
    (table,) = tables_of([spark.kept()])
    assert (table.operator, sorted(table.rows["n"].to_list())) == (0, [1, 7])
    for other, name in ((rows, "totals"), (rows.cast({"n": pl.Float64()}), "rows"), (rows.drop("n"), "rows")):
        with pytest.raises(WrongSeed, match=r"bucket 3 of the state of shop\.sums, operator 0 .*Hint: remove"):
            Spark(0).begin_with(encode({name: Changes(other, None, 1)}))


def test_an_operator_begins_with_all_parts_of_its_seed_and_every_row_has_an_id_of_its_own() -> None:
    spark = Spark(0)
    rows = [pl.DataFrame({ID: [0, 1], "who": ["a", who], "n": [n, n]}, {ID: pl.UInt64(), **COLUMNS}) for n, who in BS]
    parts = [encode({"rows": Changes(one, None, 2)}) for one in rows]
    spark.begin_with(parts[0], parts[1])
    spark.begin_with(parts[2])
    spark.send(("z", 9))
    (table,) = tables_of([spark.kept()])
    assert sorted(table.rows["n"].to_list()) == [0, 0, 1, 1, 2, 2, 9]
    state = BucketLog(Head.read(spark.head), spark.chunks, "bucket 3").state(Rows(), None)
    assert state.tables["rows"].rows()[ID].to_list() == [*range(7)]


def said(error: BaseException) -> str:
    """What the user is told of what a worker raised: Spark passes on its text."""
    text = "".join(traceback.format_exception(error))
    return reason(RuntimeError(f"[STREAM_FAILED] ended: org.apache.spark.api.python.PythonException: {text}\n\tat a.b"))


@pytest.mark.parametrize("gone", [True, False])
def test_a_damaged_chunk_is_named_to_the_user_with_the_way_on(gone: bool) -> None:
    spark = Spark(0)
    spark.send(("a", 1))
    worker_cache.take(("shop.sums", 0, 3))
    ((place, (data,)),) = spark.chunks.items()
    spark.chunks[place] = (b"" if gone else data[:-1] + bytes([data[-1] ^ 1]),)
    with pytest.raises(DamagedChunk) as caught:
        spark.send(("a", 1))
    told: Any = said(caught.value)
    assert told.startswith("DamagedChunk: chunk 0 of bucket 3 of the state of shop.sums, operator 0 cannot be read.")
    assert told.endswith("and build it anew with `headrace run FILE --rebuild`")
