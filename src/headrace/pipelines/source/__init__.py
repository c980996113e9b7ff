"""The log to Spark: topics as streams and relations of typed columns, with dead and late rows taken out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.pipelines.source.counting import counts
from headrace.pipelines.source.frames import needed_columns, read_batch, read_stream, with_all_columns
from headrace.pipelines.source.options import SourceOptions
from headrace.pipelines.source.planning import Counts, Position

__all__ = [
    "Counts",
    "SourceOptions",
    "counts",
    "needed_columns",
    "positions",
    "read_batch",
    "read_stream",
    "with_all_columns",
]


def positions(offset: Mapping[str, Any]) -> tuple[str, dict[int, int]]:
    """The topic, and the offset after the batch in each partition, of a source's entry in Spark's offset log."""
    found = Position.from_dict(offset)
    return found.topic, dict(found.offsets)
