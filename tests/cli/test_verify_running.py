"""``headrace log verify`` beside a node at work, and after one was killed."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.cli.command import Cli
from tests.servers import Headrace

pytestmark = pytest.mark.system


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Headrace]:
    node = Headrace(tmp_path, options=("--set", "log.cleaner.backoff.ms=200"))
    yield node
    node.stop()


@contextmanager
def written_to(node: Headrace) -> Iterator[None]:
    """Somebody keeps writing to topic busy."""
    done = threading.Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 2, "log_level": 0})
        for number in itertools.count():
            producer.produce("busy", key=str(number % 50), value=bytes(500))
            if number % 500 == 499:
                producer.flush(1)
                if done.wait(0.02):
                    break
        producer.purge()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        done.set()
        writer.join()


def verified(node: Headrace) -> Any:
    ran = Cli().run("log", "verify", str(node.data), "-o", "json")
    assert ran.code == 0, ran.out + ran.err
    return ran.json


def test_a_node_at_work_and_one_that_was_killed_verify_as_good(node: Headrace) -> None:
    settings = ("segment.bytes=1048576", "cleanup.policy=compact", "min.cleanable.dirty.ratio=0.01")
    options = itertools.chain.from_iterable(("--set", setting) for setting in settings)
    Cli(node.bootstrap)("topic", "create", "busy", "-p", "2", *options)
    with written_to(node):
        while verified(node)["segments"] < 4:
            pass
        for _ in range(4):
            during = verified(node)
        node.kill9()
    assert verified(node)["records"] > 0
    node.start()
    assert verified(node)["records"] > 0
    assert during["partitions"] == 2
