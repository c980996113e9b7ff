"""Spark's checkpoint folder of one query, as far as we look into it.

``offsets/N`` says what batch N reads: a version line, a line of JSON with the watermark, then a line per source.
``commits/N`` says that it was done. Spark syncs neither, nor its state: ``sync`` does, before a batch is written, so
that what the batch needs to be done again is on disk when its rows are.

Still, should Spark's notes end before what was written, the mark of the sink carries the entry of the last written
batch, and ``restore`` puts it back as the first batch that is not committed: Spark does it again over the rows that
were written (with the watermark of then), and the sink finds its mark. If several batches were forgotten they are done
again as one. What the state folders hold of batches after that is of a history that no longer is, and is removed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["Checkpoint", "source_offsets", "watermark_ms"]

_STATE_KINDS = ("changelog", "zip", "delta", "snapshot")
_STATE_FILE = re.compile(rf"(\d+)(?:_[\w-]+)?\.(?:{'|'.join(_STATE_KINDS)})")


class Checkpoint:
    """The checkpoint folder of a query."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def is_there(self) -> bool:
        """Whether Spark could go on from it."""
        return (self.path / "metadata").exists()

    def buckets(self, default: int) -> int:
        """Into how many buckets the keys of the query's operators are put: what was said first holds."""
        file = self.path / "buckets"
        if not file.exists():
            self.path.mkdir(parents=True, exist_ok=True)
            file.write_text(str(default))
            _synced(file)
        return int(file.read_text())

    @property
    def seed(self) -> Path | None:
        """The state that a rescaled query begins with, until its first batch is done."""
        file = self.path / "seed.arrow"
        return file if file.exists() and not (self.path / "commits" / "0").exists() else None

    def start(self, topic: str) -> str | None:
        """Where a rescaled query begins to read a topic, as the JSON of a position."""
        file = self.path / "start.json"
        found = json.loads(file.read_text()).get(topic) if file.exists() else None
        return None if found is None else json.dumps(found)

    def last_done(self) -> int:
        """The last batch that Spark has done; -1 if none."""
        return max(_numbers(self.path / "commits"), default=-1)

    def seeded_by(self, buckets: int, positions: Mapping[str, Any]) -> None:
        """Begin a checkpoint of a rescaled query, whose seed is there: all of it is on disk when this is back."""
        (self.path / "buckets").write_text(str(buckets))
        (self.path / "start.json").write_text(json.dumps(positions))
        for name in ("buckets", "start.json", "seed.arrow"):
            _synced(self.path / name)
        _synced(self.path)

    def take_the_place_of(self, other: Checkpoint) -> None:
        """Become the checkpoint that another was, which is removed."""
        aside = other.path.with_name(f"{other.path.name}~")
        shutil.rmtree(aside, ignore_errors=True)
        other.path.rename(aside)
        self.path.rename(other.path)
        _synced(other.path.parent)
        shutil.rmtree(aside, ignore_errors=True)

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

    def restore(self, batch: int, entry: str) -> tuple[int, str]:
        """Make Spark know of a batch that was written; returns its number and entry as Spark will have them."""
        if self.entry(batch) == entry:
            return batch, entry
        offsets, commits = self.path / "offsets", self.path / "commits"
        noted = _numbers(offsets)
        done = [number for number in _numbers(commits) if number in noted]
        again = done[-1] + 1 if done else 0
        offsets.mkdir(parents=True, exist_ok=True)
        for folder, first in ((offsets, again), (commits, again)):
            for number in _numbers(folder):
                if number >= first:
                    _remove(folder, str(number))
        before = self.entry(again - 1)
        restored = _following(entry, before) if before else entry
        (offsets / str(again)).write_text(restored)
        self._forget_state_after(again)
        return again, restored

    def _forget_state_after(self, version: int) -> None:
        for file in (self.path / "state").rglob("*"):
            found = _STATE_FILE.fullmatch(file.name)
            if found is not None and int(found[1]) > version:
                _remove(file.parent, file.name)

    def sync(self, batch: int) -> None:
        """Have on disk what Spark needs to do this batch again."""
        wanted = [self.path / "offsets" / str(batch), self.path / "commits" / str(batch - 1)]
        wanted += [self.path / "metadata"] if batch == 0 else []
        for store in (self.path / "state").glob("*/*"):
            wanted += [store / f"{batch}.{kind}" for kind in _STATE_KINDS]
        folders = set()
        for file in wanted:
            if _synced(file):
                folders.add(file.parent)
        for folder in folders:
            _synced(folder)

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


def _following(entry: str, before: str) -> str:
    """The entry, with sources that go on from where the batch before it ended."""
    lines = entry.splitlines()
    for number, (mine, theirs) in enumerate(zip(source_offsets(entry), source_offsets(before), strict=True)):
        if mine is not None and theirs is not None and mine.get("from") not in (None, theirs.get("offsets")):
            again = {**mine, "from": theirs["offsets"], "largest": theirs.get("largest")}
            lines[2 + number] = json.dumps(again, separators=(",", ":"))
    return "\n".join(lines)


def _synced(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return True


def _numbers(folder: Path) -> list[int]:
    try:
        return sorted(int(file.name) for file in folder.iterdir() if file.name.isdigit())
    except FileNotFoundError:
        return []


def _remove(folder: Path, name: str) -> None:
    (folder / name).unlink(missing_ok=True)
    (folder / f".{name}.crc").unlink(missing_ok=True)
