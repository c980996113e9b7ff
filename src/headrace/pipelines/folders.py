"""Folders that checkpoints are in: of this machine, or of any file system that Spark can reach (HDFS, object stores).

The second kind is asked through Spark's own Java process, so it is found, and logged in to, as Spark does. A folder of
this machine must be told to sync; on the others a file is there when it was closed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from headrace.errors import InvalidConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Folder", "HadoopFolder", "LocalFolder", "local_path", "open_folder"]


class Folder(Protocol):
    """Files by name; a name may have folders in it, as in ``commits/7``."""

    @property
    def where(self) -> str:
        """What Spark calls it."""
        ...

    @property
    def name(self) -> str:
        """The last part of it."""
        ...

    def below(self, name: str) -> Folder:
        """A folder in it."""
        ...

    def beside(self, name: str) -> Folder:
        """A folder in the one that this is in."""
        ...

    def exists(self, name: str) -> bool:
        """Whether there is a file or folder of this name."""
        ...

    def read(self, name: str) -> bytes:
        """A file; FileNotFoundError if there is none."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Write a file, over one that is there, and make folders for it."""
        ...

    def names(self, name: str = "") -> list[str]:
        """What is in a folder of it; nothing if there is no such folder."""
        ...

    def files(self, name: str) -> Iterator[str]:
        """The names of all files below a folder of it."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        ...

    def sync(self, names: Iterable[str]) -> None:
        """Have those of these files that there are on disk."""
        ...

    def rename(self, to: Folder) -> None:
        """Give it another name."""
        ...

    def delete(self) -> None:
        """Remove all of it."""
        ...

    def changed_ms(self) -> int:
        """When it was last changed, as far as the file system knows."""
        ...


class LocalFolder:
    """A folder of this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def where(self) -> str:
        """Its path."""
        return str(self.path)

    @property
    def name(self) -> str:
        """The last part of it."""
        return self.path.name

    def below(self, name: str) -> LocalFolder:
        """A folder in it."""
        return LocalFolder(self.path / name)

    def beside(self, name: str) -> LocalFolder:
        """A folder in the one that this is in."""
        return LocalFolder(self.path.with_name(name))

    def exists(self, name: str) -> bool:
        """Whether there is a file or folder of this name."""
        return (self.path / name).exists()

    def read(self, name: str) -> bytes:
        """A file."""
        return (self.path / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        """Write a file."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    def names(self, name: str = "") -> list[str]:
        """What is in a folder of it."""
        try:
            return sorted(file.name for file in (self.path / name).iterdir())
        except FileNotFoundError:
            return []

    def files(self, name: str) -> Iterator[str]:
        """The names of all files below a folder of it."""
        for file in (self.path / name).rglob("*"):
            if not file.is_dir():
                yield str(file.relative_to(self.path))

    def remove(self, name: str) -> None:
        """Remove a file, and the checksum that Spark keeps beside it."""
        file = self.path / name
        file.unlink(missing_ok=True)
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)

    def sync(self, names: Iterable[str]) -> None:
        """Have files on disk, and their names."""
        folders = {(self.path / name).parent for name in names if _synced(self.path / name)}
        for folder in folders:
            _synced(folder)

    def rename(self, to: Folder) -> None:
        """Give it another name."""
        self.path.rename(to.where)
        _synced(self.path.parent)

    def delete(self) -> None:
        """Remove all of it."""
        shutil.rmtree(self.path, ignore_errors=True)

    def changed_ms(self) -> int:
        """When it was last changed."""
        return int(self.path.stat().st_mtime * 1000)


class HadoopFolder:
    """A folder of a file system that Spark knows by its URL."""

    def __init__(self, spark: SparkSession, where: str) -> None:
        self._spark = spark
        self._where = where.rstrip("/")
        jvm: Any = spark._jvm
        session: Any = spark
        self._paths = jvm.org.apache.hadoop.fs.Path
        self._io = jvm.org.apache.hadoop.io.IOUtils
        settings = session._jsparkSession.sessionState().newHadoopConf()
        self._files: Any = self._paths(self._where).getFileSystem(settings)

    @property
    def where(self) -> str:
        """Its URL."""
        return self._where

    @property
    def name(self) -> str:
        """The last part of it."""
        return self._where.rpartition("/")[2]

    def below(self, name: str) -> HadoopFolder:
        """A folder in it."""
        return HadoopFolder(self._spark, f"{self._where}/{name}")

    def beside(self, name: str) -> HadoopFolder:
        """A folder in the one that this is in."""
        return HadoopFolder(self._spark, f"{self._where.rpartition('/')[0]}/{name}")

    def exists(self, name: str) -> bool:
        """Whether there is a file or folder of this name."""
        return bool(self._files.exists(self._path(name)))

    def read(self, name: str) -> bytes:
        """A file."""
        if not self.exists(name):
            raise FileNotFoundError(f"{self._where}/{name}")
        stream = self._files.open(self._path(name))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def write(self, name: str, data: bytes) -> None:
        """Write a file."""
        stream = self._files.create(self._path(name), True)
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()

    def names(self, name: str = "") -> list[str]:
        """What is in a folder of it."""
        if not self.exists(name):
            return []
        return sorted(one.getPath().getName() for one in self._files.listStatus(self._path(name)))

    def files(self, name: str) -> Iterator[str]:
        """The names of all files below a folder of it."""
        if not self.exists(name):
            return
        base = len(self._files.makeQualified(self._path("")).toString()) + 1
        found = self._files.listFiles(self._path(name), True)
        while found.hasNext():
            yield found.next().getPath().toString()[base:]

    def remove(self, name: str) -> None:
        """Remove a file."""
        self._files.delete(self._path(name), False)

    def sync(self, names: Iterable[str]) -> None:
        """What was closed is there."""

    def rename(self, to: Folder) -> None:
        """Give it another name."""
        if not self._files.rename(self._path(""), self._paths(to.where)):
            raise OSError(f"{self._where} could not be renamed to {to.where}")

    def delete(self) -> None:
        """Remove all of it."""
        self._files.delete(self._path(""), True)

    def changed_ms(self) -> int:
        """When it was last changed; 0 where the file system does not know."""
        return int(self._files.getFileStatus(self._path("")).getModificationTime())

    def _path(self, name: str) -> Any:
        return self._paths(f"{self._where}/{name}" if name else self._where)


def local_path(place: str) -> Path | None:
    """The path of a folder of this machine, given as one or as ``file:``; None for a URL of another kind."""
    found = urlsplit(place)
    if found.scheme == "file":
        return Path(unquote(found.path))
    if found.scheme and "://" in place:
        return None
    return Path(place)


def open_folder(spark: Callable[[], SparkSession], place: str) -> Folder:
    """A folder by its path, or by a URL, for which Spark is needed; InvalidConfig if Spark cannot use it."""
    path = local_path(place)
    if path is not None:
        return LocalFolder(path.resolve())
    try:
        folder = HadoopFolder(spark(), place)
        folder.exists("")
    except Exception as error:
        raise InvalidConfig(
            f"checkpoints cannot be at {place}: {_reason(error)}.",
            hint="Spark needs the file system's jar and account: say --spark-conf spark.jars.packages=... and its "
            "spark.hadoop.* settings; docs/scaling.md shows them",
        ) from error
    return folder


def _reason(error: Exception) -> str:
    said: Any = getattr(error, "java_exception", None)
    return str(said.getMessage() or said) if said is not None else str(error)


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
