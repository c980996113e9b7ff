"""The state of a bucket as a log of chunks: what each batch changed, in order; older chunks are merged.

A chunk, little-endian::

    b"HRS1"  crc32 of all that follows (u32)  length of header (u32)  header  frames

The header is JSON: for each table the lengths of two Arrow IPC streams (compressed), the added rows and the removed
ids, and the next id to give.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping, Sequence
from zlib import crc32

import polars as pl

from headrace.errors import HeadraceError
from headrace.pipelines.state.operator import ID, Changes

__all__ = ["ANEW", "DamagedChunk", "decode", "encode", "merged", "to_merge"]

_MAGIC = b"HRS1"
ANEW = "remove the query's folder among the checkpoints, and build it anew with `headrace run FILE --rebuild`"
"""What to do when the state of a query cannot be used: an unchanged query is built anew if its checkpoint is lost."""
KEEP = 16
"""The newest chunks stay as they are, so that a worker that missed some batches can catch up from them."""


class DamagedChunk(HeadraceError):
    """A chunk of the state cannot be read."""


def encode(changes: Mapping[str, Changes]) -> bytes:
    """A chunk."""
    header: dict[str, list[int]] = {}
    frames: list[bytes] = []
    for name, change in changes.items():
        added = _ipc(change.append) if change.append is not None and len(change.append) else b""
        gone = _ipc(change.remove.to_frame(ID)) if change.remove is not None and len(change.remove) else b""
        header[name] = [len(added), len(gone), change.next_id]
        frames += [added, gone]
    text = json.dumps(header, separators=(",", ":")).encode()
    body = b"".join([struct.pack("<I", len(text)), text, *frames])
    return _MAGIC + struct.pack("<I", crc32(body)) + body


def decode(chunk: bytes, what: str = "a chunk of state") -> dict[str, Changes]:
    """What ``encode`` was given; DamagedChunk, naming ``what``, if it is not whole."""
    if chunk[:4] != _MAGIC or len(chunk) < 12 or struct.unpack_from("<I", chunk, 4)[0] != crc32(chunk[8:]):
        raise DamagedChunk(
            f"{what} cannot be read.",
            detail="its checksum is wrong" if chunk[:4] == _MAGIC else "it is not a chunk",
            hint=ANEW,
        )
    (length,) = struct.unpack_from("<I", chunk, 8)
    header, at, found = json.loads(chunk[12 : 12 + length]), 12 + length, {}
    for name, (added, gone, next_id) in header.items():
        append = pl.read_ipc_stream(io.BytesIO(chunk[at : at + added])) if added else None
        at += added
        remove = pl.read_ipc_stream(io.BytesIO(chunk[at : at + gone]))[ID] if gone else None
        at += gone
        found[name] = Changes(append, remove, next_id)
    return found


def to_merge(sizes: Sequence[int]) -> range | None:
    """Which chunks (oldest first) to merge into one now; None to leave them."""
    old = len(sizes) - KEEP
    if old < KEEP:
        return None
    first, total = old - 1, sizes[old - 1]
    while first > 0 and sizes[first - 1] <= 2 * total:
        first -= 1
        total += sizes[first]
    return range(first, old) if old - first > 1 else range(old - 2, old)


def merged(chunks: Sequence[Mapping[str, Changes]], *, oldest: bool) -> dict[str, Changes]:
    """Chunks that follow each other as one. In the oldest of a log, ids of rows that went are of no more use."""
    found = {}
    for name in dict.fromkeys(name for chunk in chunks for name in chunk):
        parts = [chunk[name] for chunk in chunks if name in chunk]
        added = [part.append for part in parts if part.append is not None]
        gone = [part.remove for part in parts if part.remove is not None]
        remove = pl.concat(gone).unique() if gone else None
        append = pl.concat(added) if added else None
        if append is not None and remove is not None:
            here = append[ID].is_in(remove.implode())
            remove = remove.filter(~remove.is_in(append[ID].filter(here).implode()))
            append = append.filter(~here)
        found[name] = Changes(append, None if oldest else remove, max(part.next_id for part in parts))
    return found


def _ipc(frame: pl.DataFrame) -> bytes:
    written = io.BytesIO()
    frame.write_ipc_stream(written, compression="zstd")
    return written.getvalue()
