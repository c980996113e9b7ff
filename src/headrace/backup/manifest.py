"""What a backup says of itself: when it was taken, of which node, and of every file its size and its SHA-256.

It is written last, so a backup without one is not whole; and it has a checksum of its own.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headrace.errors import NotFound, StorageError
from headrace.log.checked_file import read_checked, write_checked
from headrace.log.files import DiskFiles

__all__ = ["FORMAT", "MANIFEST", "UNFINISHED", "Manifest", "SavedFile", "read_manifest", "write_manifest"]

FORMAT = 1
"""The format of backups that this version writes."""

MANIFEST, UNFINISHED = "manifest", "unfinished"


@dataclass(frozen=True, slots=True)
class SavedFile:
    """One file of ``data``. ``source`` tells a file that has not changed since: inode and time of its last change."""

    size: int
    sha256: str
    source: tuple[int, int] | None = None


@dataclass(slots=True)
class Manifest:
    """A whole backup."""

    headrace: str
    cluster_id: str
    leader_epoch: int
    taken_ms: int
    moment_ns: int
    partitions: list[dict[str, Any]]
    files: dict[str, SavedFile] = field(default_factory=dict)
    format: int = FORMAT

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files.values())


def write_manifest(backup: Path, manifest: Manifest) -> None:
    """Make the backup whole; on disk when it returns."""
    write_checked(DiskFiles(), backup / MANIFEST, json.dumps(asdict(manifest)).encode())


def read_manifest(backup: Path) -> Manifest:
    """The manifest of a whole backup; raises if it is not one."""
    payload = read_checked(DiskFiles(), backup / MANIFEST)
    if payload is None:
        if (backup / UNFINISHED).exists():
            raise StorageError(
                f"{backup} is not a whole backup: it was not finished.", hint="Make another; this one can be removed."
            )
        raise NotFound(f"{backup} is no backup.", hint="name a folder that `headrace backup` has made")
    fields = json.loads(payload)
    if fields["format"] > FORMAT:
        raise StorageError(
            f"the backup {backup} has format {fields['format']}, this version knows up to {FORMAT}.",
            hint=f"Use Headrace {fields['headrace']} or later.",
        )
    files = {name: _saved_file(saved) for name, saved in fields.pop("files").items()}
    return Manifest(**fields, files=files)


def _saved_file(fields: dict[str, Any]) -> SavedFile:
    source = fields["source"]
    return SavedFile(fields["size"], fields["sha256"], None if source is None else (source[0], source[1]))
