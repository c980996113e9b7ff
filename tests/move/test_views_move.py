"""A node's views in PostgreSQL go on with the log that was moved: at their versions, with nothing built anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.client import connect
from tests.capture.databases import Postgres, postgres_bin
from tests.cli.command import Cli
from tests.servers import Headrace, ViewsNode
from tests.serving.live import Changelogs, LiveNode, eventually

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

SALES = "store.sales"


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    if postgres_bin() is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    server = Postgres(wal_level="minimal", settings={"max_wal_senders": "0"})
    server.create("views")
    yield server
    server.close()


def test_views_in_postgresql_go_on_and_the_node_that_was_left_writes_no_more(
    tmp_path: Path, postgres: Postgres
) -> None:
    env = {"HEADRACE_VIEWS": postgres.dsn("views")}
    old, target = LiveNode(tmp_path / "old", env), Headrace(tmp_path / "target")
    move = ("move", "--to", f"kafka://{target.bootstrap}", "--views", postgres.dsn("views"))
    servers: list[Headrace] = [old.node, target]
    try:
        old.declare("store", "sales", ["region"], {"region": "string", "revenue": "double"}, partitions=1)
        sell(old, north=1.0, south=2.0)
        before = eventually(lambda: answer(old.node), lambda found: found[0] == {"north": 1.0, "south": 2.0})
        builds = postgres.execute("select number from store.headrace_builds", "views")

        cli = Cli(old.node.bootstrap)
        assert cli.run(*move, "--dry-run", "-o", "json").json["database"] == ["store"]
        moved = cli.run(*move, timeout=240)
        assert moved.code == 0, moved.err
        assert "the database: 1 views of store go on with the target" in moved.out

        new = ViewsNode(tmp_path / "new", target.bootstrap, env=env)
        servers.append(new)
        assert eventually(lambda: answer(new), lambda found: bool(found[0])) == before
        sell(Changelogs(target.bootstrap), north=5.0)
        sell(old, north=9.0)
        eventually(lambda: answer(new), lambda found: found[0] == {"north": 5.0, "south": 2.0})
        eventually(lambda: str(old.client.views()), lambda told: "keeps the views of another log" in told)
        assert postgres.execute("select number from store.headrace_builds", "views") == builds
    finally:
        for server in reversed(servers):
            server.stop()


def sell(log: Changelogs, **revenue: float) -> None:
    log.write(
        SALES, [({"region": region}, {"region": region, "revenue": number}) for region, number in revenue.items()]
    )


def answer(node: Headrace) -> tuple[dict[str, float], Any]:
    """The rows of the view, and its version."""
    found = connect(node.web).view("sales").read()
    return {row["region"]: row["revenue"] for row in found["rows"]}, found["version"]
