"""A real node with views whose changelogs the test writes, as a query's sink would: in transactions."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.client import Client, connect
from headrace.views.catalog import CATALOG_TOPIC
from tests.servers import Headrace
from tests.views.memory_feed import as_json, view_entry

T = TypeVar("T")
PATIENCE_S = 90.0


def eventually(look: Callable[[], T], good: Callable[[T], object], patience: float = PATIENCE_S) -> T:
    """What is looked at, once it is good; what a restarting node throws in the meantime is waited out."""
    deadline, last = time.monotonic() + patience, ""
    while time.monotonic() < deadline:
        try:
            if good(found := look()):
                return found
            last = repr(found)[:500]
        except Exception as error:
            last = repr(error)
        time.sleep(0.05)
    raise AssertionError(f"it never came to be: {last}")


class LiveNode:
    """A node that serves views, and a writer of changelogs."""

    def __init__(self, folder: Path) -> None:
        self.node = Headrace(folder, http="127.0.0.1:0")
        self.admin = AdminClient({"bootstrap.servers": self.node.bootstrap, "log_level": 0})
        self.producer = ck.Producer(
            {"bootstrap.servers": self.node.bootstrap, "transactional.id": "sink", "log_level": 0, "linger.ms": 5}
        )
        self.producer.init_transactions(30)
        self._create(CATALOG_TOPIC, 1)

    @property
    def client(self) -> Client:
        return connect(self.node.web)

    def _create(self, topic: str, partitions: int) -> None:
        new = NewTopic(topic, partitions, 1, config={"cleanup.policy": "compact"})
        self.admin.create_topics([new])[topic].result(30)

    def declare(
        self, app: str, name: str, key: list[str], columns: Mapping[str, str], *, partitions: int = 2, **more: Any
    ) -> None:
        entry = view_entry(app, name, key, columns, **more)
        self._create(entry["topic"], partitions)
        self.write(CATALOG_TOPIC, [(f"view/{app}/{name}".encode(), entry)])

    def write(self, topic: str, records: list[tuple[Any, Any]], *, abort: bool = False) -> None:
        self.producer.begin_transaction()
        for key, value in records:
            self.producer.produce(topic, as_json(value), as_json(key))
        if abort:
            self.producer.flush(30)
            self.producer.abort_transaction(30)
        else:
            self.producer.commit_transaction(30)

    def rows(self, view: str) -> list[dict[str, Any]]:
        return self.client.view(view).rows()

    def get(self, path: str) -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(self.node.web + path, timeout=30) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def server_pid(self) -> int:
        """The process that serves views."""
        return eventually(lambda: [pid for pid in _children(self.node.pid) if _serves(pid)], lambda found: bool(found))[
            0
        ]

    def stop(self) -> None:
        self.node.stop()


def _children(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _serves(pid: int) -> bool:
    return b"headrace.serving" in Path(f"/proc/{pid}/cmdline").read_bytes()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@contextmanager
def live_node(folder: Path) -> Iterator[LiveNode]:
    node = LiveNode(folder)
    try:
        yield node
    finally:
        node.stop()
