"""The segment files of one partition, read beside the node that owns them.

The node adds to the last file, makes new ones, deletes old ones from the front and replaces rewritten ones
(``log/swap.py``: while a ``.swap`` file is there, the files that it replaces may be half gone). A file that is open
stays readable, whatever happens to its name.
"""

from __future__ import annotations

import bisect
import os
import time
from pathlib import Path

from headrace.errors import StorageError, UnknownTopic
from headrace.log.files import DiskFiles
from headrace.log.segment import segment_name
from headrace.log.segment_index import read_index

__all__ = ["PartitionFiles", "SegmentFile"]

_PATIENCE_S = 30.0


class SegmentFile:
    """One file of batches, open for reading."""

    def __init__(self, folder: Path, base_offset: int) -> None:
        self.path = folder / f"{segment_name(base_offset)}.log"
        self.base_offset = base_offset
        self._fd = -1
        self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        self._inode = os.fstat(self._fd).st_ino

    def read(self, position: int, size: int) -> bytes:
        """Up to ``size`` bytes; fewer only at the end of the file."""
        return os.pread(self._fd, size, position)

    def position_of(self, offset: int) -> int:
        """A position at or before the batch of an offset."""
        found = read_index(DiskFiles(), self.path.with_suffix(".index"), self.base_offset)
        return found[0].position_of_offset(offset) if found is not None and self.is_current() else 0

    def is_current(self) -> bool:
        """Whether the name still means this file."""
        try:
            return os.stat(self.path).st_ino == self._inode
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Close it."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class PartitionFiles:
    """The folder of a partition; the file that was read last stays open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._last: SegmentFile | None = None
        self._offset = self._position = 0

    def at(self, offset: int) -> tuple[SegmentFile, int]:
        """The file that holds an offset (or the first after it), and a position at or before the offset in it."""
        while True:
            bases = self.bases()
            base = bases[max(bisect.bisect_right(bases, offset) - 1, 0)]
            last = self._last
            known = last is not None and last.base_offset == base and self._offset <= offset and last.is_current()
            if last is not None and known and self._offset == offset:
                return last, self._position
            try:
                file = last if last is not None and known else SegmentFile(self.folder, base)
            except FileNotFoundError:
                continue
            position = file.position_of(offset) if base < offset else 0
            self.bases()  # a swap that began meanwhile may have changed the index already: wait until it is over
            if file.is_current():
                return file, max(position, self._position) if known else position

    def after(self, file: SegmentFile, offset: int) -> tuple[SegmentFile, int] | None:
        """Where to go on at an offset once a file was read to its end; None if that was the last.

        The file may have been empty (compaction leaves such), so it is the file that says what comes next."""
        while True:
            bases = self.bases()
            if file.base_offset not in bases or not file.is_current():
                return self.at(max(offset, file.base_offset))
            following = bisect.bisect_right(bases, file.base_offset)
            if following == len(bases):
                return None
            try:
                return SegmentFile(self.folder, bases[following]), 0
            except FileNotFoundError:
                continue

    def remember(self, file: SegmentFile, offset: int, position: int) -> None:
        """Where a read ended: one that goes on from there, or a little later, starts at this position."""
        self._last, self._offset, self._position = file, offset, position

    def bases(self) -> list[int]:
        """The base offsets of all files, at a moment when none is being replaced."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                names = os.listdir(self.folder)
            except FileNotFoundError:
                raise UnknownTopic(f"there is no partition at {self.folder}.") from None
            found = sorted(int(name[:-4]) for name in names if name.endswith(".log") and name[:-4].isdigit())
            if found and not any(name.endswith(".log.swap") for name in names):
                return found
            if time.monotonic() > deadline:
                raise StorageError(f"the files of {self.folder} are being replaced for {_PATIENCE_S:.0f} s now.")
            time.sleep(0.005)
