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
import re
from collections.abc import Mapping
from typing import Any

from headrace.pipelines.folders import Folder, LocalFolder

__all__ = ["SEED", "Checkpoint", "source_offsets", "watermark_ms"]

SEED, _START = "seed", "start.json"
_STATE_KINDS = ("changelog", "zip", "delta", "snapshot")
_STATE_FILE = re.compile(rf"(\d+)(?:_[\w-]+)?\.(?:{'|'.join(_STATE_KINDS)})")


class Checkpoint:
    """The checkpoint folder of a query."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    @property
    def where(self) -> str:
        """Its path or URL."""
        return self.folder.where

    @property
    def is_there(self) -> bool:
        """Whether Spark could go on from it."""
        return self.folder.exists("metadata")

    def buckets(self, default: int) -> int:
        """Into how many buckets the keys of the query's operators are put: what was said first holds."""
        if not self.folder.exists("buckets"):
            self.folder.write("buckets", str(default).encode())
            self.folder.sync(["buckets"])
        return int(self.folder.read("buckets"))

    @property
    def has_seed(self) -> bool:
        """Whether it begins with the state of a query that was rescaled: until its first batch is done."""
        return self.folder.exists(SEED) and not self.folder.exists("commits/0")

    def start(self, topic: str) -> str | None:
        """Where a rescaled query begins to read a topic, as the JSON of a position."""
        found = json.loads(self.folder.read(_START)).get(topic) if self.folder.exists(_START) else None
        return None if found is None else json.dumps(found)

    def last_done(self) -> int:
        """The last batch that Spark has done; -1 if none."""
        return max(self._numbers("commits"), default=-1)

    def seeded_by(self, buckets: int, positions: Mapping[str, Any]) -> None:
        """Begin a checkpoint of a rescaled query, whose seed is there: all of it is on disk when this is back."""
        self.folder.write("buckets", str(buckets).encode())
        self.folder.write(_START, json.dumps(positions).encode())
        self.folder.sync(["buckets", _START, *self.folder.files(SEED)])

    def take_the_place_of(self, other: Checkpoint) -> None:
        """Become the checkpoint that another was, which is removed."""
        aside = other.folder.beside(f"{other.folder.name}~")
        aside.delete()
        other.folder.rename(aside)
        self.folder.rename(other.folder)
        aside.delete()

    def entry(self, batch: int) -> str | None:
        """What Spark noted of a batch before it began."""
        try:
            return self.folder.read(f"offsets/{batch}").decode()
        except FileNotFoundError:
            return None

    def last_entry(self) -> str | None:
        """What Spark noted last."""
        batches = self._numbers("offsets")
        return self.entry(batches[-1]) if batches else None

    def restore(self, batch: int, entry: str) -> tuple[int, str]:
        """Make Spark know of a batch that was written; returns its number and entry as Spark will have them."""
        if self.entry(batch) == entry:
            return batch, entry
        noted = self._numbers("offsets")
        done = [number for number in self._numbers("commits") if number in noted]
        again = done[-1] + 1 if done else 0
        for kind in ("offsets", "commits"):
            for number in self._numbers(kind):
                if number >= again:
                    self.folder.remove(f"{kind}/{number}")
        before = self.entry(again - 1)
        restored = _following(entry, before) if before else entry
        self.folder.write(f"offsets/{again}", restored.encode())
        self._forget_state_after(again)
        return again, restored

    def _forget_state_after(self, version: int) -> None:
        for file in list(self.folder.files("state")):
            found = _STATE_FILE.fullmatch(file.rpartition("/")[2])
            if found is not None and int(found[1]) > version:
                self.folder.remove(file)

    def sync(self, batch: int) -> None:
        """Have on disk what Spark needs to do this batch again."""
        if not isinstance(self.folder, LocalFolder):
            return
        wanted = [f"offsets/{batch}", f"commits/{batch - 1}"] + (["metadata"] if batch == 0 else [])
        for operator in self.folder.names("state"):
            for store in self.folder.names(f"state/{operator}"):
                wanted += [f"state/{operator}/{store}/{batch}.{kind}" for kind in _STATE_KINDS]
        self.folder.sync(wanted)

    def delete(self) -> None:
        """Remove it all."""
        self.folder.delete()

    def _numbers(self, kind: str) -> list[int]:
        return sorted(int(name) for name in self.folder.names(kind) if name.isdigit())


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
