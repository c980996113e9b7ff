"""What a server's processes use: memory, processor time, open files; read from /proc."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                found += map(int, task.read_text().split())
    return found


def resident_mb(pid: int) -> float:
    return sum(_status(one, "VmRSS") for one in family(pid)) / 1024


def peak_mb(pid: int) -> float:
    return sum(_status(one, "VmHWM") for one in family(pid)) / 1024


def cpu_seconds(pid: int) -> float:
    """Of a process and its descendants, those that have ended and were waited for included."""
    total = 0
    for one in family(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15]))
    return total / TICK


def open_files(pid: int) -> int:
    return sum(len(os.listdir(f"/proc/{one}/fd")) for one in family(pid))


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    return 0
