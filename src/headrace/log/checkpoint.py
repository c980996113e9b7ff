"""What a partition must remember that its batches do not say: ``checkpoint``, a checked file of JSON.

``log_start``: the first offset that may be read. ``cleaned_to``: compaction has been over everything before it.
``epochs``: for every leader epoch the first offset written in it. ``dropped``: how many of the records before the log
start went because the partition is a ring and it was full.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from headrace.log.checked_file import DamagedFile, read_checked, write_checked
from headrace.log.files import Files

__all__ = ["Checkpoint", "read_checkpoint", "write_checkpoint"]


@dataclass(slots=True)
class Checkpoint:
    """A partition's own memory."""

    log_start: int = 0
    cleaned_to: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)
    dropped: int = 0


def write_checkpoint(files: Files, path: Path, checkpoint: Checkpoint) -> None:
    """Replace the checkpoint; on disk when it returns."""
    write_checked(files, path, json.dumps(asdict(checkpoint)).encode(), keep_previous=True)


def read_checkpoint(files: Files, path: Path) -> Checkpoint | None:
    """The checkpoint; None if it is missing or damaged: the log then starts at its first segment."""
    try:
        payload = read_checked(files, path)
    except DamagedFile:
        return None
    if payload is None:
        return None
    fields = json.loads(payload)
    epochs = [(e, o) for e, o in fields["epochs"]]
    return Checkpoint(fields["log_start"], fields["cleaned_to"], epochs, fields.get("dropped", 0))
