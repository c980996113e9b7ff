"""The state of a query's operators, read from its checkpoint as of its last batch; the query may be running."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.errors import HeadraceError
from headrace.pipelines.folders import open_folder
from headrace.pipelines.state.chunks import merged
from headrace.pipelines.state.dead import readable
from headrace.pipelines.state.log import BucketLog, Head
from headrace.pipelines.state.operator import ID

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["BUCKET", "Kept", "TableState", "read_state", "tables_of"]

BUCKET = "_bucket"


@dataclass(frozen=True, slots=True)
class TableState:
    """A table of an operator, over all buckets."""

    operator: int | None
    """Its number among the query's operators; None if an earlier version wrote it and there are several."""
    table: str
    by: tuple[str, ...]
    key: tuple[str, ...]
    """The columns that decide the bucket."""
    wake_ms: int | None
    """When the first bucket of the operator wants to be called."""
    rows: pl.DataFrame
    """Its columns, and ``_bucket``."""

    def of_key(self, key: str) -> pl.DataFrame:
        """The rows of a key: what they are looked up by, or what decides their bucket, as text, with commas between."""
        rows = readable(self.rows)
        wanted = [_text(rows, columns) == key for columns in {self.by, self.key} if columns]
        return self.rows.filter(rows.select(pl.any_horizontal(wanted)).to_series()) if wanted else self.rows

    def shown(self, limit: int, key: str | None = None) -> tuple[int, list[dict[str, Any]]]:
        """How many rows there are (of a key), and some of them as JSON has them."""
        rows = self.rows if key is None else self.of_key(key)
        return len(rows), [json.loads(line) for line in readable(rows.head(limit)).write_ndjson().splitlines()]


def _text(rows: pl.DataFrame, columns: Sequence[str]) -> pl.Expr:
    nested = {name for name, kind in rows.schema.items() if kind.is_nested()}
    texts = [pl.struct(n).struct.json_encode() if n in nested else pl.col(n).cast(pl.String) for n in columns]
    return pl.concat_str([text.fill_null("null") for text in texts], separator=",")


class _Read:
    """Chunks that were read from a checkpoint."""

    def __init__(self, pieces: Mapping[tuple[int, int], bytes]) -> None:
        self._pieces = pieces

    def getValue(self, key: tuple[Any, ...]) -> tuple[bytes] | None:
        found = self._pieces.get((key[0], key[1]))
        return None if found is None else (found,)

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        raise HeadraceError("a checkpoint that is looked at is not changed")

    def removeKey(self, key: tuple[Any, ...]) -> None:
        raise HeadraceError("a checkpoint that is looked at is not changed")


@dataclass(frozen=True, slots=True)
class Kept:
    """What Spark keeps of one of its steps that is an operator, by bucket."""

    heads: Mapping[int, Head]
    pieces: Mapping[int, Mapping[tuple[int, int], bytes]]

    @property
    def operator(self) -> int | None:
        """The operator's number, if a head says it."""
        return next((head.operator for head in self.heads.values() if head.operator is not None), None)


def read_state(spark: SparkSession, checkpoint: Path | str) -> list[TableState]:
    """Every table of every operator of the query whose checkpoint is at a path or URL."""
    checkpoint = str(checkpoint)
    if not open_folder(lambda: spark, checkpoint).exists("state"):
        return []
    known = spark.read.format("state-metadata").load(checkpoint).collect()
    steps = sorted({row["operatorId"] for row in known if "chunks" in str(row["operatorProperties"])})
    return tables_of([_kept(spark, checkpoint, step) for step in steps])


def _kept(spark: SparkSession, checkpoint: str, step: int) -> Kept:
    def variable(name: str) -> list[Any]:
        reader = spark.read.format("statestore").option("operatorId", step).option("stateVarName", name)
        return reader.load(checkpoint).collect()

    pieces: dict[int, dict[tuple[int, int], bytes]] = {}
    for row in variable("chunks"):
        at = (row["user_map_key"]["number"], row["user_map_key"]["piece"])
        pieces.setdefault(row["key"]["bucket"], {})[at] = bytes(row["user_map_value"]["data"])
    heads = {row["key"]["bucket"]: Head.read(row["value"]["text"]) for row in variable("head")}
    return Kept(heads, pieces)


def tables_of(steps: Sequence[Kept]) -> list[TableState]:
    """The tables, by the numbers that operators have in the query, which are not those that Spark gives to its steps.

    An operator whose result is used twice is in Spark's plan twice, with equal state: it counts once. Heads that an
    earlier version wrote say no number: then an operator is known if it is the only one.
    """
    numbered = {kept.operator: kept for kept in steps if kept.operator is not None}
    others = [kept for kept in steps if kept.operator is None]
    found = [table for number, kept in sorted(numbered.items()) for table in _tables(kept, number)]
    return found + [table for kept in others for table in _tables(kept, 0 if len(steps) == 1 else None)]


def _tables(kept: Kept, number: int | None) -> list[TableState]:
    tables: dict[str, list[pl.DataFrame]] = {}
    by: dict[str, list[str]] = {}
    key: dict[str, list[str]] = {}
    wake: list[int] = []
    for bucket, head in kept.heads.items():
        by.update(head.by)
        key.update(head.key)
        wake += [] if head.wake_ms is None else [head.wake_ms]
        log = BucketLog(head, _Read(kept.pieces.get(bucket, {})), f"bucket {bucket} of operator {number}")
        for table, change in merged([log.read(entry) for entry in head.chunks], oldest=True).items():
            if change.append is not None:
                tables.setdefault(table, []).append(change.append.drop(ID).with_columns(pl.lit(bucket).alias(BUCKET)))
    first = min(wake, default=None)
    return [
        TableState(number, table, tuple(by[table]), tuple(key[table]), first, pl.concat(found))
        for table, found in sorted(tables.items())
    ]
