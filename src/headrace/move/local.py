"""What lies beside the log, in folders that ``headrace run`` and ``headrace up`` were given, goes on with the target.

``checkpoints/CLUSTER/APP/QUERY`` are Spark's notes of a query. They hold offsets, which are the same on the target, so
they are copied under the target's id, and those of the source stay. ``views/APP.sqlite`` has the rows of views with
the ids of the topics that they were made from: those become the target's, or the views would be built anew.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

__all__ = ["LocalState", "find_local", "move_checkpoints", "move_view_store"]

_BEING_COPIED = ".moving"


class LocalState:
    """What a folder holds for a cluster."""

    def __init__(self, folder: Path, cluster_id: str) -> None:
        self.folder = folder
        place = folder / "checkpoints" / cluster_id
        self.checkpoints = place if place.is_dir() else None
        self.stores = sorted((folder / "views").glob("*.sqlite"))

    @property
    def apps(self) -> list[str]:
        """The apps whose queries have checkpoints here."""
        return sorted(path.name for path in self.checkpoints.iterdir() if path.is_dir()) if self.checkpoints else []


def find_local(folders: list[Path], cluster_id: str) -> list[LocalState]:
    """Those of the folders that hold something."""
    found = [LocalState(folder, cluster_id) for folder in folders]
    return [one for one in found if one.checkpoints or one.stores]


def move_checkpoints(state: LocalState, target_id: str) -> None:
    """Copy an app's checkpoints for the target; what was there of an earlier attempt is replaced."""
    if state.checkpoints is None:
        return
    place = state.checkpoints.with_name(target_id)
    beside = state.checkpoints.with_name(f"{target_id}{_BEING_COPIED}")
    shutil.rmtree(beside, ignore_errors=True)
    shutil.copytree(state.checkpoints, beside, symlinks=True)
    _sync(beside)
    shutil.rmtree(place, ignore_errors=True)
    beside.rename(place)
    _sync_one(place.parent)


def move_view_store(store: Path, topic_ids: Mapping[str, str]) -> int:
    """Have the views of a store belong to the topics of the target; how many did before to those of the source."""
    with closing(sqlite3.connect(store, timeout=30)) as db, db:
        known = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        if "headrace_builds" not in known:
            return 0
        changed = 0
        for ours, theirs in topic_ids.items():
            changed += db.execute("UPDATE headrace_builds SET topic_id = ? WHERE topic_id = ?", (theirs, ours)).rowcount
        return changed


def _sync(folder: Path) -> None:
    for path, _, files in os.walk(folder):
        for name in files:
            _sync_one(Path(path) / name)
        _sync_one(Path(path))


def _sync_one(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
