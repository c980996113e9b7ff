"""A node serves views from a process of its own, which may be killed at any moment."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ServerAway, UnknownView
from headrace.feed.cluster import Cluster
from headrace.feed.topics import delete_topics
from tests.cli.command import HEADRACE, Cli
from tests.servers import Headrace, Server, die_with_parent
from tests.serving.live import LiveNode, alive, eventually, live_node

pytestmark = pytest.mark.system

SALES = {"region": "string", "minute": "timestamp", "revenue": "double", "orders": "bigint"}
ROUNDS = 10


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNode]:
    with served(tmp_path_factory.mktemp("live")) as node:
        yield node


@contextmanager
def served(folder: Path, env: Mapping[str, str] | None = None, log: Server | None = None) -> Iterator[LiveNode]:
    """A node with a view of nine rows."""
    with live_node(folder, env, log) as node:
        node.declare("shop", "sales", ["region", "minute"], SALES)
        node.write("shop.sales", [sale(region, minute) for region in ("EU", "US") for minute in range(5)])
        node.write("shop.sales", [sale("XX", 1)], abort=True)
        node.write("shop.sales", [(sale("US", 4)[0], None)])
        eventually(lambda: node.rows("sales"), lambda rows: len(rows) == 9)
        yield node


def sale(region: str, minute: int, revenue: float = 1.5, orders: int = 1) -> tuple[Any, Any]:
    key = {"region": region, "minute": f"2026-01-02T03:{minute:02d}:00.000000Z"}
    return key, {**key, "revenue": revenue, "orders": orders}


def test_committed_changes_are_seen_and_aborted_ones_never(live: LiveNode) -> None:
    regions = {row["region"] for row in live.rows("sales")}
    assert regions >= {"EU", "US"}
    assert "XX" not in regions
    assert live.client.view("sales").get("US", "2026-01-02T03:04:00Z") is None
    status, told = live.get("/views/sales/EU/2026-01-02T03:04:00Z")
    assert (status, told["row"]["revenue"]) == (200, 1.5)


def test_tables_have_the_types_of_the_view(live: LiveNode) -> None:
    view = live.client.view("shop.sales")
    table = view.to_arrow(where=["region=EU"], order="minute")
    assert [str(kind) for kind in table.schema.types] == ["string", "timestamp[us, tz=UTC]", "double", "int64"]
    assert table.num_rows == 5
    assert table.schema.metadata[b"headrace.version"]
    frame = view.to_polars(where="region=US")
    assert frame["revenue"].sum() == 6.0
    assert view.to_pandas(limit=3).shape == (3, 4)


def test_changes_arrive_as_they_happen_and_go_on_after_a_lost_connection(live: LiveNode) -> None:
    seen: list[Any] = []
    version = live.client.view("sales").read()["version"]

    def watch() -> None:
        for change in live.client.view("sales").changes(version):
            seen.append(change)
            if len(seen) == 3:
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    live.write("shop.sales", [sale("W1", 0)])
    eventually(lambda: seen, len)
    os.kill(live.server_pid(), signal.SIGKILL)
    live.write("shop.sales", [sale("W2", 0), (sale("W1", 0)[0], None)])
    watcher.join(90)
    assert not watcher.is_alive()
    told = [(change.key["region"], change.row is None) for change in seen]
    assert sorted(told) == [("W1", False), ("W1", True), ("W2", False)]


def test_the_process_that_serves_is_started_again_and_that_is_said(live: LiveNode) -> None:
    before = live.server_pid()
    rows = live.rows("sales")
    os.kill(before, signal.SIGKILL)
    eventually(lambda: live.rows("sales"), lambda found: found == rows)
    assert live.server_pid() != before
    assert "was killed by signal 9; it is started again" in live.node.output


def test_the_command_line_reads_views(live: LiveNode) -> None:
    cli = Cli()
    node = ("--node", live.node.web)
    [view] = [v for v in cli("view", "list", *node, "-o", "json").json if v["name"] == "sales"]
    assert (view["state"], view["key"]) == ("live", ["region", "minute"])
    assert "shop.sales" in cli("view", "list", *node).out
    lines = cli("view", "get", "sales", "--where", "region=EU", "--order=-minute", "--limit", "2", *node).lines
    assert lines[0].split() == ["REGION", "MINUTE", "REVENUE", "ORDERS"]
    assert [line.split()[1] for line in lines[1:]] == ["2026-01-02T03:04:00.000000Z", "2026-01-02T03:03:00.000000Z"]
    told = cli("view", "get", "sales", "EU", "2026-01-02T03:01:00Z", "-o", "json", *node).json
    assert told["row"]["orders"] == 1
    answer = cli("view", "query", "SELECT count(*) AS n FROM sales WHERE region = 'EU'", "-o", "json", *node).json
    assert answer["rows"] == [[5]]
    watched = cli("view", "watch", "sales", "--from", "start", "--until", "0:1,1:1", "-o", "json", *node).ndjson
    assert watched[0]["kind"] == "change"


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["get", "nope"], "there is no view 'nope'"),
        (["watch", "nope"], "there is no view 'nope'"),
        (["get", "sales", "--where", "nope=1"], "has no column 'nope'"),
        (["get", "sales", "nowhere", "2026-01-01T00:00:00Z"], "has no row"),
        (["query", "DROP TABLE sales"], "only SELECT over views is allowed"),
    ],
)
def test_a_command_that_cannot_be_done_says_why(live: LiveNode, command: list[str], sentence: str) -> None:
    assert sentence in Cli().fails("view", *command, "--node", live.node.web)


def test_no_node_is_told() -> None:
    message = Cli().fails("view", "list", "--node", "http://127.0.0.1:9")
    assert "no node answers at http://127.0.0.1:9" in message
    assert "headrace up" in message


def test_a_store_that_is_removed_under_a_running_node_is_rebuilt(live: LiveNode) -> None:
    rows = sorted(live.rows("sales"), key=str)
    for path in (live.node.data / "views").glob("shop.sqlite*"):
        path.unlink()
    eventually(lambda: sorted(live.rows("sales"), key=str), lambda found: found == rows)


def test_a_changelog_that_was_made_anew_is_followed(live: LiveNode) -> None:
    live.declare("shop", "anew", ["region"], {"region": "string"}, partitions=1)
    live.write("shop.anew", [({"region": name}, {"region": name}) for name in "abc"])
    eventually(lambda: live.rows("anew"), lambda rows: len(rows) == 3)
    os.kill(live.server_pid(), signal.SIGSTOP)  # it does not look while the new topic outgrows the old one
    delete_topics(Cluster(live.node.bootstrap, {}), ["shop.anew"])
    live._create("shop.anew", 1)
    live.write("shop.anew", [({"region": name}, {"region": name}) for name in "uvwxyz"])
    os.kill(live.server_pid(), signal.SIGCONT)
    eventually(lambda: live.rows("anew"), lambda rows: {row["region"] for row in rows} == set("uvwxyz"))


def test_the_data_folder_is_still_sound(live: LiveNode) -> None:
    Cli()("log", "verify", str(live.node.data))


def test_views_end_right_whatever_is_killed(tmp_path: Path) -> None:
    """The process that serves, or the whole node, is killed again and again while a view changes."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with live_node(tmp_path) as live:
        live.declare("shop", "sales", ["region"], SALES)
        model: dict[str, Any] = {}
        for number in range(ROUNDS):
            changes = []
            for _ in range(chance.randrange(1, 400)):
                region = f"r{chance.randrange(200)}"
                if chance.random() < 0.2:
                    model.pop(region, None)
                    changes.append(({"region": region}, None))
                else:
                    _, row = sale(region, number, chance.random(), chance.randrange(1 << 40))
                    model[region] = row
                    changes.append(({"region": region}, row))
            eventually(lambda: live.get("/queries"), lambda told: told[0] == 200)
            pid = live.server_pid()
            live.write("shop.sales", changes)
            threading.Event().wait(chance.random() * 0.15)
            if number % 4 == 3:
                live.node.kill9()
                live.node.start()
            else:
                os.kill(pid, signal.SIGKILL)
        found = eventually(
            lambda: {row["region"]: row for row in live.rows("sales")}, lambda found: found.keys() == model.keys()
        )
        assert eventually(lambda: {row["region"]: row for row in live.rows("sales")}, lambda now: now == model), found


