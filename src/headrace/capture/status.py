"""What is told of a captured table: the entry ``capture/APP/TABLE`` of the catalog, and its metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headrace.exposition import Family, Kind, Sample

__all__ = ["TableStatus", "families"]


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
    """Where the topic ends: tombstones and transaction markers are counted."""
    lag_bytes: int | None = None
    lag_seconds: float | None = None
    """How old the newest change or heartbeat is that was captured; of SQLite the oldest change that was not."""
    slot_bytes: int | None = None
    rows: int = 0
    """Rows captured, since the first run: each that was inserted, changed, deleted or read by a snapshot."""
    pending: int | None = None
    """Of SQLite: changes that are noted in the file and not captured."""
    snapshot: str | None = None
    snapshot_rows: int | None = None
    restarts: int = 0
    alarm: str | None = None
    last_error: str | None = None
    pid: int = 0
    worker_pid: int = 0
    at: str = ""
    is_outbox: bool = False
    """Whether its rows are events, which are not to be read again."""

    def entry(self) -> dict[str, Any]:
        """As it is in the catalog."""
        return asdict(self)


_METRICS: Mapping[str, tuple[Kind, str]] = {
    "up": ("gauge", "1 while changes of the table flow."),
    "rows_total": ("counter", "Rows captured: inserted, changed, deleted, or read by a snapshot."),
    "lag_bytes": ("gauge", "How far behind the end of the database's log the capture is."),
    "lag_seconds": ("gauge", "Age of the newest change or heartbeat in the log; of SQLite, of the oldest not in it."),
    "pending": ("gauge", "Changes that an SQLite file has and the log has not."),
    "slot_bytes": ("gauge", "How much of its log the database keeps for the capture."),
    "restarts_total": ("counter", "How often a task or the worker was started anew."),
    "alarm": ("gauge", "1 if the database's disk may fill, or what is still to be captured may be lost."),
}


def families(entries: Iterable[Mapping[str, Any]]) -> list[Family]:
    """Entries of the catalog as metrics."""
    samples: dict[str, list[Sample]] = {name: [] for name in _METRICS}
    for one in entries:
        values = {
            "up": int(one["state"] in ("streaming", "snapshot")),
            "rows_total": one.get("rows"),
            "lag_bytes": one["lag_bytes"],
            "lag_seconds": one["lag_seconds"],
            "pending": one.get("pending"),
            "slot_bytes": one["slot_bytes"],
            "restarts_total": one["restarts"],
            "alarm": int(one["alarm"] is not None),
        }
        for name, value in values.items():
            if value is not None:
                samples[name].append(((one["app"], one["name"]), value))
    return [
        Family(f"headrace_capture_{name}", kind, text, ("app", "table"), samples[name])
        for name, (kind, text) in _METRICS.items()
    ]
