"""What is told of a captured table: the entry ``capture/APP/TABLE`` of the catalog, and its metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["METRICS", "TableStatus", "exposition"]


@dataclass(slots=True)
class TableStatus:
    """How the capture of one table is doing."""

    app: str
    name: str
    source: str
    """The database, without a password."""
    table: str
    state: str = "starting"
    """``starting``, ``snapshot``, ``streaming``, ``paused``, ``waiting``, ``failed``, ``stopped``."""
    records: int = 0
    """Where the topic ends: all that was captured, transaction markers counted."""
    lag_bytes: int | None = None
    lag_seconds: float | None = None
    slot_bytes: int | None = None
    snapshot: str | None = None
    snapshot_rows: int | None = None
    restarts: int = 0
    alarm: str | None = None
    last_error: str | None = None
    pid: int = 0
    worker_pid: int = 0
    at: str = ""

    def entry(self) -> dict[str, Any]:
        """As it is in the catalog."""
        return asdict(self)


METRICS = {
    "headrace_capture_up": "1 while changes of the table flow.",
    "headrace_capture_records_total": "Records in the table's topic.",
    "headrace_capture_lag_bytes": "How far behind the end of the database's log the capture is.",
    "headrace_capture_lag_seconds": "Age of the newest change or heartbeat that is in the log.",
    "headrace_capture_slot_bytes": "How much of its log the database keeps for the capture.",
    "headrace_capture_restarts_total": "How often a task or the worker was started anew.",
    "headrace_capture_alarm": "1 if the database's disk may fill, or it may give the capture up.",
}


def exposition(entries: Iterable[Mapping[str, Any]]) -> str:
    """Entries of the catalog as Prometheus reads them."""
    lines: dict[str, list[str]] = {name: [] for name in METRICS}
    for one in entries:
        label = f'{{app="{one["app"]}",table="{one["name"]}"}}'
        values = {
            "up": int(one["state"] in ("streaming", "snapshot")),
            "records_total": one["records"],
            "lag_bytes": one["lag_bytes"],
            "lag_seconds": one["lag_seconds"],
            "slot_bytes": one["slot_bytes"],
            "restarts_total": one["restarts"],
            "alarm": int(one["alarm"] is not None),
        }
        for name, value in values.items():
            if value is not None:
                lines[f"headrace_capture_{name}"].append(f"headrace_capture_{name}{label} {value}")
    text = []
    for name, found in lines.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        text += [f"# HELP {name} {METRICS[name]}", f"# TYPE {name} {kind}", *found]
    return "\n".join(text) + "\n"
