"""Replacing segments by a rewritten one, so that a crash at any moment leaves the old ones or the new one.

The rewritten segment is ``BASE.log.cleaned`` and ``BASE.index.cleaned``, both synced. Renaming the index and then the
log to ``.swap`` decides; from then on, also after a crash, the segments that the new one covers go away and it takes
its final name. Every rename is on disk before the next. What it covers is what its index says: from its base offset to
its end offset.
"""

from __future__ import annotations

from pathlib import Path

from headrace.log.files import Files
from headrace.log.segment import segment_name
from headrace.log.segment_index import read_cover

__all__ = ["CLEANED", "finish_swaps", "swap_in"]

CLEANED = ".cleaned"
_SWAP = ".swap"


def swap_in(files: Files, folder: Path, base_offset: int) -> None:
    """Put the cleaned segment of this base offset in place of the segments that it covers."""
    name = segment_name(base_offset)
    for ending in (".index", ".log"):
        files.rename(folder / f"{name}{ending}{CLEANED}", folder / f"{name}{ending}{_SWAP}")
        files.sync_folder(folder)
    _finish(files, folder, base_offset)


def finish_swaps(files: Files, folder: Path) -> None:
    """After a crash: finish what was decided, drop what was not."""
    names = files.names(folder)
    for name in names:
        if name.endswith(f".log{_SWAP}"):
            _finish(files, folder, int(name[:20]))
    for name in files.names(folder):
        if name.endswith((CLEANED, _SWAP, ".new", ".deleted")):
            files.remove(folder / name)


def _finish(files: Files, folder: Path, base_offset: int) -> None:
    name = segment_name(base_offset)
    index = folder / f"{name}.index{_SWAP}"
    cover = read_cover(files, index) or read_cover(files, folder / f"{name}.index")
    if cover is None:
        return
    for other in files.names(folder):
        if other.endswith(".log") and base_offset < int(other[:20]) < cover.end_offset:
            files.remove(folder / f"{other[:20]}.index")
            files.remove(folder / other)
    if files.exists(index):
        files.rename(index, folder / f"{name}.index")
        files.sync_folder(folder)
    files.rename(folder / f"{name}.log{_SWAP}", folder / f"{name}.log")
    files.sync_folder(folder)
