"""How an app is run: where the log is, where checkpoints go, how often batches begin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from headrace.pipelines.building import BUCKETS

__all__ = ["RunSettings", "Until"]


class Until(StrEnum):
    """When a run ends by itself."""

    STOPPED = "stopped"
    IDLE = "idle"
    """When everything that came, also meanwhile, is processed."""
    ONCE = "once"
    """When everything that was there at the start is processed."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What ``headrace run`` was asked for."""

    bootstrap: str
    folder: Path
    """Where checkpoints go: ``folder/checkpoints/CLUSTER/APP/QUERY``."""
    log_data: Path | None = None
    """The log's data folder, if it is on this machine: then its files are read, not fetched."""
    client: Mapping[str, str] = field(default_factory=dict)
    master: str = "local[*]"
    interval_ms: int = 100
    max_records: int = 500_000
    """Records per query and batch."""
    rebuild: bool = False
    start_from: str | None = None
    """A time to go on from where a checkpoint is lost."""
    until: Until = Until.STOPPED
    buckets: int = BUCKETS
    """Into how many buckets the keys of operators are put, in queries that begin now."""
