"""Putting a backup back: into an empty folder, every byte checked on the way and the log once more at the end.

The restored log goes on from an earlier moment, so it is another cluster than the saved one: checkpoints of apps lie
under the cluster's id, and those that have read what is not in the backup must not be gone on from. What clients may
have seen of the time after the backup is never given out again: producer ids go on from the present time, of which
there are more milliseconds than ids; so does the leader epoch, in seconds, so that clients learn that the log was cut.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from headrace.backup.copying import Progress, copy_file, digest, ensure_room, sync_folders
from headrace.backup.manifest import Manifest, read_manifest
from headrace.backup.saving import Step, ensure_sound
from headrace.broker.state_check import check_state
from headrace.clock import SystemClock
from headrace.errors import AlreadyExists, CorruptRange, FolderTooNew
from headrace.log.checked_file import read_checked, write_checked
from headrace.log.files import DiskFiles
from headrace.log.store import FORMAT, RESTORING
from headrace.log.verify import verify

__all__ = ["check", "restore"]

_KEPT_BACK = ("node", "producer-ids")
_HARMLESS = {"lock", "lost+found", RESTORING}
_IDS_PER_MS = 1000
_EPOCHS_SINCE_S = 1_577_836_800
"""2020: seconds since then fit into an epoch until 2088."""


def check(backup: Path, step: Step) -> Manifest:
    """Read all of a backup and compare it with its manifest; raises if anything is not as it was."""
    manifest = read_manifest(backup)
    with step("Checking", manifest.size) as tell:
        progress = Progress(tell)
        for name, file in manifest.files.items():
            path = backup / "data" / name
            if not path.exists() or path.stat().st_size != file.size or digest(path, progress) != file.sha256:
                raise _damaged(path)
    return manifest


def restore(backup: Path, data: Path, step: Step, *, same_cluster: bool = False) -> Manifest:
    """Make a data folder of a backup; a node can start on it once this has returned, and not before.

    ``same_cluster``: nothing was written after the backup, so that all that remembers positions may go on.
    """
    manifest = read_manifest(backup)
    _ensure_known(backup)
    _ensure_empty(data)
    data.mkdir(parents=True, exist_ok=True)
    ensure_room(data, manifest.size)
    files = DiskFiles()
    lock = files.lock(data / "lock")
    try:
        (data / RESTORING).write_text("A backup is being put back here; no node starts on it until it is whole.\n")
        sync_folders([data])
        shutil.rmtree(data / "topics", ignore_errors=True)
        with step("Restoring", manifest.size) as tell:
            _copy(backup, data, manifest, Progress(tell))
        with step("Verifying", manifest.size) as tell:
            ensure_sound(data, verify(data, tell, check_state))
        sync_folders(_folders(data))
        _write_node(backup, data, same_cluster)
        (data / RESTORING).unlink()
        sync_folders([data])
    finally:
        lock.release()
    return manifest


def _ensure_known(backup: Path) -> None:
    payload = read_checked(DiskFiles(), backup / "data" / "node")
    if payload is None:
        raise _damaged(backup / "data" / "node")
    found = json.loads(payload)["format"]
    if found > FORMAT:
        raise FolderTooNew(
            f"the backup's data has format {found}, this version knows up to {FORMAT}.", hint="Upgrade Headrace."
        )


def _ensure_empty(data: Path) -> None:
    names = {path.name for path in data.iterdir()} if data.exists() else set()
    if names - _HARMLESS and RESTORING not in names:
        raise AlreadyExists(f"{data} is not empty.", hint="name a new folder with --data")


def _copy(backup: Path, data: Path, manifest: Manifest, progress: Progress) -> None:
    (data / "topics").mkdir(exist_ok=True)
    for name, file in manifest.files.items():
        if name in _KEPT_BACK:
            continue
        source, place = backup / "data" / name, data / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if not source.exists() or copy_file(source, place, file.size, progress) != file.sha256:
            raise _damaged(source)
    for part in manifest.partitions:
        (data / "topics" / part["topic"] / str(part["partition"])).mkdir(parents=True, exist_ok=True)


def _folders(data: Path) -> Iterator[Path]:
    yield data
    for path in data.rglob("*"):
        if path.is_dir():
            yield path


def _write_node(backup: Path, data: Path, same_cluster: bool) -> None:
    """The node's own memory, last: moved on to the present time."""
    files, now_ms = DiskFiles(), SystemClock().now_ms()
    node = json.loads(read_checked(files, backup / "data" / "node") or b"{}")
    ids = int(read_checked(files, backup / "data" / "producer-ids") or 0)
    node["leader_epoch"] = max(node["leader_epoch"], now_ms // 1000 - _EPOCHS_SINCE_S)
    node["clean"] = False
    if not same_cluster:
        node["cluster_id"] = base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
    write_checked(files, data / "producer-ids", str(max(ids, now_ms * _IDS_PER_MS)).encode())
    write_checked(files, data / "node", json.dumps(node).encode())


def _damaged(path: Path) -> CorruptRange:
    return CorruptRange(f"the backup is damaged: {path} is not what was saved.", hint="Use another backup.")
