"""What a server's processes use: memory, processor time, open files; read from /proc."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    found = [pid]
    for parent in found:
        with suppress(FileNotFoundError, ProcessLookupError):  # it, or a thread of it, has ended meanwhile
            for task in Path(f"/proc/{parent}/task").glob("*/children"):
                found += map(int, task.read_text().split())
    return found


def resident_mb(pid: int) -> float:
    return sum(_status(one, "VmRSS") for one in family(pid)) / 1024


def peak_mb(pid: int) -> float:
    return sum(_status(one, "VmHWM") for one in family(pid)) / 1024


def cpu_seconds(pid: int) -> float:
    """Of a process and of all the descendants that it has had since this was first asked.

    What the kernel adds up of ended children will not do: nobody waits for Spark's Python processes, so theirs is
    lost. The first question begins to look at the family twice a second; what an ended one used since the last look is
    not counted."""
    with _ASKING:
        if pid not in _FAMILIES:
            _FAMILIES[pid] = _Family(pid)
        return _FAMILIES[pid].seconds()


def open_files(pid: int) -> int:
    return sum(len(os.listdir(f"/proc/{one}/fd")) for one in family(pid))


class _Family:
    """A process and its descendants; remembers those that have ended."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen: dict[tuple[int, int], int] = {}
        self._looking = threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    def seconds(self) -> float:
        with self._looking:
            self._seen |= _ticks(self._pid)
            return sum(self._seen.values()) / TICK

    def _watch(self) -> None:
        while Path(f"/proc/{self._pid}").exists():
            self.seconds()
            time.sleep(0.5)


_FAMILIES: dict[int, _Family] = {}
_ASKING = threading.Lock()


class Others:
    """How much of the machine's processor time others use while a block runs: a figure is worth little if that is much.

    Looks at all that this process has started, twice a second, and at what the machine has used in all."""

    def __init__(self) -> None:
        self._ours = self._busy = 0
        self._began = 0.0
        self._seen: dict[tuple[int, int], int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Others:
        self._seen = _ticks(os.getpid())
        self._began, self._busy = time.monotonic(), _busy_ticks()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def percent(self) -> float:
        """Of all processors, since the block began."""
        there = (time.monotonic() - self._began) * TICK * (os.cpu_count() or 1)
        return 100 * max(0, _busy_ticks() - self._busy - self._ours) / there

    def _watch(self) -> None:
        while not self._over.wait(0.5):
            found = _ticks(os.getpid())
            self._ours += sum(ticks - self._seen.get(one, 0) for one, ticks in found.items())
            self._seen = found


def _ticks(pid: int) -> dict[tuple[int, int], int]:
    """Processor time of a process and each of its descendants, by their numbers and when they began."""
    found = {}
    for one in family(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            found[one, int(fields[19])] = int(fields[11]) + int(fields[12])
    return found


def _busy_ticks() -> int:
    """Processor time that the machine has used: all but idle and waiting for disks."""
    user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
    return user + nice + system + sum(rest[:3])


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    return 0
