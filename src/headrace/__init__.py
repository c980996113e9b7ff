"""Headrace: a durable log that speaks the Kafka protocol, pipelines on Spark, live views.

The public names below are imported when first used: starting a broker imports no Spark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import functions as F

    from headrace.capture.declarations import MariaDB, MySQL, Postgres, SQLite
    from headrace.capture.outbox import outbox
    from headrace.client import connect
    from headrace.pipelines.aggregates import avg, count, count_distinct, first, last, max, min, sum
    from headrace.pipelines.alerts import Email, LogLine, Webhook
    from headrace.pipelines.app import App
    from headrace.pipelines.groups import aggregate
    from headrace.pipelines.history import history
    from headrace.pipelines.joins.enrich import enrich
    from headrace.pipelines.joins.tables import join
    from headrace.pipelines.joins.window_join import window_join
    from headrace.pipelines.patterns.match import match, match_recognize
    from headrace.pipelines.ranking import latest, top
    from headrace.pipelines.sliding import sliding
    from headrace.pipelines.state.own import operator
    from headrace.pipelines.table import Table
    from headrace.pipelines.time import DeviceClock
    from headrace.pipelines.windows import hopping, session, tumbling

__version__ = "0.1.0"

__all__ = [
    "App",
    "DeviceClock",
    "Email",
    "F",
    "LogLine",
    "MariaDB",
    "MySQL",
    "Postgres",
    "SQLite",
    "Table",
    "Webhook",
    "__version__",
    "aggregate",
    "avg",
    "connect",
    "count",
    "count_distinct",
    "enrich",
    "first",
    "history",
    "hopping",
    "join",
    "last",
    "latest",
    "match",
    "match_recognize",
    "max",
    "min",
    "operator",
    "outbox",
    "session",
    "sliding",
    "sum",
    "top",
    "tumbling",
    "window_join",
]

_HOMES = {
    "App": "headrace.pipelines.app",
    "DeviceClock": "headrace.pipelines.time",
    "Email": "headrace.pipelines.alerts",
    "LogLine": "headrace.pipelines.alerts",
    "MariaDB": "headrace.capture.declarations",
    "MySQL": "headrace.capture.declarations",
    "Postgres": "headrace.capture.declarations",
    "SQLite": "headrace.capture.declarations",
    "Table": "headrace.pipelines.table",
    "Webhook": "headrace.pipelines.alerts",
    "aggregate": "headrace.pipelines.groups",
    "avg": "headrace.pipelines.aggregates",
    "connect": "headrace.client",
    "count": "headrace.pipelines.aggregates",
    "count_distinct": "headrace.pipelines.aggregates",
    "enrich": "headrace.pipelines.joins.enrich",
    "first": "headrace.pipelines.aggregates",
    "history": "headrace.pipelines.history",
    "hopping": "headrace.pipelines.windows",
    "join": "headrace.pipelines.joins.tables",
    "last": "headrace.pipelines.aggregates",
    "latest": "headrace.pipelines.ranking",
    "match": "headrace.pipelines.patterns.match",
    "match_recognize": "headrace.pipelines.patterns.match",
    "max": "headrace.pipelines.aggregates",
    "min": "headrace.pipelines.aggregates",
    "operator": "headrace.pipelines.state.own",
    "outbox": "headrace.capture.outbox",
    "session": "headrace.pipelines.windows",
    "sliding": "headrace.pipelines.sliding",
    "sum": "headrace.pipelines.aggregates",
    "top": "headrace.pipelines.ranking",
    "tumbling": "headrace.pipelines.windows",
    "window_join": "headrace.pipelines.joins.window_join",
}


def __getattr__(name: str) -> Any:
    if name == "F":
        return import_module("pyspark.sql.functions")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
