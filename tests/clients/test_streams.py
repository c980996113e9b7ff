"""Kafka Streams on Headrace: a word count with exactly_once_v2, while its process and the node are killed."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import admin

from tests.servers import Headrace, die_with_parent, free_port, java

HERE = Path(__file__).resolve().parent
WORDS = ("flume", "weir", "sluice", "race", "mill", "pond", "wheel")


class WordCount:
    """The Streams application in a process that can be killed and started again."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.folder = folder
        self.starts = 0
        self._classes = folder / "classes"
        source = HERE / "java" / "WordCount.java"
        jars = java("")[-2]
        subprocess.run(["javac", "-d", str(self._classes), "-cp", jars, str(source)], check=True, capture_output=True)
        self.start()

    def start(self) -> None:
        self.starts += 1
        state = self.folder / f"state-{self.starts}"
        command = java("WordCount", self.bootstrap, "lines", "counts", str(state), heap="192m")
        command[command.index("-cp") + 1] += f":{self._classes}"
        self._output = (self.folder / "streams.log").open("ab")
        self.process = subprocess.Popen(
            command, stdout=self._output, stderr=subprocess.STDOUT, preexec_fn=die_with_parent
        )

    def end(self, how: signal.Signals) -> None:
        self.process.send_signal(how)
        self.process.wait(60)
        self._output.close()

    def said(self) -> str:
        return (self.folder / "streams.log").read_text(errors="replace")[-4000:]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Headrace]:
    node = Headrace(tmp_path / "node", port=free_port(), options=["--set", "group.initial.rebalance.delay.ms=0"])
    client = admin.AdminClient({"bootstrap.servers": node.bootstrap})
    for made in client.create_topics([admin.NewTopic("lines", 2, 1), admin.NewTopic("counts", 2, 1)]).values():
        made.result(20)
    yield node
    if node.running:
        node.kill9()


class Counts:
    """All counts that were committed, in their order, by word."""

    def __init__(self, bootstrap: str) -> None:
        self.found: dict[str, list[int]] = defaultdict(list)
        self._source = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "counts-reader", "isolation.level": "read_committed"}
        )
        self._source.assign([confluent_kafka.TopicPartition("counts", index, 0) for index in range(2)])

    def until(self, enough: Callable[[], bool], application: WordCount, patience: float = 90.0) -> None:
        deadline = time.monotonic() + patience
        while not enough():
            assert time.monotonic() < deadline, f"the counts are {self.totals()}:\n{application.said()}"
            for message in self._source.consume(1000, 0.2):
                if message.error() is None:
                    self.found[message.key().decode()].append(int.from_bytes(message.value(), "big"))

    def totals(self) -> dict[str, int]:
        return {word: counts[-1] for word, counts in self.found.items()}

    def total(self) -> int:
        return sum(map(len, self.found.values()))

    def close(self) -> None:
        self._source.close()


@pytest.mark.timeout(900)
def test_a_word_count_counts_every_word_once_though_all_are_killed(server: Headrace, tmp_path: Path) -> None:
    dice = random.Random(7)
    written: Counter[str] = Counter()
    sender = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True})

    def write(lines: int) -> None:
        for number in range(lines):
            words = dice.choices(WORDS, k=5)
            written.update(words)
            sender.produce("lines", " ".join(words), partition=number % 2)
        assert sender.flush(60) == 0

    write(400)
    application, counts = WordCount(server.bootstrap, tmp_path), Counts(server.bootstrap)
    try:
        counts.until(lambda: counts.total() > 0, application)
        write(400)
        application.end(signal.SIGKILL)
        application.start()
        counts.until(lambda: counts.total() > 2500, application)
        write(400)
        server.kill9()
        server.start()
        write(400)
        counts.until(lambda: counts.total() >= written.total(), application)
    finally:
        application.end(signal.SIGKILL)
        counts.close()
    assert counts.totals() == written
    for word, found in counts.found.items():
        assert found == list(range(1, len(found) + 1)), word
