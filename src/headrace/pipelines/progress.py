"""What a query's last batch tells, short enough to be written to the catalog every second.

::

    rate         rows a second that came in            batch_ms   how long the last batches took, the newest last
    state_rows   what its operators remember           parts_ms   where the time of the last one went
    state_bytes  and how much memory that takes        positions  per topic and partition: the next offset to be read
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["plan_of", "told_by"]

BATCHES = 40
PLAN_CHARACTERS = 20_000


def told_by(progress: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """What Spark's progress says, after what was told before."""
    durations = progress.get("durationMs") or {}
    took = int(durations.get("triggerExecution", 0))
    operators = progress.get("stateOperators") or []
    return {
        "rate": round(float(progress.get("inputRowsPerSecond") or 0.0), 1),
        "batch_ms": [*before.get("batch_ms", []), took][-BATCHES:],
        "parts_ms": {name: int(ms) for name, ms in durations.items() if name != "triggerExecution" and ms},
        "state_rows": sum(int(one.get("numRowsTotal", 0)) for one in operators),
        "state_bytes": sum(int(one.get("memoryUsedBytes", 0)) for one in operators),
        "positions": _positions(progress.get("sources") or []),
    }


def plan_of(query: StreamingQuery) -> str:
    """The physical plan of the last batch, as Spark explains it; empty as long as there was none, or nobody to ask."""
    driver = getattr(query, "_jsq", None)
    text = "" if driver is None else str(driver.explainInternal(False))
    return "" if "==" not in text else text.strip()[:PLAN_CHARACTERS]


def _positions(sources: list[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """The least position of each partition: a topic may be read by several sources of one query."""
    from headrace.pipelines.source import positions

    found: dict[str, dict[str, int]] = {}
    for source in sources:
        end = source.get("endOffset")
        end = json.loads(end) if isinstance(end, str) else end
        if not isinstance(end, Mapping):
            continue
        topic, offsets = positions(end)
        known = found.setdefault(topic, {})
        for partition, offset in offsets.items():
            known[str(partition)] = min(offset, known.get(str(partition), offset))
    return found
