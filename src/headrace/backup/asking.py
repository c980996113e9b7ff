"""A snapshot of a data folder: a running node is asked for one, a stopped one is opened as a start would."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from headrace.broker.control import CONTROL, socket_address
from headrace.errors import FolderInUse, NotFound, StorageError
from headrace.log.snapshot import SNAPSHOTS, take_cut, write_snapshot
from headrace.log.store import LogStore

__all__ = ["ensure_data_folder", "snapshot"]


@contextlib.contextmanager
def snapshot(data: Path) -> Iterator[Path]:
    """A folder of the log as it is at one moment, as long as the body runs."""
    with contextlib.ExitStack() as stack:
        connection = _connected(data)
        if connection is not None:
            stack.enter_context(connection)
            yield _asked(data, connection)
        else:
            yield stack.enter_context(_of_stopped(data))


def ensure_data_folder(data: Path) -> None:
    """Raise if a folder holds no log."""
    if not (data / "node").exists():
        raise NotFound(f"{data} is no data folder.", hint="`headrace up` prints where its data folder is; use --data")


def _connected(data: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with socket_address(data) as address:
            connection.connect(address)
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except PermissionError:
        connection.close()
        raise StorageError(
            f"the node of {data} is another user's.", hint="Run this as the user that owns the data folder."
        ) from None
    return connection


def _asked(data: Path, connection: socket.socket) -> Path:
    connection.sendall(b'{"ask": "snapshot"}\n')
    with connection.makefile("rb") as lines:
        line = lines.readline()
    answer = json.loads(line) if line else {"error": "the node stopped before it had made a snapshot."}
    if "snapshot" not in answer:
        raise StorageError(answer["error"], hint=answer.get("hint"))
    return data / SNAPSHOTS / str(answer["snapshot"])


@contextlib.contextmanager
def _of_stopped(data: Path) -> Iterator[Path]:
    try:
        store = LogStore.open(data)
    except FolderInUse as error:
        raise FolderInUse(
            f"a node runs on {data} that cannot be asked for a snapshot.",
            detail=f"there is no {data / CONTROL}; {error.detail}",
            hint="Its version may be older than this one: restart it, or stop it for the backup.",
        ) from None
    folder = data / SNAPSHOTS / str(uuid4())
    try:
        write_snapshot(take_cut(store), folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        store.close()
