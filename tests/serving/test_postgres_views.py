"""A node that keeps its views in PostgreSQL: read the same way, whatever happens to either."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.capture.databases import Postgres, need_postgres
from tests.cli.command import Cli
from tests.servers import free_port
from tests.serving.live import LiveNode, eventually, live_node
from tests.serving.test_node import SALES, sale

pytestmark = pytest.mark.system

SECRET = "pw-of-headrace"
ROUNDS = 6


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    need_postgres()
    server = Postgres(wal_level="minimal", settings={"max_wal_senders": "0"})
    server.execute(f"create role headrace login password '{SECRET}'")
    server.execute("create database views owner headrace")
    yield server
    server.close()


@pytest.fixture(scope="module")
def address(postgres: Postgres) -> str:
    return postgres.dsn("views", "headrace", SECRET)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, address: str) -> Iterator[LiveNode]:
    with live_node(tmp_path_factory.mktemp("live"), {"HEADRACE_VIEWS": address}) as node:
        node.declare("shop", "sales", ["region", "minute"], SALES)
        node.write("shop.sales", [sale(region, minute) for region in ("EU", "US") for minute in range(5)])
        eventually(lambda: node.rows("sales"), lambda rows: len(rows) == 10)
        yield node


def test_views_are_read_the_same_way(live: LiveNode, postgres: Postgres) -> None:
    cli, node = Cli(), ("--node", live.node.web)
    told = cli("view", "get", "sales", "EU", "2026-01-02T03:01:00Z", "-o", "json", *node).json
    assert told["row"] == {"region": "EU", "minute": "2026-01-02T03:01:00.000000Z", "revenue": 1.5, "orders": 1}
    lines = cli("view", "get", "sales", "--where", "region=EU", "--order=-minute", "--limit", "2", *node).lines
    assert [line.split()[1] for line in lines[1:]] == ["2026-01-02T03:04:00.000000Z", "2026-01-02T03:03:00.000000Z"]
    answer = cli("view", "query", "SELECT count(*) AS n FROM sales WHERE region = 'EU'", "-o", "json", *node).json
    assert answer["rows"] == [[5]]
    assert answer["versions"]["shop.sales"] == live.client.view("sales").read()["version"]
    assert "only SELECT over views is allowed" in cli.fails("view", "query", "DROP VIEW shop.sales", *node)
    watched = cli("view", "watch", "sales", "--from", "start", "--until", "0:1,1:1", "-o", "json", *node).ndjson
    assert watched[0]["kind"] == "change"
    table = live.client.view("sales").to_arrow(where=["region=EU"])
    assert [str(kind) for kind in table.schema.types] == ["string", "timestamp[us, tz=UTC]", "double", "int64"]
    assert postgres.execute("select sum(orders), max(minute)::text from shop.sales", "views") == [
        (10, "2026-01-02 03:04:00+00")
    ]
    assert not list((live.node.data / "views").glob("*")) if (live.node.data / "views").exists() else True


def test_a_server_that_goes_away_is_waited_for(live: LiveNode, postgres: Postgres) -> None:
    """Those who follow a view are not told that it was rebuilt, and readers are told why they get nothing."""
    seen: list[Any] = []
    version = live.client.view("sales").read()["version"]

    def watch() -> None:
        for change in live.client.view("sales").changes(version):
            seen.append(change)
            if change.key and change.key["region"] == "W":
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    postgres.kill9()
    live.write("shop.sales", [sale("V", 0)])
    status, told = eventually(lambda: live.get("/ready"), lambda answer: answer[0] == 503)
    assert "is away" in told["reason"] or "does not answer" in told["reason"]
    status, told = live.get("/views/sales")
    assert (status, f"127.0.0.1:{postgres.port}" in told["error"]) == (503, True)
    postgres.start()
    live.write("shop.sales", [sale("W", 0)])
    eventually(lambda: live.rows("sales"), lambda rows: len(rows) == 12)
    eventually(lambda: live.get("/ready"), lambda answer: answer[0] == 200)
    watcher.join(90)
    assert [(change.kind, change.key["region"]) for change in seen] == [("change", "V"), ("change", "W")]


def test_the_password_is_nowhere(live: LiveNode, postgres: Postgres) -> None:
    assert f"views in postgresql://headrace@127.0.0.1:{postgres.port}/views" in live.node.output
    told = live.node.output + str(live.get("/views")) + str(live.get("/ready")) + str(live.get("/queries"))
    assert SECRET not in told
    for pid in (live.node.pid, live.server_pid()):
        assert SECRET.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    for path in live.node.folder.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


def test_views_end_right_whatever_is_killed(tmp_path: Path, postgres: Postgres, address: str) -> None:
    """The process that serves, the whole node, or PostgreSQL is killed again and again while a view changes."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with live_node(tmp_path, {"HEADRACE_VIEWS": address}) as live:
        live.declare("bazaar", "sales", ["region"], SALES)
        model: dict[str, Any] = {}
        for number in range(ROUNDS):
            changes = []
            for _ in range(chance.randrange(1, 400)):
                region = f"r{chance.randrange(200)}"
                _, row = sale(region, number, chance.random(), chance.randrange(1 << 40))
                gone = chance.random() < 0.2
                model.pop(region, None)
                if not gone:
                    model[region] = row
                changes.append(({"region": region}, None if gone else row))
            eventually(lambda: live.get("/queries"), lambda told: told[0] == 200)
            live.write("bazaar.sales", changes)
            threading.Event().wait(chance.random() * 0.15)
            if number % 3 == 0:
                postgres.kill9()
                postgres.start()
            elif number % 3 == 1:
                os.kill(live.server_pid(), signal.SIGKILL)
            else:
                live.node.kill9()
                live.node.start()
        eventually(lambda: {row["region"]: row for row in live.rows("sales")}, lambda found: found == model)


def test_a_node_does_not_start_without_its_database(tmp_path: Path, postgres: Postgres) -> None:
    where = ("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
    away = Cli().fails("up", *where, "--views", f"postgresql://headrace:{SECRET}@127.0.0.1:{free_port()}/views")
    assert "does not answer" in away
    wrong = Cli().fails("up", *where, "--views", f"postgresql://headrace:no{SECRET}@127.0.0.1:{postgres.port}/views")
    assert "refuses the password of user 'headrace'" in wrong
    other = Cli().fails("up", *where, "--views", f"redis://headrace:{SECRET}@127.0.0.1/views")
    assert "views cannot be kept in redis" in other
    alone = Cli().fails(
        "up", *where[:4], "--http", "none", "--views", f"postgresql://headrace:{SECRET}@127.0.0.1/views"
    )
    assert "nobody keeps views" in alone
    assert SECRET not in away + wrong + other + alone
    assert not (tmp_path / "data").exists()
