"""What looking into Spark's plans and building new ones from their parts needs, through its gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Catalyst", "each", "is_a"]


def each(found: Any) -> list[Any]:
    """The elements of a Scala sequence."""
    return [found.apply(at) for at in range(found.size())]


def is_a(node: Any, kind: str) -> bool:
    """Whether a node of a plan or an expression is of a class."""
    return bool(node.getClass().getSimpleName() == kind)


class Catalyst:
    """Parts of Spark's plans, made through its gateway."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark: Any = spark
        self._jvm = cast(Any, spark._jvm)
        self._expressions = self._jvm.org.apache.spark.sql.catalyst.expressions
        self._logical = self._jvm.org.apache.spark.sql.catalyst.plans.logical

    def seq(self, found: list[Any]) -> Any:
        """A list as Scala has it."""
        return self._jvm.PythonUtils.toSeq(found)

    def named(self, expression: Any, name: str) -> Any:
        """An expression as a column of this name."""
        return self._alias(expression, name, self._expressions.NamedExpression.newExprId(), self.seq([]), None)

    def standing_for(self, column: Any, old: Any) -> Any:
        """A column that is taken for another by all that refer to that."""
        return self._alias(column, old.name(), old.exprId(), old.qualifier(), old.metadata())

    def both(self, one: Any, other: Any) -> Any:
        """A condition: the second is not looked at where the first does not hold."""
        return self._expressions.And(one, other)

    def either(self, one: Any, other: Any) -> Any:
        """A condition."""
        return self._expressions.Or(one, other)

    def where(self, condition: Any, value: Any) -> Any:
        """A value, computed only where a condition holds; null elsewhere."""
        return self._expressions.If(condition, value, self._expressions.Literal(None, value.dataType()))

    def project(self, columns: list[Any], child: Any) -> Any:
        """A plan with these columns."""
        return self._logical.Project(self.seq(columns), child)

    def filter(self, condition: Any, child: Any) -> Any:
        """A plan with the rows for which a condition holds."""
        return self._logical.Filter(condition, child)

    def mentions(self, plan: Any, pattern: str) -> bool:
        """Whether a kind of expression (a TreePattern of Spark) is in a node or below it."""
        found = getattr(self._jvm.org.apache.spark.sql.catalyst.trees.TreePattern, pattern)()
        return bool(plan.containsPattern(found))

    def frame(self, plan: Any) -> DataFrame:
        """A plan as a DataFrame."""
        from pyspark.sql import DataFrame

        made = self._jvm.org.apache.spark.sql.classic.Dataset.ofRows(self._spark._jsparkSession, plan)
        return DataFrame(made, self._spark)

    def _alias(self, child: Any, name: str, identity: Any, qualifier: Any, metadata: Any) -> Any:
        explicit = self._jvm.scala.Option.apply(metadata)
        return self._expressions.Alias(child, name, identity, qualifier, explicit, self.seq([]))
