"""Making a backup: a snapshot is copied, the copy is read back and checked, and only then it gets its manifest."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace import __version__
from headrace.backup.asking import ensure_data_folder, snapshot
from headrace.backup.copying import Progress, copy_file, digest, ensure_room, sync_folders
from headrace.backup.manifest import MANIFEST, UNFINISHED, Manifest, SavedFile, read_manifest, write_manifest
from headrace.broker.state_check import check_state
from headrace.errors import AlreadyExists, CorruptRange, InvalidInput, StorageError
from headrace.log.findings import DataReport, Severity
from headrace.log.verify import verify

__all__ = ["Saved", "Step", "ensure_sound", "save"]

Step = Callable[[str, int], contextlib.AbstractContextManager[Callable[[int], None]]]
"""Given what is done now and how many bytes it takes, gives the function that is told how far it is."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A backup that was made: ``linked`` bytes of it are shared with an older one."""

    manifest: Manifest
    report: DataReport
    linked: int


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A file of the snapshot."""

    name: str
    path: Path
    size: int
    source: tuple[int, int] | None


def save(data: Path, target: Path, step: Step, *, since: Path | None = None) -> Saved:
    """Save a data folder, running or not. With ``since``, files that an older backup has too are linked, not copied."""
    data, target = data.absolute(), target.absolute()
    if target.resolve().is_relative_to(data.resolve()):
        raise InvalidInput(f"{target} lies in the data folder itself.", hint="choose a folder elsewhere")
    ensure_data_folder(data)
    older = _Older(since)
    _prepare(target)
    with snapshot(data) as folder, _still_there(folder):
        cut = json.loads((folder / "cut").read_text())
        wanted = list(_wanted(folder, cut))
        copied = sum(file.size for file in wanted if not older.has(file))
        ensure_room(target, copied)
        manifest = Manifest(headrace=__version__, **cut)
        linked = 0
        with step("Copying", copied) as tell:
            progress = Progress(tell)
            for file in wanted:
                place = target / "data" / file.name
                place.parent.mkdir(parents=True, exist_ok=True)
                if older.linked(file, place):
                    linked += file.size
                    sha256 = older.sha256(file)
                else:
                    sha256 = copy_file(file.path, place, file.size, progress)
                manifest.files[file.name] = SavedFile(file.size, sha256, file.source)
    sync_folders(Path(folder) for folder, _, _ in os.walk(target))
    report = _verified(target, manifest, step)
    write_manifest(target, manifest)
    (target / UNFINISHED).unlink()
    sync_folders([target, target.parent])
    return Saved(manifest, report, linked)


@contextlib.contextmanager
def _still_there(folder: Path) -> Iterator[None]:
    """A node that stops, or is started again, takes its snapshots with it: then that is what went wrong."""
    try:
        yield
    except (OSError, StorageError) as error:
        if folder.exists():
            raise
        raise StorageError(
            "the node stopped or was started again while it was saved.", detail=str(error), hint="Do it again."
        ) from error


def ensure_sound(folder: Path, report: DataReport) -> None:
    """Raise if the check of a folder has found damage."""
    damages = [finding for finding in report.findings if finding.severity is Severity.DAMAGE]
    if damages:
        first = damages[0]
        raise CorruptRange(
            f"{len(damages)} places of the log are damaged, so the copy in {folder} is worth no more.",
            detail=f"{first.path}: {first.reason}",
            hint="`headrace log verify` lists all of them.",
        )


def _prepare(target: Path) -> None:
    """An empty folder that says that it is not whole."""
    if (target / MANIFEST).exists():
        raise AlreadyExists(f"{target} holds a backup already.", hint="name a new folder for each backup")
    if (target / UNFINISHED).exists():
        shutil.rmtree(target / "data", ignore_errors=True)
    elif target.exists() and any(target.iterdir()):
        raise AlreadyExists(f"{target} is not empty.", hint="name a new folder for each backup")
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    (target / UNFINISHED).write_text(
        "A backup that is being made, or was given up. It is whole once it has a manifest.\n"
    )


def _wanted(folder: Path, cut: dict[str, Any]) -> Iterator[_Wanted]:
    """Every file of a snapshot, with as many bytes as were there at the moment of the cut."""
    sizes = {
        f"topics/{part['topic']}/{part['partition']}/{name}.log": size
        for part in cut["partitions"]
        for name, size in part["segments"].items()
    }
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(place) / name
            relative = path.relative_to(folder).as_posix()
            stat = path.stat()
            if relative != "cut":
                size = sizes.get(relative, stat.st_size)
                sealed = relative in sizes and size == stat.st_size
                yield _Wanted(relative, path, size, (stat.st_ino, stat.st_mtime_ns) if sealed else None)


def _verified(target: Path, manifest: Manifest, step: Step) -> DataReport:
    with step("Verifying", 2 * manifest.size) as tell:
        progress = Progress(tell)
        for name, file in manifest.files.items():
            if digest(target / "data" / name, progress) != file.sha256:
                raise CorruptRange(
                    f"{target / 'data' / name} is not what was written to it.", hint="Check the disk of the backup."
                )
        report = verify(target / "data", lambda done: tell(manifest.size + done), check_state)
    ensure_sound(target, report)
    return report


class _Older:
    """An older backup, to share files with that have not changed since."""

    def __init__(self, backup: Path | None) -> None:
        self._folder = None if backup is None else backup / "data"
        self._files = {} if backup is None else read_manifest(backup).files

    def has(self, file: _Wanted) -> bool:
        """Whether it has this very file: the same inode, size and time of the last change."""
        saved = self._files.get(file.name)
        return saved is not None and file.source is not None and (saved.size, saved.source) == (file.size, file.source)

    def linked(self, file: _Wanted, place: Path) -> bool:
        """Link it, if it is there and can be linked."""
        if self._folder is None or not self.has(file):
            return False
        try:
            os.link(self._folder / file.name, place)
        except OSError:
            return False
        return True

    def sha256(self, file: _Wanted) -> str:
        """The checksum of a file that it has."""
        return self._files[file.name].sha256
