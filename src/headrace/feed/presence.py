"""Whether the process that wrote an entry of the catalog is still there: one that was killed could not say so.

An entry says on which machine it was written, by which process, and when that process began, because the numbers of
processes are used again. Of other machines nothing is known, so what they said last is what counts.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["GONE", "began", "now", "this_machine"]

GONE = "gone"
_OVER = ("stopped", "failed")


def this_machine() -> str:
    """The machine's name, and which start of it this is."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()}/{boot}"


def began(pid: int) -> int | None:
    """When a process began, in ticks since the machine did; None if there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def now(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry; its state is ``gone`` if the process that should be at work is no more."""
    found = dict(entry)
    ours = found.get("machine") == this_machine()
    if ours and found.get("state") not in _OVER and began(found.get("pid", 0)) != found.get("began"):
        found["state"] = GONE
    return found
