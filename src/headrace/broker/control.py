"""What tools on the same machine ask of a running node: a socket in its data folder, for the folder's owner alone.

A tool connects to ``DATA/control``, sends a line of JSON and gets one back. There is one question, ``{"ask":
"snapshot"}``: the answer names a folder (in ``DATA/~snapshots``) of the log as it was at one moment, which is there as
long as the connection is. A tool that dies leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from headrace.errors import HeadraceError
from headrace.log.snapshot import SNAPSHOTS

__all__ = ["CONTROL", "ControlServer", "socket_address"]

CONTROL: Final = "control"
"""The socket's name in the data folder."""

_logger = logging.getLogger(__name__)

_LONGEST: Final = 100
_PATIENCE_S: Final = 5.0


@contextlib.contextmanager
def socket_address(data: Path) -> Iterator[str]:
    """What to bind or connect to; a path that is too long for a socket is reached through the open folder."""
    path = str((data / CONTROL).absolute())
    if len(path.encode()) <= _LONGEST:
        yield path
        return
    fd = os.open(data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{CONTROL}"
    finally:
        os.close(fd)


class ControlServer:
    """Listens from ``start`` to ``stop``; ``snapshot`` makes the folder that it is given."""

    def __init__(self, data: Path, snapshot: Callable[[Path], Awaitable[None]]) -> None:
        self._data = data
        self._snapshot = snapshot
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Remove what is left of earlier ones, and listen. A folder that can hold no socket is no reason to fail."""
        shutil.rmtree(self._data / SNAPSHOTS, ignore_errors=True)
        try:
            self._server = await asyncio.start_unix_server(self._on_connection, sock=self._bound())
        except OSError as error:
            _logger.warning("no backups while the node runs: %s: %s", self._data / CONTROL, error.strerror or error)

    async def stop(self) -> None:
        """Stop listening and drop who is connected."""
        if self._server is None:
            return
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None
        (self._data / CONTROL).unlink(missing_ok=True)

    def _bound(self) -> socket.socket:
        (self._data / CONTROL).unlink(missing_ok=True)
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            os.fchmod(bound.fileno(), 0o600)
            with socket_address(self._data) as address:
                bound.bind(address)
        except OSError:
            bound.close()
            raise
        return bound

    def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        folder = self._data / SNAPSHOTS / str(uuid4())
        try:
            async with asyncio.timeout(_PATIENCE_S):
                asked = json.loads(await reader.readline())
            if asked != {"ask": "snapshot"}:
                writer.write(_line({"error": "there is nothing else to ask than a snapshot."}))
                return
            writer.write(_line(await self._answer(folder)))
            await reader.read()
        except (OSError, TimeoutError, ValueError):
            pass
        except Exception:
            _logger.exception("a snapshot failed")
        finally:
            with contextlib.suppress(OSError):
                writer.close()
            await asyncio.get_running_loop().run_in_executor(None, shutil.rmtree, folder, True)

    async def _answer(self, folder: Path) -> dict[str, Any]:
        try:
            await self._snapshot(folder)
        except HeadraceError as error:
            return {"error": error.message, "hint": error.hint}
        except OSError as error:
            return {"error": f"a snapshot failed: {error.filename}: {error.strerror or error}."}
        return {"snapshot": folder.name}


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"
