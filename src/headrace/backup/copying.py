"""Files copied with their checksums, and read back from the disk to see that it has them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from headrace.errors import StorageError, StorageFull
from headrace.log.partition import storage_error

__all__ = ["Progress", "copy_file", "digest", "ensure_room", "sync_folders"]

_CHUNK_BYTES = 1 << 20


class Progress:
    """Adds up bytes, and tells of them."""

    def __init__(self, tell: Callable[[int], object]) -> None:
        self._tell = tell
        self._done = 0

    def __call__(self, size: int) -> None:
        """So many more bytes are done."""
        self._done += size
        self._tell(self._done)


def copy_file(source: Path, target: Path, size: int, progress: Progress) -> str:
    """Copy the first ``size`` bytes; their SHA-256. On disk when it returns, apart from its name."""
    seen = hashlib.sha256()
    left = size
    try:
        with source.open("rb", buffering=0) as read, target.open("wb", buffering=0) as write:
            while left:
                data = read.read(min(left, _CHUNK_BYTES))
                if not data:
                    raise StorageError(f"{source} is {left} bytes shorter than it should be.")
                seen.update(data)
                rest = memoryview(data)
                while rest:
                    rest = rest[write.write(rest) :]
                left -= len(data)
                progress(len(data))
            os.fsync(write.fileno())
    except OSError as error:
        raise storage_error(error, f"{target} cannot be written") from error
    return seen.hexdigest()


def digest(path: Path, progress: Progress) -> str:
    """The SHA-256 of what the disk has: what the system remembers of it is dropped first, where it can be."""
    seen = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while data := file.read(_CHUNK_BYTES):
            seen.update(data)
            progress(len(data))
    return seen.hexdigest()


def ensure_room(folder: Path, size: int) -> None:
    """Raise if this many bytes do not fit."""
    stat = os.statvfs(folder)
    free = stat.f_bavail * stat.f_frsize
    if free < size:
        raise StorageFull(f"{folder} has room for {free} bytes, but {size} are needed.")


def sync_folders(folders: Iterable[Path]) -> None:
    """Return once the names in these folders are on disk."""
    for folder in folders:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
