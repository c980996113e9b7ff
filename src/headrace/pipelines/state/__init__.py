"""Keyed state at full speed: operators over Polars frames, with log-structured state in Spark's store.

Spark calls Python per bucket of keys, not per key: rows are packed into Arrow blobs by bucket before the shuffle
(``packing``), and ``processor`` gives an operator all new rows of a bucket at once. What an operator is, says
``operator``; its state is tables of rows (``table``), kept as a log of chunks (``chunks``) in Spark's state store; a
worker keeps the decoded tables (``cache``), which is only ever a cache.
"""

from headrace.pipelines.state.operator import Changes, Operator, State, Step, TableType

__all__ = ["Changes", "Operator", "State", "Step", "TableType"]
