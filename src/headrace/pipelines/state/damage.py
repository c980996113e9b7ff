"""Files of Spark's state store that are damaged or gone: what Spark says of them, as an error that says what to do.

A chunk that is damaged within the store is found by its own checksum (``chunks``); a file of the store by Spark, whose
error says neither whose state it is nor the way on. Not every state that cannot be loaded is lost: the disk may be
full, the machine short of memory, a store far away unreachable.
"""

from __future__ import annotations

import re

from headrace.errors import HeadraceError
from headrace.pipelines.state.chunks import ANEW

__all__ = ["DamagedState", "state_lost"]

_UNLOADED = re.compile(r"\[CANNOT_LOAD_STATE_STORE\.(\w+)\]")
_MAY_COME_BACK = re.compile(r"OUT_OF_MEMORY|UNRELEASED_THREAD_ERROR|CHANGELOG_WRITER|UNCATEGORIZED")
_DAMAGED = re.compile(
    r"ChecksumException|ZipException|Stream is corrupted|RocksDBException: Corruption|java\.io\.EOFException$",
    re.MULTILINE,
)
_MISSING = re.compile(r"^.*(?:FileNotFound|NoSuchFile)Exception(?!.*\((?!No such file)[A-Z]).*$", re.MULTILINE)
"""Java says a file is not found, with the system's reason in brackets, also if it is there and cannot be opened now."""
_FILE = re.compile(r"/(state/\d+/\d+/[\w./-]*\w)")


class DamagedState(HeadraceError):
    """A file of the state is damaged or gone."""


def state_lost(error: BaseException, query: str, folder: str) -> DamagedState | None:
    """What is told of a query's failure if its state in a checkpoint folder cannot be read, now or ever."""
    text = str(error)
    found = _UNLOADED.search(text)
    if found is None:
        return None
    missing = any(folder in line for line in _MISSING.findall(text))
    if _MAY_COME_BACK.search(found[1]) and not missing and not _DAMAGED.search(text):
        return None
    file = _FILE.search(text, found.start())
    what = "a file" if file is None else f"the file {file[1]}"
    return DamagedState(
        f"the state of {query} cannot be read: {what} is damaged or gone.", detail=f"in {folder}", hint=ANEW
    )
