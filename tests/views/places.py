"""Where the stores of a test are: a folder, or a database of a real PostgreSQL server, emptied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace.views.places import stores_at
from headrace.views.store import Stores
from tests.capture.databases import Postgres

KINDS = [pytest.param("sqlite"), pytest.param("postgres", marks=pytest.mark.system)]


@dataclass(frozen=True)
class Place:
    """``stores`` are those of a process that has just started."""

    stores: Callable[[], Stores]
    wipe: Callable[[], None]

    @staticmethod
    def fresh(request: pytest.FixtureRequest, kind: Any = None) -> Place:
        """An empty place, of the kind that the fixture or the test has as its parameter."""
        if (kind or request.param) == "sqlite":
            return _files(request.getfixturevalue("tmp_path_factory").mktemp("stores"))
        return _schema(request.getfixturevalue("postgres"))


def _files(folder: Path) -> Place:
    def wipe() -> None:
        for path in folder.glob("*.sqlite*"):
            path.unlink()

    return Place(lambda: stores_at(None, folder), wipe)


def _schema(server: Postgres) -> Place:
    def wipe() -> None:
        server.execute("drop schema if exists shop cascade", "views")

    wipe()
    return Place(lambda: stores_at(server.dsn("views"), Path()), wipe)
