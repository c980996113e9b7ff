"""A disk in memory that keeps only what was synced, and fails when told to.

``LossyFiles`` implements ``headrace.log.files.Files``. ``crash`` returns the disk as a machine finds it after losing
power: of each file the synced bytes, and of the writes since then any part, torn anywhere, in any order, with zeros
where a later write arrived and an earlier did not; of each folder the synced names, and of the changes since then the
first few. ``fail`` makes an operation raise, and ``crash_after`` stops the world at the n-th change.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

from typing_extensions import Buffer

from headrace.errors import FolderInUse
from headrace.log.files import File, Lock

__all__ = ["LossyFiles", "PowerLoss"]


class PowerLoss(BaseException):
    """The machine stopped here; what follows sees only what ``crash`` returns."""


class _Inode:
    """A file's bytes: now, on disk, and the changes between."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.durable = bytes(data)
        self.pending: list[tuple[int, bytes | None]] = []

    def write(self, position: int, data: bytes) -> None:
        _apply(self.data, position, data)
        self.pending.append((position, data))

    def truncate(self, size: int) -> None:
        del self.data[size:]
        self.pending.append((size, None))

    def sync(self) -> None:
        self.durable = bytes(self.data)
        self.pending.clear()

    def survivor(self, random: Random) -> _Inode:
        data = bytearray(self.durable)
        for position, written in self.pending:
            fate = random.random()
            if written is None:
                if fate < 0.5:
                    del data[position:]
            elif fate < 0.4:
                _apply(data, position, written)
            elif fate < 0.8:
                start = random.randrange(len(written) + 1)
                end = random.randrange(start, len(written) + 1)
                _apply(data, position + start, written[start:end])
        return _Inode(bytes(data))


def _forget(names: dict[str, _Inode | _Folder], name: str) -> None:
    names.pop(name, None)


def _apply(data: bytearray, position: int, written: bytes) -> None:
    if written:
        if len(data) < position:
            data.extend(bytes(position - len(data)))
        data[position : position + len(written)] = written


class _Folder:
    """Names: now, on disk, and the changes between."""

    def __init__(self) -> None:
        self.names: dict[str, _Inode | _Folder] = {}
        self.durable: dict[str, _Inode | _Folder] = {}
        self.pending: list[Callable[[dict[str, _Inode | _Folder]], None]] = []

    def change(self, change: Callable[[dict[str, _Inode | _Folder]], None]) -> None:
        change(self.names)
        self.pending.append(change)

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.pending.clear()

    def survivor(self, random: Random) -> _Folder:
        names = dict(self.durable)
        for change in self.pending[: random.randrange(len(self.pending) + 1)]:
            change(names)
        found = _Folder()
        found.names = {name: node.survivor(random) for name, node in names.items()}
        found.durable = dict(found.names)
        return found


