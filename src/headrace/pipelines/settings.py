"""How an app is run: where the log is, where checkpoints go, how often batches begin."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.feed.cluster import Cluster
from headrace.pipelines.building import BUCKETS
from headrace.pipelines.folders import local_path
from headrace.pipelines.masters import Master, ensure_reachable, ensure_usable
from headrace.pipelines.spark import start_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    """Where checkpoints go unless ``checkpoints`` says otherwise: ``folder/checkpoints/CLUSTER/APP/QUERY``."""
    log_data: Path | None = None
    """The log's data folder, if it is on this machine: then its files are read, not fetched."""
    client: Mapping[str, str] = field(default_factory=dict)
    master: str = "local[*]"
    """Spark's: see ``masters``."""
    interval_ms: int = 100
    max_records: int = 500_000
    """Records per query and batch."""
    rebuild: bool = False
    start_from: str | None = None
    """A time to go on from where a checkpoint is lost."""
    until: Until = Until.STOPPED
    checkpoints: str | None = None
    """A folder, or a URL of a file system that Spark knows (``s3a://``, ``hdfs://``)."""
    spark: Mapping[str, str] = field(default_factory=dict)
    """More settings of Spark."""
    hidden: frozenset[str] = frozenset()
    """The names of those that no command line may show."""
    buckets: int = BUCKETS
    """Into how many buckets the keys of operators are put, in queries that begin now."""

    @property
    def checkpoints_at(self) -> str:
        """The folder or URL below which checkpoints are."""
        return self.checkpoints or str(self.folder / "checkpoints")

    def ensure_usable(self) -> None:
        """Refuse what Spark's master could not do, before anything is started."""
        master, shared = Master.parse(self.master), self.checkpoints is not None
        ensure_usable(master, self.spark, os.environ, shared_checkpoints=shared)
        ensure_reachable(master, self.bootstrap, [])

    def ensure_reachable(self) -> None:
        """Refuse a log that runs and tells its clients an address that executors cannot use."""
        master = Master.parse(self.master)
        if not master.is_ours:
            ensure_reachable(master, self.bootstrap, Cluster(self.bootstrap, self.client).hosts())

    def start_spark(self, app: str) -> SparkSession:
        """Start Spark as the settings say, or take the session that is there."""
        return start_spark(
            app,
            self.folder / "spark",
            self.master,
            self.spark,
            hidden=self.hidden,
            local_checkpoints=local_path(self.checkpoints_at) is not None,
        )
