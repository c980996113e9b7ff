"""Inputs of one operator over the same rows: made in one pass, and the same rows as apart."""

from __future__ import annotations

import pytest

from headrace import F
from headrace.pipelines.catalyst import each
from headrace.pipelines.state.passes import passes
from headrace.testing.app import shared_spark

pytestmark = pytest.mark.system

KINDS = "kind int, a struct<n:bigint,text:string>, b struct<n:bigint>"
ROWS = [(0, (1, "x"), None), (1, None, (0,)), (1, None, (4,)), (2, None, None), (0, (None, "y"), None)]


def rows():
    return shared_spark().createDataFrame(ROWS, KINDS)


def leaves(frame) -> int:
    """How often rows are read for a frame."""
    plan, found = frame._jdf.queryExecution().optimizedPlan(), 0
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        children = each(node.children())
        waiting += children
        found += not children
    return found


def of_input(one, tag):
    """The rows of an input of a pass: those with a bucket."""
    kept = one.frame.where(f"`{'' if 'bucket' in one.columns[tag] else f'{tag}:'}bucket` IS NOT NULL")
    chosen = kept.select(*(F.col(f"`{given}`").alias(name) for given, name in one.columns[tag].items()))
    return sorted(map(tuple, chosen.collect()), key=repr)


def ensure_as_apart(inputs, how_many):
    made = passes(inputs)
    assert [set(one.columns) for one in made] == how_many
    assert all(leaves(one.frame) == 1 for one in made)
    for one in made:
        for tag in one.columns:
            assert of_input(one, tag) == sorted(map(tuple, inputs[tag].collect()), key=repr)


def test_conditions_and_columns_over_the_same_rows_are_one_pass() -> None:
    every = rows()
    left = every.where("kind = 0").select("a.n", "a.text", F.lit(1).alias("bucket"))
    right = every.where("kind = 1").select(F.col("b.n").alias("m")).where("m > 0").withColumn("bucket", F.col("m") % 2)
    ensure_as_apart({"left": left, "right": right}, [{"left", "right"}])


def test_what_would_fail_on_rows_of_others_is_not_computed_for_them() -> None:
    every = rows()
    left = every.where("kind = 0").select(F.lit(1).alias("bucket"))
    right = every.where("kind = 1").select("b.n").where("n <> 0").selectExpr("100 / n AS part", "1 AS bucket")
    ensure_as_apart({"left": left, "right": right.where("part > 10")}, [{"left", "right"}])


def test_what_inputs_have_in_common_is_done_once_and_a_stream_is_joined_with_itself() -> None:
    common = rows().where("kind < 2").withColumn("bucket", F.expr("kind + 1"))
    left, right = common.where("kind = 0"), common.select("kind", "bucket")
    ensure_as_apart({"left": left, "right": right}, [{"left", "right"}])
    ensure_as_apart({"left": common, "right": common}, [{"left", "right"}])


def test_other_rows_and_functions_in_python_are_passes_of_their_own() -> None:
    every = rows()
    plain = every.select("kind", F.lit(1).alias("bucket"))
    in_python = every.select(F.udf(lambda kind: kind + 1, "int")("kind").alias("bucket")).where("bucket > 1")
    ensure_as_apart({"left": plain, "right": in_python}, [{"left"}, {"right"}])
    ensure_as_apart({"left": plain, "right": rows().select("kind", F.lit(1).alias("bucket"))}, [{"left"}, {"right"}])
