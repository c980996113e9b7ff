"""Stores in a schema of a real PostgreSQL server, and work on them that is stopped in the middle."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError
from headrace.views.places import stores_at
from headrace.views.postgres.address import PostgresAddress
from headrace.views.postgres.ownership import Owner
from headrace.views.postgres.store import PostgresStores
from tests.capture.databases import Postgres
from tests.views.places import Place
from tests.views.store_laws import Opened


def emptied(server: Postgres) -> str:
    server.execute("drop schema if exists shop cascade", "views")
    return server.dsn("views")


def opened_at(dsn: str, copy_from: int = 100, owner: Owner | None = None) -> Opened:
    stores = PostgresStores(PostgresAddress(dsn), owner, copy_from)
    return Opened(stores.open("shop"), stores.reader(lambda: ["shop"]), stores)


def place_at(dsn: str) -> Place:
    return Place(lambda: stores_at(dsn, Path()), lambda: None)


def until(good: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not good():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)


def waiting(server: Postgres) -> int:
    """How many of our connections wait for a lock."""
    found = server.execute(
        "select count(*) from pg_stat_activity where application_name = 'headrace views' and wait_event_type = 'Lock'"
    )
    return int(found[0][0])


class blocked:
    """Work that is stopped in the middle of its transaction for the length of the block: rows are locked by us."""

    def __init__(self, server: Postgres, work: Callable[[], Any]) -> None:
        self.server = server
        self.error: Exception | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self._work()
        except HeadraceError as error:
            self.error = error

    def __enter__(self) -> blocked:
        self._lock = self.server.connect("views")
        self._lock.execute("begin; lock table shop.headrace_offsets in share mode")
        self._thread.start()
        until(lambda: waiting(self.server) == 1)
        return self

    def __exit__(self, *_: Any) -> None:
        if not self._lock.closed:
            self._lock.close()
        self._thread.join(60)
