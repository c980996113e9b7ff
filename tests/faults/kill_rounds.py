"""Kills a real node with SIGKILL while idempotent producers write, starts it again, and checks the log; many times.

After every restart: each acknowledged record is at the offset that was acknowledged, each record is there once, each
producer's records are in order without a gap, a partition's offsets have no hole, and the last committed offset of a
group is there. `make faults ROUNDS=1000` runs it.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import confluent_kafka as ck
from confluent_kafka import admin

from tests.servers import Headrace

PARTITIONS = 4
PRODUCERS = 5
ROUNDS_PER_TOPIC = 50
RECORDS_PER_SECOND = 600
QUICK = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20, "log_level": 0}


T = TypeVar("T")


class Lost(AssertionError):
    """The log is not what was promised."""


@dataclass
class Writer:
    """One idempotent producer in a thread of its own, and what was acknowledged to it."""

    bootstrap: str
    topic: str
    number: int
    random: random.Random
    next: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    acknowledged: list[list[int]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    errors: list[str] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        self.producer = ck.Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "batch.num.messages": 50,
                "delivery.timeout.ms": 120_000,
                **QUICK,
            }
        )
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged))

    def _run(self) -> None:
        while not self.stopping.is_set():
            for _ in range(self.random.randrange(1, 20)):
                self._send()
            self.producer.poll(0)
            time.sleep(10 / RECORDS_PER_SECOND)
        if self.producer.flush(60):
            self.errors.append("records were never acknowledged")

    def _send(self) -> None:
        partition = self.random.randrange(PARTITIONS)
        number = self.next[partition]
        self.next[partition] += 1
        value = b"%d:%d:" % (self.number, number) + b"x" * self.random.choice((0, 10, 100, 2000))
        self.producer.produce(self.topic, value, partition=partition, on_delivery=self._delivered)

    def _delivered(self, error: ck.KafkaError | None, message: ck.Message) -> None:
        if error is not None:
            self.errors.append(f"producer {self.number}: {error}")
            return
        known, number = self.acknowledged[message.partition()], int(message.value().split(b":")[1])
        if number != len(known):
            self.errors.append(f"producer {self.number}: record {number} was acknowledged after {len(known) - 1}")
        known.append(message.offset())

    def finish(self) -> None:
        self.stopping.set()
        self.thread.join()


@dataclass
class Group:
    """A consumer group that commits offsets and remembers what was acknowledged."""

    bootstrap: str
    topic: str
    acknowledged: int = -1
    tried: int = -1

    def __post_init__(self) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "group.id": f"{self.topic}-readers", **QUICK}
        self.consumer = ck.Consumer({**settings, "enable.auto.commit": False})

    def commit(self) -> None:
        self.tried += 1
        try:
            self.consumer.commit(offsets=[ck.TopicPartition(self.topic, 0, self.tried)], asynchronous=False)
        except ck.KafkaException:
            return
        self.acknowledged = self.tried

    def check(self) -> None:
        (found,) = _patiently(lambda: self.consumer.committed([ck.TopicPartition(self.topic, 0)], 5))
        offset = -1 if found.offset < 0 else found.offset
        if not self.acknowledged <= offset <= self.tried:
            raise Lost(
                f"offset {self.acknowledged} was committed (tried {self.tried}), after the restart it is {offset}"
            )
        self.acknowledged = offset


@dataclass
class Rounds:
    """The whole campaign."""

    folder: Path
    seed: int
    say: Callable[[str], None] = lambda _: None
    checked: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.node = Headrace(self.folder)

    def run(self, rounds: int) -> None:
        try:
            for first in range(0, rounds, ROUNDS_PER_TOPIC):
                self._season(first, min(rounds, first + ROUNDS_PER_TOPIC))
        finally:
            self.node.stop()

    def _season(self, first: int, last: int) -> None:
        """Rounds on one topic with the same producers."""
        topic = f"killed-{first}"
        client = admin.AdminClient({"bootstrap.servers": self.node.bootstrap, **QUICK})
        client.create_topics([admin.NewTopic(topic, PARTITIONS, 1, config=self._settings())])[topic].result(20)
        writers = [
            Writer(self.node.bootstrap, topic, number, random.Random(self.random.random()))
            for number in range(PRODUCERS)
        ]
        group = Group(self.node.bootstrap, topic)
        for writer in writers:
            writer.start()
        for number in range(first, last):
            self._round(writers, group)
            if (number + 1) % 5 == 0:
                self._check(topic, writers)
            self.say(f"round {number + 1}: {sum(writer.count for writer in writers):,} records acknowledged")
        for writer in writers:
            writer.finish()
        self._check(topic, writers)
        self.checked += sum(writer.count for writer in writers)
        group.consumer.close()
        client.delete_topics([topic])[topic].result(20)

    def _settings(self) -> dict[str, str]:
        return {"segment.bytes": str(self.random.choice((1 << 20, 4 << 20, 1 << 30)))}

    def _round(self, writers: list[Writer], group: Group) -> None:
        before = [writer.count for writer in writers]
        _patiently(lambda: all(writer.count > count for writer, count in zip(writers, before, strict=True)))
        group.commit()
        time.sleep(self.random.random() * 0.3)
        self.node.kill9()
        time.sleep(self.random.choice((0, 0, 0.1)))
        self.node.start()
        group.check()
        for writer in writers:
            if writer.errors:
                raise Lost("; ".join(writer.errors[:3]))

    def _check(self, topic: str, writers: list[Writer]) -> None:
        promised = [[list(part) for part in writer.acknowledged] for writer in writers]
        source = ck.Consumer({"bootstrap.servers": self.node.bootstrap, "group.id": "checker", **QUICK})
        try:
            for partition in range(PARTITIONS):
                found = _read(source, topic, partition)
                _hold(found, [part[partition] for part in promised], partition)
        finally:
            source.close()


def _read(source: ck.Consumer, topic: str, partition: int) -> list[tuple[int, int]]:
    """(producer, number) of every record of a partition; the offset is the index."""
    _, end = _patiently(lambda: source.get_watermark_offsets(ck.TopicPartition(topic, partition), 5))
    source.assign([ck.TopicPartition(topic, partition, 0)])
    found: list[tuple[int, int]] = []
    deadline = time.monotonic() + 60
    while len(found) < end:
        if time.monotonic() > deadline:
            raise Lost(f"partition {partition} ends at {end}, but only {len(found)} records could be read")
        for message in source.consume(10_000, 0.2):
            if message.error() is not None:
                continue
            if message.offset() != len(found):
                raise Lost(f"partition {partition}: offset {message.offset()} after {len(found) - 1}")
            writer, number, _ = message.value().split(b":", 2)
            found.append((int(writer), int(number)))
    source.unassign()
    return found


def _hold(found: list[tuple[int, int]], promised: list[list[int]], partition: int) -> None:
    last = dict.fromkeys(range(PRODUCERS), -1)
    for offset, (writer, number) in enumerate(found):
        if number != last[writer] + 1:
            raise Lost(
                f"partition {partition}, offset {offset}: record {number} of producer {writer} after {last[writer]}"
            )
        last[writer] = number
    for writer, offsets in enumerate(promised):
        for number, offset in enumerate(offsets):
            if offset >= len(found) or found[offset] != (writer, number):
                there = found[offset] if offset < len(found) else "nothing"
                what = f"record {number} of producer {writer}"
                raise Lost(f"partition {partition}: {what} was acknowledged at {offset}; there is {there}")


def _patiently(attempt: Callable[[], T], patience: float = 30.0) -> T:
    deadline = time.monotonic() + patience
    while True:
        try:
            value = attempt()
        except ck.KafkaException:
            value = None
        if value:
            return value
        if time.monotonic() > deadline:
            raise Lost(f"nothing happened in {patience} s")
        time.sleep(0.005)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    chosen = parser.parse_args()
    print(f"{chosen.rounds} rounds, seed {chosen.seed}", flush=True)

    def say(line: str) -> None:
        print(f"\r{line}" if sys.stdout.isatty() else line, end="" if sys.stdout.isatty() else "\n", flush=True)

    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headrace-faults-") as folder:
        campaign = Rounds(Path(folder), chosen.seed, say)
        try:
            campaign.run(chosen.rounds)
        except Lost as problem:
            print(f"\nFAILED (seed {chosen.seed}): {problem}", file=sys.stderr)
            return 1
    took = time.monotonic() - started
    print(
        f"\n{chosen.rounds} kills in {took:.0f} s; {campaign.checked:,} acknowledged records, each there once, in order"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
