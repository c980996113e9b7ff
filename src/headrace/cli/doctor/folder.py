"""The data folder: whose it is, who uses it, what is in it, and the disk below it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pwd
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from headrace.cli.doctor.finding import Check, Finding, bad, fine, so_so
from headrace.cli.output import age, size
from headrace.log.checked_file import DamagedFile, read_checked
from headrace.log.files import DiskFiles
from headrace.log.segment_index import read_cover
from headrace.log.store import FORMAT, RESTORING

__all__ = ["checks"]

_FREE_WANTED, _FREE_NEEDED = 5 << 30, 256 << 20
_SLOW_SYNC_S = 0.05
_SYNCS = 5
_REMOTE = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs", "afs"}
_VOLATILE = {"tmpfs", "ramfs"}
_DRIFT_S = 300


def checks(data: Path) -> list[tuple[str, Check]]:
    """What is to be looked at, in order."""
    looks = {"data": _whose, "disk": _disk, "sync": _sync, "lock": _lock, "format": _format, "newest record": _newest}
    return [(name, partial(look, data)) for name, look in looks.items()]


def _whose(data: Path) -> Iterator[Finding]:
    if not data.exists():
        place = _nearest(data)
        if os.access(place, os.W_OK | os.X_OK):
            yield fine("data", f"{data} is not there yet; `headrace up` makes it")
        else:
            yield bad("data", f"{data} is not there, and {place} cannot be written to", _give(place))
        return
    if not data.is_dir():
        yield bad("data", f"{data} is not a folder", "choose another with --data")
        return
    owner = data.stat().st_uid
    if not os.access(data, os.R_OK | os.W_OK | os.X_OK):
        yield bad("data", f"{data} belongs to {_user(owner)} and cannot be written to", _give(data))
    elif owner != os.geteuid():
        yield so_so(
            "data", f"{data} belongs to {_user(owner)}, you are {_user(os.geteuid())}", f"run as {_user(owner)}"
        )
    else:
        yield fine("data", f"{data}, {_user(owner)}'s")
    strangers = [path for path in _own_files(data) if path.stat().st_uid != owner]
    if strangers:
        yield so_so(
            "data", f"{strangers[0]} belongs to {_user(strangers[0].stat().st_uid)}", f"chown -R {_user(owner)} {data}"
        )


def _own_files(data: Path) -> list[Path]:
    return [path for path in (data, data / "topics") if path.is_dir() for path in path.iterdir()]


def _give(place: Path) -> str:
    return f"chown {_user(os.geteuid())} {place}, or choose another with --data"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _nearest(path: Path) -> Path:
    path = path.absolute()
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _disk(data: Path) -> Iterator[Finding]:
    place = _nearest(data)
    stat = os.statvfs(place)
    free, total = stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize
    told = f"{size(free)} of {size(total)} free"
    if free < _FREE_NEEDED:
        yield bad("disk", told, "free some space, or shorten retention: writes are refused when it is full")
    elif free < _FREE_WANTED:
        yield so_so("disk", told, "free some space, or shorten retention (retention.ms, retention.bytes)")
    else:
        yield fine("disk", told)
    if stat.f_files and stat.f_favail < 10_000:
        yield so_so("disk", f"room for {stat.f_favail} more files", "remove some: a partition takes five and more")
    kind = _file_system(place)
    if kind in _REMOTE:
        yield so_so("file system", f"{kind}: locks and syncs over a network", "keep the data folder on a local disk")
    elif kind in _VOLATILE:
        yield so_so("file system", f"{kind}: gone with the machine", "keep the data folder on a disk")
    elif kind is not None:
        yield fine("file system", kind)


def _file_system(place: Path) -> str | None:
    mounts = Path("/proc/self/mounts")
    if not mounts.exists():
        return None
    found = [line.split()[1:3] for line in mounts.read_text().splitlines()]
    below = [(point, kind) for point, kind in found if place.resolve().is_relative_to(point.replace("\\040", " "))]
    return max(below, key=lambda each: len(each[0]), default=("", None))[1]


def _sync(data: Path) -> Iterator[Finding]:
    """How long a sync takes: what every acks=all waits for."""
    if not data.is_dir() or not os.access(data, os.W_OK | os.X_OK):
        return
    path = data / f".doctor-{os.getpid()}"
    times = []
    try:
        with path.open("wb", buffering=0) as file:
            for _ in range(_SYNCS):
                file.write(b"x" * 4096)
                began = time.perf_counter()
                os.fdatasync(file.fileno())
                times.append(time.perf_counter() - began)
    finally:
        path.unlink(missing_ok=True)
    typical = sorted(times)[len(times) // 2]
    told = f"a sync takes {typical * 1000:.1f} ms"
    if typical > _SLOW_SYNC_S:
        yield so_so("sync", told, "a busy or slow disk: each acks=all waits for a sync; see iostat -x")
    else:
        yield fine("sync", told)


def _lock(data: Path) -> Iterator[Finding]:
    holder = _holder(data)
    if holder is not None:
        yield fine("lock", f"a node runs on it, process {holder}")
    elif (data / RESTORING).exists():
        yield bad(
            "lock", "a backup was being restored here and is not whole", "headrace restore BACKUP --data DIR, again"
        )


def _holder(data: Path) -> str | None:
    """The process that owns the folder; None if nobody does."""
    try:
        fd = os.open(data / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
    finally:
        os.close(fd)
    return None


def _format(data: Path) -> Iterator[Finding]:
    try:
        payload = read_checked(DiskFiles(), data / "node")
    except DamagedFile:
        yield bad("format", f"{data / 'node'} is damaged: no node starts on it", "restore a backup (headrace restore)")
        return
    except OSError:
        return
    if payload is None:
        return
    node = json.loads(payload)
    if node["format"] > FORMAT:
        yield bad(
            "format", f"{node['format']}; this version knows {FORMAT}", "upgrade Headrace, or restore an older backup"
        )
    else:
        yield fine("format", f"{node['format']}, cluster {node['cluster_id']}")
    if not node["clean"] and _holder(data) is None:
        yield so_so(
            "last stop", "it was not clean", "nothing: the next start recovers; to look first: headrace log verify"
        )


def _newest(data: Path) -> Iterator[Finding]:
    """A clock that was set back is behind what was written."""
    newest = max((_max_timestamp(path) for path in data.glob("topics/*/*/*.index")), default=-1)
    if newest < 0:
        return
    ahead_s = newest / 1000 - time.time()
    if ahead_s > _DRIFT_S:
        yield so_so(
            "newest record",
            f"it is {age(ahead_s)} in the future",
            "check the clocks here and at the producers; message.timestamp.after.max.ms refuses such records",
        )
    else:
        yield fine("newest record", f"{age(max(-ahead_s, 0.0))} old, by the indexes")


def _max_timestamp(path: Path) -> int:
    with contextlib.suppress(OSError):
        cover = read_cover(DiskFiles(), path)
        return -1 if cover is None else cover.max_timestamp
    return -1
