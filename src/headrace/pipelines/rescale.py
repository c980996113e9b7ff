"""Another number of buckets for the operators of a stopped query.

Its state is read, put into the new buckets, and becomes the seed of a new checkpoint that begins where the query was.
Spark's own stateful steps (windows, for example) cannot be taken along: a query that has some is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError
from headrace.feed.cluster import Cluster
from headrace.feed.topics import MARKS, read_table
from headrace.pipelines.checkpoint import Checkpoint, source_offsets
from headrace.pipelines.folders import LocalFolder, open_folder
from headrace.pipelines.marks import Mark, mark_key
from headrace.pipelines.sink import Sink, Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ensure_told_apart", "rescale"]


def rescale(spark: Callable[[], SparkSession], cluster: Cluster, place: Path | str, buckets: int) -> int:
    """Rescale the query of a checkpoint folder, whose name is the query's id; returns how many buckets it had."""
    if not 1 <= buckets <= 4096:
        raise HeadraceError(f"{buckets} buckets cannot be.", hint="say a number from 1 to 4096")
    old = Checkpoint(open_folder(spark, str(place)))
    query = old.folder.name
    mark = _mark(cluster, query)
    positions = _positions(old, mark, query)
    before = old.buckets(buckets)
    new = Checkpoint(old.folder.beside(f"{query}~new"))
    new.delete()
    _seed(spark(), old, new, buckets, query)
    new.seeded_by(buckets, positions)
    _begin_anew(cluster, mark, query)
    new.take_the_place_of(old)
    return before


def _mark(cluster: Cluster, query: str) -> Mark:
    value = read_table(cluster, MARKS, mark_key(query)).get(mark_key(query))
    if value is None:
        raise HeadraceError(f"{query} has not run yet: there is nothing to rescale.")
    return Mark.read(value)


def _positions(old: Checkpoint, mark: Mark, query: str) -> dict[str, Any]:
    """Where the query is in each topic, after a batch that is done and written."""
    entry = old.entry(old.last_done())
    if entry is None or mark.entry != entry:
        raise HeadraceError(
            f"the last batch of {query} is not finished.",
            hint="let it finish: `headrace run FILE --once`, then rescale",
        )
    found: dict[str, Any] = {}
    for position in source_offsets(entry):
        if position is None or found.setdefault(position["topic"], position) != position:
            raise HeadraceError(
                f"{query} reads a topic twice and is not equally far.",
                hint="let it catch up: `headrace run FILE --once`",
            )
    return found


def _seed(spark: SparkSession, old: Checkpoint, new: Checkpoint, buckets: int, query: str) -> None:
    from headrace.pipelines.state.inspect import kept_of, numbered
    from headrace.pipelines.state.seed import write_seed

    known = spark.read.format("state-metadata").load(old.where).collect()
    if any("chunks" not in str(row["operatorProperties"]) for row in known):
        raise HeadraceError(
            f"{query} also has steps whose state is Spark's own, which cannot be put into other buckets.",
            hint="build it anew with `headrace run --rebuild`; or make what comes before those steps a derived stream",
        )
    operators = numbered(kept_of(spark, old.where))
    ensure_told_apart([number for _, number in operators], query)
    if not known:
        raise HeadraceError(f"{query} keeps no state.", hint="it needs no rescaling")
    parts = (part for kept, number in operators for part in kept.tables(number))
    write_seed(spark, parts, buckets, new.folder)


def ensure_told_apart(operators: Sequence[int | None], query: str) -> None:
    """Raise unless the state says which operator it is of."""
    if None in operators:
        raise HeadraceError(
            f"{query} has several operators, and an earlier version wrote their state, which does not say whose it is.",
            hint="let `headrace run FILE --once` process new rows first: operators then say it with what they keep",
        )


def _begin_anew(cluster: Cluster, mark: Mark, query: str) -> None:
    """Have the sink forget the last batch, whose number and entry the new checkpoint does not know."""
    target = Target(query, "", (), (), mark.generation, mark.fingerprint)
    sink = Sink(cluster, target, Checkpoint(LocalFolder(Path())))
    sink.claim()
    sink.adopt(-1, "")
    sink.ready()
    sink.close()
