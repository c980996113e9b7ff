"""The state of a query's operators, read from its checkpoint as of its last batch; the query may be running.

It is read partition by partition of Spark's state store and taken apart bucket by bucket: what is in memory at a time
is one partition's chunks, which are compressed, and the rows of one bucket.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.errors import HeadraceError
from headrace.pipelines.checkpoint import Checkpoint
from headrace.pipelines.folders import open_folder
from headrace.pipelines.state.chunks import merged
from headrace.pipelines.state.dead import readable
from headrace.pipelines.state.log import BucketLog, Head
from headrace.pipelines.state.operator import ID

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "BUCKET",
    "Kept",
    "Shown",
    "TableState",
    "kept_of",
    "numbered",
    "read_state",
    "shown",
    "tables_of",
    "together",
]

BUCKET = "_bucket"

Pieces = Mapping[tuple[int, int], bytes]
"""The data of pieces, by the number of the chunk and of the piece."""


@dataclass(frozen=True, slots=True)
class TableState:
    """A table of an operator, over one bucket or several."""

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

    def __init__(self, pieces: Pieces) -> None:
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
    """What Spark keeps of one of its steps that is an operator."""

    heads: Mapping[int, Head]
    """By bucket."""
    pieces: Iterable[tuple[int, Pieces]]
    """Those of each bucket, one bucket after the other."""

    @property
    def operator(self) -> int | None:
        """The operator's number, if a head says it."""
        return next((head.operator for head in self.heads.values() if head.operator is not None), None)

    def _buckets(self) -> Iterator[tuple[int, Pieces]]:
        """Every bucket, also one that should have pieces and has none."""
        without = set(self.heads)
        for bucket, pieces in self.pieces:
            without.discard(bucket)
            yield bucket, pieces
        yield from ((bucket, {}) for bucket in sorted(without))

    def tables(self, number: int | None) -> Iterator[TableState]:
        """The tables, with the rows of one bucket after the other."""
        by = {table: tuple(columns) for head in self.heads.values() for table, columns in head.by.items()}
        key = {table: tuple(columns) for head in self.heads.values() for table, columns in head.key.items()}
        wake = min((head.wake_ms for head in self.heads.values() if head.wake_ms is not None), default=None)
        for bucket, pieces in self._buckets():
            head = self.heads[bucket]
            log = BucketLog(head, _Read(pieces), f"bucket {bucket} of operator {number}")
            found = merged([log.read(entry) for entry in head.chunks], oldest=True)
            for table, change in sorted(found.items()):
                if change.append is not None:
                    rows = change.append.drop(ID).with_columns(pl.lit(bucket).alias(BUCKET))
                    yield TableState(number, table, by[table], key[table], wake, rows)


@dataclass(slots=True)
class Shown:
    """A table as a person looks at it: how many rows there are (of a key), and some of them as JSON has them."""

    table: TableState
    """With the rows of its first bucket."""
    count: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)


def shown(spark: SparkSession, checkpoint: Path | str, limit: int, key: str | None = None) -> list[Shown]:
    """Every table of every operator of the query whose checkpoint is at a path or URL."""
    found: dict[tuple[int, str], Shown] = {}
    for place, (kept, number) in enumerate(numbered(kept_of(spark, checkpoint))):
        for part in kept.tables(number):
            one = found.setdefault((place, part.table), Shown(part))
            count, rows = part.shown(limit - len(one.rows), key)
            one.count += count
            one.rows += rows
    return [found[place] for place in sorted(found)]


def read_state(spark: SparkSession, checkpoint: Path | str) -> list[TableState]:
    """Every table of every operator of the query whose checkpoint is at a path or URL, with all rows."""
    return tables_of(kept_of(spark, checkpoint))


def kept_of(spark: SparkSession, checkpoint: Path | str) -> list[Kept]:
    """What Spark keeps of each of its steps that is an operator; the chunks are read when they are asked for."""
    checkpoint = str(checkpoint)
    folder = open_folder(lambda: spark, checkpoint)
    if not folder.exists("state"):
        return []
    known = spark.read.format("state-metadata").load(checkpoint).collect()
    steps = sorted({row["operatorId"] for row in known if "chunks" in str(row["operatorProperties"])})
    batch = Checkpoint(folder).last_done()
    return [_kept(spark, checkpoint, step, batch) for step in steps]


def _kept(spark: SparkSession, checkpoint: str, step: int, batch: int) -> Kept:
    def variable(name: str) -> DataFrame:
        reader = spark.read.format("statestore").option("operatorId", step).option("stateVarName", name)
        return reader.option("batchId", batch).load(checkpoint)

    heads = {row["key"]["bucket"]: Head.read(row["value"]["text"]) for row in variable("head").collect()}
    return Kept(heads, _Chunks(variable("chunks"), heads))


class _Chunks:
    """The pieces of each bucket as Spark gives them, partition by partition; a bucket is given when all are there."""

    def __init__(self, rows: DataFrame, heads: Mapping[int, Head]) -> None:
        self._rows = rows
        self._wanted = {
            bucket: {(entry.number, piece) for entry in head.chunks for piece in range(entry.pieces)}
            for bucket, head in heads.items()
        }

    def __iter__(self) -> Iterator[tuple[int, Pieces]]:
        found: dict[int, dict[tuple[int, int], bytes]] = {}
        for row in self._rows.toLocalIterator():
            bucket, place = row["key"]["bucket"], (row["user_map_key"]["number"], row["user_map_key"]["piece"])
            wanted = self._wanted.get(bucket, set())
            if place in wanted:
                found.setdefault(bucket, {})[place] = bytes(row["user_map_value"]["data"])
                if len(found[bucket]) == len(wanted):
                    yield bucket, found.pop(bucket)
        yield from found.items()


def numbered(steps: Sequence[Kept]) -> list[tuple[Kept, int | None]]:
    """The operators, by the numbers that they have in the query, which are not those that Spark gives to its steps.

    An operator whose result is used twice is in Spark's plan twice, with equal state: it counts once. Heads that an
    earlier version wrote say no number: then an operator is known if it is the only one.
    """
    known = {kept.operator: kept for kept in steps if kept.operator is not None}
    others = [kept for kept in steps if kept.operator is None]
    return [
        *((kept, number) for number, kept in sorted(known.items())),
        *((kept, 0 if len(steps) == 1 else None) for kept in others),
    ]


def tables_of(steps: Sequence[Kept]) -> list[TableState]:
    """The tables of all operators, each over all buckets."""
    return [table for kept, number in numbered(steps) for table in together(kept.tables(number))]


def together(parts: Iterable[TableState]) -> list[TableState]:
    """Parts of an operator's tables, as one for each table, by name."""
    found: dict[str, list[TableState]] = {}
    for part in parts:
        found.setdefault(part.table, []).append(part)
    return [replace(of[0], rows=pl.concat([part.rows for part in of])) for _, of in sorted(found.items())]
