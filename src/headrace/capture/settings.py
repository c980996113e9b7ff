"""How a capture is run: where the log is, where the jars are, where the worker's files go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.capture.jars import default_home

__all__ = ["CaptureSettings"]


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """What a run of captures is given."""

    bootstrap: str
    folder: Path
    """Where the worker's files go: ``folder/capture/APP``."""
    client: Mapping[str, str] = field(default_factory=dict)
    home: Path = field(default_factory=default_home)
    """Where the jars are."""
    heap: str = "384m"
    look_every_s: float = 2.0