def test_it_dies_with_its_node(tmp_path: Path) -> None:
    node = Headrace(tmp_path, http="127.0.0.1:0")
    live = LiveNode.__new__(LiveNode)
    live.node = node
    pid = live.server_pid()
    node.kill9()
    eventually(lambda: alive(pid), lambda living: not living)


def test_a_node_whose_web_port_is_taken_chooses_another_and_says_so(tmp_path: Path) -> None:
    with socket.socket() as taken:
        try:
            taken.bind(("127.0.0.1", 8080))
            taken.listen()
        except OSError:
            pass  # somebody else has it: all the same
        with subprocess.Popen(
            [HEADRACE, "up", "--data", str(tmp_path), "--listen", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=Cli().env(),
            preexec_fn=die_with_parent,
        ) as node:
            assert node.stdout is not None
            line = node.stdout.readline()
            node.terminate()
            _, told = node.communicate(timeout=60)
    assert ". Views and status: http://127.0.0.1:" in line
    assert ":8080\n" not in line
    assert "port 8080 is in use" in told


def test_a_port_that_was_asked_for_and_is_taken_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        options = ("--data", str(tmp_path), "--listen", "127.0.0.1:0")
        message = Cli().fails("up", *options, "--http", address)
    assert f"{address} is in use" in message
    assert "--http" in message


def test_a_client_says_what_is_wrong(live: LiveNode) -> None:
    with pytest.raises(UnknownView):
        live.client.view("nope").to_arrow()
    from headrace import connect

    with pytest.raises(ServerAway):
        connect("http://127.0.0.1:9").views()
