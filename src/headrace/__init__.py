"""Headrace: a durable log that speaks the Kafka protocol, pipelines on Spark, live views.

The public names below are imported when first used: starting a broker imports no Spark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.client import connect

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "connect",
]

_HOMES = {
    "connect": "headrace.client",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
