"""Headrace: a durable log that speaks the Kafka protocol, pipelines on Spark, live views.

The public names below are imported when first used: starting a broker imports no Spark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import functions as F

    from headrace.client import connect
    from headrace.pipelines.alerts import Email, LogLine, Webhook
    from headrace.pipelines.app import App
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
    "Table",
    "Webhook",
    "__version__",
    "connect",
    "hopping",
    "session",
    "tumbling",
]

_HOMES = {
    "App": "headrace.pipelines.app",
    "DeviceClock": "headrace.pipelines.time",
    "Email": "headrace.pipelines.alerts",
    "LogLine": "headrace.pipelines.alerts",
    "Table": "headrace.pipelines.table",
    "Webhook": "headrace.pipelines.alerts",
    "connect": "headrace.client",
    "hopping": "headrace.pipelines.windows",
    "session": "headrace.pipelines.windows",
    "tumbling": "headrace.pipelines.windows",
}


def __getattr__(name: str) -> Any:
    if name == "F":
        return import_module("pyspark.sql.functions")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
