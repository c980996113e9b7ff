"""A broker that compacts, expires and checkpoints as fast as it can, while it is saved again and again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from headrace import _kernel
from headrace.backup.manifest import Manifest
from headrace.backup.restoring import restore
from headrace.backup.saving import save
from headrace.broker.broker import Broker
from headrace.log import LogStore
from headrace.testing.broker import EmbeddedBroker
from tests.faults.campaign import patiently

SMALL = {"internal.segment.bytes": "2000", "file.delete.delay.ms": "0"}
TOPICS = {
    "compacted": SMALL | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    "short": SMALL | {"retention.bytes": "6000"},
}
ROUNDS = 6


@contextlib.contextmanager
def step(what: str, size: int) -> Iterator[Callable[[int], None]]:
    yield lambda done: None


class Bustle:
    """Appends and maintenance on the broker's own loop, until told to end."""

    def __init__(self) -> None:
        self.compactions = 0
        self._ended = False
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self, broker: Broker) -> None:
        for name, overrides in TOPICS.items():
            broker.store.create_topic(name, 1, overrides)
        self._tasks = [asyncio.create_task(self._write(broker)), asyncio.create_task(self._tend(broker))]

    async def end(self, broker: Broker) -> None:
        self._ended = True
        await asyncio.gather(*self._tasks)

    async def _write(self, broker: Broker) -> None:
        number = 0
        while not self._ended:
            for name in TOPICS:
                number += 1
                record = (broker.clock.now_ms(), b"k%d" % (number % 7), b"%0100d" % number, [])
                partition = broker.store.partition(name, 0)
                partition.append(_kernel.build_batch([record]), acks_all=True)
                broker.commit.request(partition)
            await asyncio.sleep(0.002)

    async def _tend(self, broker: Broker) -> None:
        while not self._ended:
            before = broker.store.partition("compacted", 0).cleaned_to
            await broker.maintain_once()
            await asyncio.sleep(0.001)
            self.compactions += broker.store.partition("compacted", 0).cleaned_to > before


def test_each_of_many_backups_is_a_whole_log(tmp_path: Path) -> None:
    bustle = Bustle()
    ends: list[int] = []
    with EmbeddedBroker(tmp_path / "data") as broker:
        broker.run(bustle.begin)
        try:
            for number in range(ROUNDS):
                done = bustle.compactions
                patiently(lambda done=done: bustle.compactions > done, "nothing is compacted")
                saved = save(tmp_path / "data", tmp_path / f"backup-{number}", step)
                restore(tmp_path / f"backup-{number}", tmp_path / f"restored-{number}", step)
                ends.append(end_of_whole(tmp_path / f"restored-{number}", saved.manifest))
        finally:
            broker.run(bustle.end)
    assert ends == sorted(set(ends))


def end_of_whole(data: Path, manifest: Manifest) -> int:
    """Where a topic ends in a restored log, in which nothing is missing."""
    store = LogStore.open(data)
    try:
        for part in manifest.partitions:
            found = store.partition(part["topic"], part["partition"])
            assert (found.log_start, found.end_offset) == (part["log_start"], part["end_offset"])
        short, compacted = store.partition("short", 0), store.partition("compacted", 0)
        assert [record[0] for record in short.replay()] == list(range(short.log_start, short.end_offset))
        newest = {record[2]: record[0] for record in compacted.replay()}
        assert sorted(newest.values()) == list(range(compacted.end_offset - 7, compacted.end_offset))
        return short.end_offset
    finally:
        store.close()
