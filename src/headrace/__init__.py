"""Headrace: a durable log that speaks the Kafka protocol, pipelines on Spark, live views."""

__version__ = "0.1.0"

__all__ = ["__version__"]
