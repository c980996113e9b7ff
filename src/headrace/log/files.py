"""The one door to the disk: every file of the log is opened, written, synced, renamed and removed through it.

Nothing is durable until it was synced: a file's bytes by ``File.sync``, a name (created, renamed, removed) by
``Files.sync_folder`` of its folder. Tests put a disk behind this door that loses and tears what was not synced
(``headrace.testing.files``).
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import Protocol

from typing_extensions import Buffer

from headrace.errors import FolderInUse

__all__ = ["DiskFiles", "File", "Files", "Lock"]


class File(Protocol):
    """An open file, read and written by position; it may be synced from another thread."""

    def size(self) -> int:
        """Bytes in the file."""
        ...

    def read(self, position: int, size: int) -> bytes:
        """Up to ``size`` bytes; fewer only at the end of the file."""
        ...

    def write(self, position: int, data: Buffer) -> None:
        """Write all of ``data`` at ``position``; on an error the bytes there are undefined."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        ...

    def sync(self) -> None:
        """Return once the bytes written so far are on disk."""
        ...

    def close(self) -> None:
        """Close it; what was not synced may still be lost."""
        ...


class Lock(Protocol):
    """A held lock."""

    def release(self) -> None:
        """Let go."""
        ...


class Files(Protocol):
    """A file system."""

    def open(self, path: Path, *, create: bool = False) -> File:
        """Open for reading and writing; ``create`` makes or empties it."""
        ...

    def read(self, path: Path) -> bytes:
        """The whole file; FileNotFoundError if there is none."""
        ...

    def exists(self, path: Path) -> bool:
        """Whether a file or folder has this name."""
        ...

    def size(self, path: Path) -> int:
        """Bytes in the file."""
        ...

    def names(self, folder: Path) -> list[str]:
        """Sorted names in a folder; none if it does not exist."""
        ...

    def make_folder(self, folder: Path) -> None:
        """Make a folder and its parents; it may exist."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Rename, replacing a file at the target at once."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file; nothing happens if there is none."""
        ...

    def remove_folder(self, folder: Path) -> None:
        """Remove a folder and all in it."""
        ...

    def sync_folder(self, folder: Path) -> None:
        """Return once the names in this folder are on disk."""
        ...

    def lock(self, path: Path) -> Lock:
        """Take a lock that ends with the process; FolderInUse if another holds it."""
        ...


class _DiskFile:
    """An open file of the operating system."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read(self, position: int, size: int) -> bytes:
        return os.pread(self._fd, size, position)

    def write(self, position: int, data: Buffer) -> None:
        written = os.pwrite(self._fd, data, position)
        rest = memoryview(data)[written:]
        while rest:
            position += written
            written = os.pwrite(self._fd, rest, position)
            rest = rest[written:]

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class _DiskLock:
    """An advisory lock on an open file."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class DiskFiles:
    """The machine's own file system."""

    def open(self, path: Path, *, create: bool = False) -> File:
        """Open for reading and writing."""
        flags = os.O_RDWR | os.O_CLOEXEC
        if create:
            flags |= os.O_CREAT | os.O_TRUNC
        return _DiskFile(os.open(path, flags, 0o644))

    def read(self, path: Path) -> bytes:
        """The whole file."""
        return path.read_bytes()

    def exists(self, path: Path) -> bool:
        """Whether a file or folder has this name."""
        return path.exists()

    def size(self, path: Path) -> int:
        """Bytes in the file."""
        return os.stat(path).st_size

    def names(self, folder: Path) -> list[str]:
        """Sorted names in a folder."""
        try:
            return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []

    def make_folder(self, folder: Path) -> None:
        """Make a folder and its parents."""
        os.makedirs(folder, exist_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        """Rename, replacing the target."""
        os.replace(source, target)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        path.unlink(missing_ok=True)

    def remove_folder(self, folder: Path) -> None:
        """Remove a folder and all in it."""
        shutil.rmtree(folder, ignore_errors=True)

    def sync_folder(self, folder: Path) -> None:
        """Sync the names in this folder."""
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: Path) -> Lock:
        """Take the lock."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise FolderInUse(
                f"another process uses the data folder {path.parent}.",
                detail=f"process id {holder}",
                hint="Stop it, or choose another folder with --data.",
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return _DiskLock(fd)
