"""One topic of one partition on a disk that loses what was not synced."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace import _kernel
from headrace.log import LogStore, PartitionLog
from headrace.testing.clock import ManualClock
from headrace.testing.files import LossyFiles

FOLDER = Path("/data")


class Bench:
    """A store on a lossy disk, with shortcuts."""

    def __init__(self, overrides: dict[str, str] | None = None, files: LossyFiles | None = None) -> None:
        self.clock = ManualClock()
        self.files = files or LossyFiles()
        self.overrides = {"internal.segment.bytes": "1000"} | (overrides or {})
        self.store = LogStore.open(FOLDER, files=self.files, clock=self.clock)
        if "t" not in self.store.topics:
            self.store.create_topic("t", 1, self.overrides)

    @property
    def log(self) -> PartitionLog:
        return self.store.partition("t", 0)

    @property
    def folder(self) -> Path:
        return self.log.place.folder

    def append(self, *values: bytes, key: bytes | None = b"k", acks_all: bool = False, **batch: int) -> int:
        now = self.clock.now_ms()
        records = [(now, key, value, []) for value in values]
        return self.log.append(_kernel.build_batch(records, **batch), acks_all=acks_all).base_offset

    def append_durably(self, *values: bytes, **options: object) -> int:
        offset = self.append(*values, acks_all=True, **options)  # type: ignore[arg-type]
        self.sync()
        return offset

    def sync(self) -> None:
        job = self.log.start_sync()
        if job is not None:
            job.run()
            self.log.finish_sync(job)

    def maintain(self) -> list[str]:
        done = []
        for job in self.store.jobs():
            job.run()
            job.finish()
            done.append(type(job).__name__)
        return done

    def read_all(self, start: int | None = None) -> list[tuple[int, bytes | None, bytes | None]]:
        log, found = self.log, []
        offset = log.log_start if start is None else start
        while True:
            result = log.read(offset, 500)
            if not result.data:
                return found
            found += [(r[0], r[2], r[3]) for r in _kernel.records(result.data) if r[0] >= offset]
            assert result.next_offset > offset
            offset = result.next_offset

    def values(self) -> list[bytes | None]:
        return [value for _, _, value in self.read_all()]

    def reopen(self) -> None:
        """Stop cleanly and start again."""
        self.store.close()
        self.store = LogStore.open(FOLDER, files=self.files, clock=self.clock)

    def kill(self) -> None:
        """The process dies, the machine goes on: nothing written is lost."""
        self.files.locked.clear()
        self.store = LogStore.open(FOLDER, files=self.files, clock=self.clock)

    def lose_power(self, seed: int = 0) -> None:
        """The machine dies: what was not synced may be lost or torn."""
        self.files = self.files.crash(seed)
        self.store = LogStore.open(FOLDER, files=self.files, clock=self.clock)


@pytest.fixture
def bench() -> Bench:
    return Bench()
