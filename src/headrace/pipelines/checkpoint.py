"""Spark's checkpoint folder of one query, as far as we look into it.

``offsets/N`` says what batch N reads: a version line, a line of JSON with the watermark, then a line per source.
``commits/N`` says that it was done. Spark syncs neither. The mark of the sink carries the entry of the last written
batch, so when Spark's files end earlier, ``restore`` puts that entry back as the first batch that is not committed:
Spark does it again over exactly the rows that were written (with the watermark of then), and the sink finds its mark.
What the state folders hold of batches after that one is of a history that no longer is, and is removed.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

__all__ = ["Checkpoint", "source_offsets", "watermark_ms"]

_STATE_FILE = re.compile(r"(\d+)(?:_[\w-]+)?\.(?:zip|changelog|delta|snapshot)")


class Checkpoint:
    """The checkpoint folder of a query."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def is_there(self) -> bool:
        """Whether Spark could go on from it."""
        return (self.path / "metadata").exists()

    def entry(self, batch: int) -> str | None:
        """What Spark noted of a batch before it began."""
        try:
            return (self.path / "offsets" / str(batch)).read_text()
        except FileNotFoundError:
            return None

    def last_entry(self) -> str | None:
        """What Spark noted last."""
        batches = _numbers(self.path / "offsets")
        return self.entry(batches[-1]) if batches else None

    def restore(self, batch: int, entry: str) -> bool:
        """Make Spark know of a batch that was written: returns whether its files had to be put right."""
        if self.entry(batch) == entry:
            return False
        offsets, commits = self.path / "offsets", self.path / "commits"
        noted = _numbers(offsets)
        done = [number for number in _numbers(commits) if number in noted]
        again = done[-1] + 1 if done else 0
        offsets.mkdir(parents=True, exist_ok=True)
        for folder, first in ((offsets, again), (commits, again)):
            for number in _numbers(folder):
                if number >= first:
                    _remove(folder, str(number))
        (offsets / str(again)).write_text(entry)
        self._forget_state_after(again)
        return True

    def _forget_state_after(self, version: int) -> None:
        for file in (self.path / "state").rglob("*"):
            found = _STATE_FILE.fullmatch(file.name)
            if found is not None and int(found[1]) > version:
                _remove(file.parent, file.name)

    def delete(self) -> None:
        """Remove it all."""
        shutil.rmtree(self.path, ignore_errors=True)


def watermark_ms(entry: str) -> int:
    """The watermark that a batch begins with, in milliseconds since 1970."""
    found: int = json.loads(entry.splitlines()[1])["batchWatermarkMs"]
    return found


def source_offsets(entry: str) -> list[dict[str, Any] | None]:
    """Up to where a batch reads each of its sources."""
    return [None if line == "-" else json.loads(line) for line in entry.splitlines()[2:]]


def _numbers(folder: Path) -> list[int]:
    try:
        return sorted(int(file.name) for file in folder.iterdir() if file.name.isdigit())
    except FileNotFoundError:
        return []


def _remove(folder: Path, name: str) -> None:
    (folder / name).unlink(missing_ok=True)
    (folder / f".{name}.crc").unlink(missing_ok=True)
