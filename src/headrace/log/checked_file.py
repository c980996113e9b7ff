"""Small files that are replaced as a whole and carry a checksum: settings of a topic, checkpoints, snapshots.

::

    magic    4 bytes   b"HRF1"
    crc      u32       CRC-32C of the payload
    payload  the rest

A new version is written beside the old one, synced and renamed over it, so a reader finds the old or the new one,
never a mixture. With ``keep_previous`` the old one stays as ``NAME.previous`` and is used when the new one is damaged.
"""

from __future__ import annotations

import struct
from pathlib import Path

from typing_extensions import Buffer

from headrace import _kernel
from headrace.errors import StorageError
from headrace.log.files import Files

__all__ = ["DamagedFile", "read_checked", "write_checked"]

_MAGIC = b"HRF1"
_HEADER = struct.Struct(">4sI")


class DamagedFile(StorageError):
    """A small file whose checksum is wrong."""


def write_checked(
    files: Files, path: Path, payload: Buffer, *, keep_previous: bool = False, durable: bool = True
) -> None:
    """Replace the file by a new version; on disk when it returns, unless ``durable`` is off."""
    fresh = path.with_name(path.name + ".new")
    data = _HEADER.pack(_MAGIC, _kernel.crc32c(payload)) + bytes(payload)
    file = files.open(fresh, create=True)
    try:
        file.write(0, data)
        if durable:
            file.sync()
    finally:
        file.close()
    if keep_previous and files.exists(path):
        files.rename(path, _previous(path))
    files.rename(fresh, path)
    if durable:
        files.sync_folder(path.parent)


def read_checked(files: Files, path: Path) -> bytes | None:
    """The payload; None if there is no such file; DamagedFile if neither it nor its previous version is whole."""
    missing = 0
    for candidate in (path, _previous(path)):
        try:
            data = files.read(candidate)
        except FileNotFoundError:
            missing += 1
            continue
        if len(data) >= _HEADER.size:
            magic, crc = _HEADER.unpack_from(data)
            payload = data[_HEADER.size :]
            if magic == _MAGIC and _kernel.crc32c(payload) == crc:
                return payload
    if missing == 2:
        return None
    raise DamagedFile(f"{path} is damaged: its checksum does not match.", hint="Restore it from a backup.")


def _previous(path: Path) -> Path:
    return path.with_name(path.name + ".previous")
