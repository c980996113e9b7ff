"""A view's plan taken apart at its session aggregation: what is below runs as a stream through the operator, the
aggregate and what is above it are done in each batch, over the rows of the sessions that changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.pipelines.catalyst import Catalyst, each, is_a
from headrace.pipelines.sessions.operator import BEFORE, END, START, Sessions
from headrace.pipelines.source.shape import DELETED
from headrace.pipelines.state.frames import Keyed, keyed, polars_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Split", "split"]

_MARK = "spark.sessionWindow"


@dataclass(frozen=True, slots=True)
class Split:
    """The two parts."""

    frame: DataFrame
    """The streaming part: rows of sessions that changed."""
    _upper: _Upper

    def finish(self, batch: DataFrame, key: Sequence[str]) -> DataFrame:
        """A batch of the streaming part as the view's rows: those that changed, and ``_deleted`` ones."""
        from pyspark.sql import functions as F

        now = self._upper.over(batch.where(~F.col(BEFORE)))
        gone = self._upper.over(batch.where(BEFORE)).select(*(F.col(f"`{name}`") for name in key))
        same = [F.col(f"`{name}`").eqNullSafe(F.col(f"`_{name}`")) for name in key]
        shown = now.select(*(F.col(f"`{name}`").alias(f"_{name}") for name in key))
        gone = gone.join(shown, on=same, how="left_anti").dropDuplicates()
        return now.withColumn(DELETED, F.lit(False)).unionByName(
            gone.withColumn(DELETED, F.lit(True)), allowMissingColumns=True
        )


def split(spark: SparkSession, result: DataFrame) -> Split | None:
    """Take a result apart; None if it has no session window, or not as the one aggregation at its top."""
    plan: Any = result._jdf.queryExecution().analyzed()
    above: list[Any] = []
    while not is_a(plan, "Aggregate"):
        children = each(plan.children())
        if len(children) != 1:
            return None
        above.append(plan)
        plan = children[0]
    window = next((one for one in each(plan.child().output()) if _is_session(one)), None)
    if window is None or not any(_same(window, one) for one in each(plan.groupingExpressions())):
        return None
    return _split(spark, plan, above, window)


def _split(spark: SparkSession, aggregate: Any, above: list[Any], window: Any) -> Split:
    from pyspark.sql import functions as F
    from pyspark.sql.types import BooleanType, StructField, StructType

    child = aggregate.child()
    used = {attribute.exprId().id() for attribute in each(aggregate.references().toSeq())}
    taken = [one for one in each(child.output()) if one.exprId().id() in used and not _same(window, one)]
    keys = [one for one in each(aggregate.groupingExpressions()) if not _same(window, one)]
    catalyst = Catalyst(spark)
    columns = [catalyst.named(one, f"c{number}") for number, one in enumerate([window, *taken])]
    columns += [catalyst.named(one, f"k{number}") for number, one in enumerate(keys)]
    lower = catalyst.frame(catalyst.project(columns, child))
    if not keys:
        lower = lower.withColumn("k0", F.lit(0))
    lower = lower.select(
        F.col("c0.start").alias(START), F.col("c0.end").alias(END), *(c for c in lower.columns if c != "c0")
    )
    by = tuple(f"k{number}" for number in range(len(keys) or 1))
    operator = Sessions(dict(polars_schema(lower.schema)), by, any(is_a(one, "Filter") for one in above))
    output = StructType([*lower.schema.fields, StructField(BEFORE, BooleanType())])
    frame = keyed({"rows": Keyed(lower, by)}, operator, output)
    return Split(frame, _Upper(catalyst, aggregate, above, [window, *taken]))


@dataclass(frozen=True, slots=True)
class _Upper:
    """The aggregate and what is above it, over rows that stand for those below it."""

    catalyst: Catalyst
    aggregate: Any
    above: list[Any]
    attributes: list[Any]

    def over(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        window = F.struct(F.col(START).alias("start"), F.col(END).alias("end")).alias("c0")
        named = rows.select(window, *(f"c{number}" for number in range(1, len(self.attributes))))
        below: Any = named._jdf.queryExecution().analyzed()
        columns = [
            self.catalyst.standing_for(one, old) for one, old in zip(each(below.output()), self.attributes, strict=True)
        ]
        plan = self.aggregate.withNewChildren(self.catalyst.seq([self.catalyst.project(columns, below)]))
        for one in reversed(self.above):
            plan = one.withNewChildren(self.catalyst.seq([plan]))
        return self.catalyst.frame(plan)


def _is_session(attribute: Any) -> bool:
    metadata = attribute.metadata()
    return bool(metadata.contains(_MARK) and metadata.getBoolean(_MARK))


def _same(attribute: Any, other: Any) -> bool:
    return is_a(other, "AttributeReference") and attribute.exprId().id() == other.exprId().id()
