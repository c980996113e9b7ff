"""How a capture is run: where the log is, where the jars are, where the worker's files go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.capture.jars import default_home
from headrace.capture.watchdog import HANG_S, SILENT_S

__all__ = ["CaptureSettings"]


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """What a run of captures is given."""

    bootstrap: str
    folder: Path
    """Where the worker's files go: ``folder/capture/APP``."""
    client: Mapping[str, str] = field(default_factory=dict)
    log_data: Path | None = None
    """The log's data folder, if it is on this machine: then its files are read, not fetched."""
    home: Path = field(default_factory=default_home)
    """Where the jars are."""
    heap: str = "384m"
    look_every_s: float = 2.0
    hang_s: float = HANG_S
    """How long nothing may move before a task is started anew, and after that its worker."""
    silent_s: float = SILENT_S
    """How long the worker may be silent before it is killed and started anew."""
