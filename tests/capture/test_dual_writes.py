"""Two clients change the same rows of a database, and others follow. If the clients tell the log themselves (dual
writes), the log ends with another value than the database, for ever. If the log follows the database, it does not."""

from __future__ import annotations

import json
import random
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import headrace as hr
from headrace.feed import open_feed
from headrace.testing import AppUnderTest

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

ITEMS = 5


def shop(path: Path) -> hr.App:
    app = hr.App("shop")
    app.table("told", "id long, price long", key="id")
    app.table("followed", "id long, price long", key="id", capture=hr.SQLite(path, table="prices"))

    @app.view(key="id")
    def view_of_told(told):  # type: ignore[no-untyped-def]
        return told.changes

    @app.view(key="id")
    def view_of_followed(followed):  # type: ignore[no-untyped-def]
        return followed.changes

    return app


class Client:
    """Changes a price in the database, and tells the log of it; each when it is its turn."""

    def __init__(self, path: Path, bootstrap: str) -> None:
        self._database = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
        self._log = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})

    def write(self, item: int, price: int) -> None:
        change = "INSERT INTO prices VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET price = excluded.price"
        self._database.execute(change, (item, price))

    def tell(self, item: int, price: int) -> None:
        self._log.produce("told", key=json.dumps({"id": item}), value=json.dumps({"id": item, "price": price}))
        self._log.flush(30)

    def close(self) -> None:
        self._database.close()


def database(path: Path) -> dict[int, int]:
    with closing(sqlite3.connect(path)) as reading:
        return dict(reading.execute("SELECT id, price FROM prices"))


def view(run: AppUnderTest, name: str) -> dict[int, int]:
    return {row["id"]: row["price"] for row in run.view(name)}


def search_index(run: AppUnderTest, topic: str) -> dict[int, int]:
    """Another store that somebody keeps from the same topic, with a program of their own."""
    index: dict[int, int] = {}
    feed = open_feed(run.bootstrap, run.folder / "data")
    for partition, (start, end) in feed.bounds(topic).items():
        for batch in feed.read(topic, partition, start, end):
            for record in batch.to_pylist():
                key, value = json.loads(record["key"])["id"], _row(record["value"])
                index.pop(key, None) if value is None else index.update({key: value["price"]})
    feed.close()
    return index


def _row(value: bytes | None) -> dict[str, Any] | None:
    told = None if value is None else json.loads(value)
    return told if told is None or "op" not in told else told["after"]


def test_dual_writes_end_with_a_log_that_differs_and_capture_does_not(tmp_path: Path) -> None:
    path = tmp_path / "shop.sqlite"
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE prices (id INTEGER PRIMARY KEY, price INTEGER)")
    with AppUnderTest(shop(path), tmp_path) as run:
        one, other = Client(path, run.bootstrap), Client(path, run.bootstrap)
        one.write(1, 10)  # both do the right thing, one a moment after the other
        other.write(1, 20)
        other.tell(1, 20)
        one.tell(1, 10)
        run.capture()
        assert database(path) == {1: 20}
        assert view(run, "view_of_told") == search_index(run, "told") == {1: 10}, "the anomaly"
        assert view(run, "view_of_followed") == search_index(run, "followed") == database(path)

        seed = random.SystemRandom().randrange(10**6)
        print(f"seed {seed}")
        racers = [threading.Thread(target=_race, args=(client, seed + n)) for n, client in enumerate((one, other))]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        run.capture()
        assert view(run, "view_of_followed") == search_index(run, "followed") == database(path)
        assert len(database(path)) == ITEMS
        one.close()
        other.close()


def _race(client: Client, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(60):
        client.write(chance.randrange(ITEMS), chance.randrange(1000))
    for item in range(ITEMS):
        client.write(item, seed)