class _LossyFile:
    """An open file of a lossy disk."""

    def __init__(self, disk: LossyFiles, path: Path, inode: _Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode

    def size(self) -> int:
        return len(self._inode.data)

    def read(self, position: int, size: int) -> bytes:
        return bytes(self._inode.data[position : position + max(size, 0)])

    def write(self, position: int, data: Buffer) -> None:
        written = bytes(data)
        try:
            self._disk.tick("write", self._path)
        except (OSError, PowerLoss):
            self._inode.write(position, written[: len(written) // 2])
            raise
        self._inode.write(position, written)

    def truncate(self, size: int) -> None:
        self._disk.tick("truncate", self._path)
        self._inode.truncate(size)

    def sync(self) -> None:
        self._disk.tick("sync", self._path)
        self._inode.sync()

    def close(self) -> None:
        """Nothing to do."""


class _LossyLock:
    """A lock that ends with the crash, too."""

    def __init__(self, disk: LossyFiles, path: Path) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locked.discard(self._path)


class LossyFiles:
    """A file system in memory that may lose what was not synced."""

    def __init__(self, root: _Folder | None = None) -> None:
        self._root = root or _Folder()
        self._root.names.setdefault("/", _Folder())
        self._root.sync()
        self.locked: set[Path] = set()
        self._rules: list[tuple[str, str, int]] = []
        self._ticks_left: int | None = None
        self.ticks = 0

    # Faults ----------------------------------------------------------------------------------------------------

    def crash(self, seed: int) -> LossyFiles:
        """The disk after a power loss; the same seed loses the same."""
        return LossyFiles(self._root.survivor(Random(seed)))

    def fail(self, operation: str, part_of_path: str, error: int = errno.EIO) -> None:
        """From now on, ``operation`` (write, sync, rename, ...) on such paths raises this error."""
        self._rules.append((operation, part_of_path, error))

    def heal(self) -> None:
        """Stop failing."""
        self._rules.clear()

    def crash_after(self, changes: int) -> None:
        """Raise PowerLoss at the change after so many."""
        self._ticks_left = changes

    def tick(self, operation: str, path: Path) -> None:
        """A change is about to happen."""
        self.ticks += 1
        if self._ticks_left is not None:
            if self._ticks_left <= 0:
                raise PowerLoss(f"{operation} {path}")
            self._ticks_left -= 1
        for rule_operation, part, error in self._rules:
            if rule_operation == operation and part in str(path):
                raise OSError(error, os.strerror(error), str(path))

    # Files -----------------------------------------------------------------------------------------------------

    def open(self, path: Path, *, create: bool = False) -> File:
        """Open for reading and writing."""
        folder = self._folder(path.parent)
        node = folder.names.get(path.name)
        if isinstance(node, _Folder):
            raise IsADirectoryError(str(path))
        if node is None:
            if not create:
                raise FileNotFoundError(str(path))
            self.tick("create", path)
            inode = _Inode()
            folder.change(lambda names: names.__setitem__(path.name, inode))
            return _LossyFile(self, path, inode)
        if create:
            node.truncate(0)
        return _LossyFile(self, path, node)

    def read(self, path: Path) -> bytes:
        """The whole file."""
        return bytes(self._inode(path).data)

    def exists(self, path: Path) -> bool:
        """Whether a file or folder has this name."""
        try:
            return path.name in self._folder(path.parent).names
        except FileNotFoundError:
            return False

    def size(self, path: Path) -> int:
        """Bytes in the file."""
        return len(self._inode(path).data)

    def names(self, folder: Path) -> list[str]:
        """Sorted names in a folder."""
        try:
            return sorted(self._folder(folder).names)
        except FileNotFoundError:
            return []

    def make_folder(self, folder: Path) -> None:
        """Make a folder and its parents."""
        at = self._root
        for part in folder.parts:
            node = at.names.get(part)
            if node is None:
                self.tick("mkdir", folder)
                node = _Folder()
                at.change(lambda names, part=part, node=node: names.__setitem__(part, node))  # type: ignore[misc]
            if not isinstance(node, _Folder):
                raise NotADirectoryError(str(folder))
            at = node

    def rename(self, source: Path, target: Path) -> None:
        """Rename within a folder, replacing the target."""
        if source.parent != target.parent:
            raise OSError(errno.EXDEV, "only within a folder", str(target))
        folder = self._folder(source.parent)
        if source.name not in folder.names:
            raise FileNotFoundError(str(source))
        self.tick("rename", source)

        def change(names: dict[str, _Inode | _Folder]) -> None:
            node = names.pop(source.name, None)
            if node is not None:
                names[target.name] = node

        folder.change(change)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        folder = self._folder(path.parent)
        if path.name in folder.names:
            self.tick("remove", path)
            folder.change(lambda names: _forget(names, path.name))

    def remove_folder(self, folder: Path) -> None:
        """Remove a folder and all in it."""
        self.remove(folder)

    def sync_folder(self, folder: Path) -> None:
        """Sync the names in this folder."""
        self.tick("sync_folder", folder)
        self._folder(folder).sync()

    def lock(self, path: Path) -> Lock:
        """Take the lock."""
        if path in self.locked:
            raise FolderInUse(f"another process uses the data folder {path.parent}.")
        self.locked.add(path)
        return _LossyLock(self, path)

    def flip_bit(self, path: Path, position: int, bit: int = 0) -> None:
        """Damage a file on disk."""
        inode = self._inode(path)
        inode.data[position] ^= 1 << bit
        inode.sync()

    def cut(self, path: Path, size: int) -> None:
        """Shorten a file on disk."""
        inode = self._inode(path)
        del inode.data[size:]
        inode.sync()

    def _folder(self, path: Path) -> _Folder:
        at = self._root
        for part in path.parts:
            node = at.names.get(part)
            if not isinstance(node, _Folder):
                raise FileNotFoundError(str(path))
            at = node
        return at

    def _inode(self, path: Path) -> _Inode:
        node = self._folder(path.parent).names.get(path.name)
        if not isinstance(node, _Inode):
            raise FileNotFoundError(str(path))
        return node
