"""A real node with views whose changelogs the test writes, as a query's sink would: in transactions."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import confluent_kafka as ck

from headrace.client import Client, connect
from headrace.feed.cluster import Cluster
from headrace.feed.topics import COMPACTED, ensure_topic
from headrace.views.catalog import CATALOG_TOPIC
from tests.servers import Headrace, Server, ViewsNode
from tests.views.memory_feed import as_json, view_entry

T = TypeVar("T")
PATIENCE_S = 240.0


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


class Changelogs:
    """Writes changelogs of views, and declares them."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._cluster = Cluster(bootstrap, {})
        self.admin = self._cluster.admin
        self.producer = self._sink()
        self._create(CATALOG_TOPIC, 1)

    def _sink(self) -> ck.Producer:
        name = f"sink-{uuid.uuid4()}"
        settings = {"bootstrap.servers": self._bootstrap, "transactional.id": name, "log_level": 0, "linger.ms": 5}
        producer = ck.Producer(settings)
        producer.init_transactions(60)
        return producer

    def _create(self, topic: str, partitions: int) -> None:
        ensure_topic(self._cluster, topic, partitions, COMPACTED)

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


class LiveNode(Changelogs):
    """A node that serves views, and a writer of changelogs. ``log``: of another server."""

    def __init__(self, folder: Path, env: Mapping[str, str] | None = None, log: Server | None = None) -> None:
        self.node = (
            Headrace(folder, http="127.0.0.1:0", env=env) if log is None else ViewsNode(folder, log.bootstrap, env=env)
        )
        super().__init__(self.node.bootstrap)

    @property
    def client(self) -> Client:
        return connect(self.node.web)

    def rows(self, view: str) -> list[dict[str, Any]]:
        return self.client.view(view).rows()

    def get(self, path: str) -> tuple[int, Any]:
        return self._told(urllib.request.Request(self.node.web + path))

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        return self._told(urllib.request.Request(self.node.web + path, json.dumps(body).encode(), method="POST"))

    def _told(self, request: urllib.request.Request) -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
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
def live_node(folder: Path, env: Mapping[str, str] | None = None, log: Server | None = None) -> Iterator[LiveNode]:
    node = LiveNode(folder, env, log)
    try:
        yield node
    finally:
        node.stop()
