"""The mark of a query: the last batch that it has written, on topic ``headrace.marks``, in the transaction of the rows.

Key ``QUERY/0``; value ``{"epoch", "run", "batch", "entry", "generation", "fingerprint"}``. ``entry`` is Spark's own
record of the batch (its file of the offset log, word for word): a batch is known by that, not by its number, because
Spark does not sync its files and may come back some batches earlier. ``run`` is who wrote it, and ``epoch`` counts
runs; a run that finds another of its own or a later epoch has been replaced and stops.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

__all__ = ["Mark", "mark_key"]


@dataclass(frozen=True, slots=True)
class Mark:
    """The last batch that a query has written. Batch -1: none yet."""

    epoch: int
    run: str
    batch: int
    entry: str
    generation: int
    fingerprint: str

    def value(self) -> bytes:
        """The record's value."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @staticmethod
    def read(value: bytes) -> Mark:
        """From a record's value."""
        return Mark(**json.loads(value))


def mark_key(query: str) -> str:
    """The record's key."""
    return f"{query}/0"
