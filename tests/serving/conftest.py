"""An API over a log in memory, in the test's own process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from headrace.feed import Feed
from headrace.serving.api import build_api
from headrace.serving.hub import Hub
from headrace.serving.source import Source
from headrace.views.catalog import CATALOG_TOPIC
from headrace.views.places import stores_at
from headrace.views.store import SqlLimits
from tests.views.memory_feed import MemoryFeed, view_entry

COLUMNS = {"region": "string", "day": "date", "revenue": "double", "open": "boolean", "tags": "array<string>"}


def row(region: str, revenue: float) -> dict[str, Any]:
    return {"region": region, "day": "2026-01-02", "revenue": revenue, "open": True, "tags": ["a"]}


class Site:
    """A client of the API, and the log behind it."""

    def __init__(self, client: TestClient, hub: Hub, feed: MemoryFeed) -> None:
        self.client = client
        self.hub = hub
        self.feed = feed

    def declare(
        self,
        app: str = "shop",
        name: str = "sales",
        columns: dict[str, str] = COLUMNS,
        key: Any = ("region",),
        **more: Any,
    ) -> None:
        entry = view_entry(app, name, list(key), columns, **more)
        if entry["topic"] not in self.feed.topics:
            self.feed.create(entry["topic"])
        self.feed.append(CATALOG_TOPIC, f"view/{app}/{name}".encode(), entry)
        self.wait("/ready", lambda told: told["ready"] and self.is_built(app, name, entry["topic"]))

    def is_built(self, app: str, name: str, topic: str) -> bool:
        state = self.hub.states.get((app, name))
        return state is not None and state.build > 0 and state.spec.topic == topic

    def put(self, region: str, revenue: float | None, topic: str = "shop.sales") -> None:
        self.feed.append(topic, {"region": region}, None if revenue is None else row(region, revenue))
        at = self.feed.topics[topic][0].end
        name = topic.partition(".")[2]
        assert self.client.get(f"/views/{name}?limit=0&wait_for=0:{at}&timeout=30").status_code == 200

    def get(self, path: str, status: int = 200) -> Any:
        answer = self.client.get(path)
        assert answer.status_code == status, answer.text
        return answer.json()

    def query(self, sql: str, status: int = 200, **more: Any) -> Any:
        answer = self.client.post("/query", json={"sql": sql, **more})
        assert answer.status_code == status, answer.text
        return answer.json()

    def wait(self, path: str, good: Any) -> Any:
        for _ in range(3000):
            told = self.client.get(path).json()
            if good(told):
                return told
            time.sleep(0.01)
        raise AssertionError(f"{path} never came to be so: {told}")


ROWS = (("EU", 1.5), ("US", 10.0), ("AS/PAC", 2.5))


@contextmanager
def running(folder: Path, feed: MemoryFeed, opened: Callable[[], Feed] | None = None) -> Iterator[Site]:
    """``opened``: how the hub opens the log, if not at once."""
    hub = Hub(stores_at(None, folder / "views"), opened or (lambda: feed))
    api = build_api(hub, "127.0.0.1", Source(lambda: feed), limits=SqlLimits(seconds=2.0, rows=50))
    with TestClient(api, "http://127.0.0.1:8080") as client:
        yield Site(client, hub, feed)


@contextmanager
def three_rows(folder: Path) -> Iterator[Site]:
    feed = MemoryFeed(rows_at_once=1000)
    feed.append(CATALOG_TOPIC, b"view/shop/sales", view_entry("shop", "sales", ["region"], COLUMNS))
    for region, revenue in ROWS:
        feed.append("shop.sales", {"region": region}, row(region, revenue))
    with running(folder, feed) as site:
        site.wait("/ready", lambda told: told["ready"] and site.is_built("shop", "sales", "shop.sales"))
        yield site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A site without views."""
    with running(tmp_path, MemoryFeed(rows_at_once=1000)) as made:
        yield made


@pytest.fixture
def sales(tmp_path: Path) -> Iterator[Site]:
    """A site with one view of three rows, to be changed."""
    with three_rows(tmp_path) as made:
        yield made


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The same, to be read."""
    with three_rows(tmp_path_factory.mktemp("shop")) as made:
        yield made
