"""``headrace demo``: a shop in a minute. A node, events, an app with three views, and a check against the log."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.command import Command
from headrace.cli.demo_check import Difference, Log, compare, expected, read_log
from headrace.cli.demo_events import ShopEvents, closing_event
from headrace.cli.failures import CommandFailed
from headrace.cli.output import print_line
from headrace.client import Client
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["app"]

PARTITIONS = 2
SPEED = 60.0
"""A minute in the shop is a second here."""
CLOSING_S = 2400.0
"""How far the closing events are ahead of the last ones: every visit is over by then."""
START_PATIENCE_S, PATIENCE_S = 120.0, 300.0
VIEWS = 3
LINE_EVERY_S = 5.0
_PR_SET_PDEATHSIG = 1

app = typer.Typer(add_completion=False, rich_markup_mode="rich")


@dataclass(frozen=True)
class _Node:
    server: str
    web: str


@app.command(cls=Command)
def demo(
    seconds: Annotated[
        float, typer.Option("--seconds", envvar="DEMO_SECONDS", min=1.0, help="How long events come in.")
    ] = 60.0,
    seed: Annotated[int | None, typer.Option("--seed", help="The same events again.")] = None,
    keep: Annotated[
        Path | None, typer.Option("--keep", metavar="DIR", help="Keep app and data here. Default: thrown away.")
    ] = None,
) -> None:
    """Start a node and a shop with three live views, for a minute; then check every view against the log.

    [bold]Examples[/bold]

    \b
    headrace demo
    headrace demo --seconds 20 --keep shop-demo

    Exits with 0 if every view is what a plain recomputation from the log says, else with 1.
    """
    chosen = seed if seed is not None else int.from_bytes(os.urandom(4), "big")
    with contextlib.ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-demo-")))
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise CommandFailed(f"the folder {folder} is not empty.", hint="choose a new one with --keep")
        source = folder / "shop.py"
        source.write_text((resources.files("headrace.cli") / "templates" / "shop.py.txt").read_text())
        node = stack.enter_context(_node(folder))
        print_line(f"A node listens on {node.server}. Open {node.web} in a browser to watch.")
        print_line(f"The app is {source}: three views over one stream. Spark takes some seconds to start.")
        _create_topic(node.server)
        run = stack.enter_context(_run(source, node.server, folder))
        _wait_for_queries(Client(node.web), run)
        events = _Events(node.server, chosen, seconds)
        stack.callback(events.stop)
        events.start()
        _watch(node, events, run, seconds)
        events.join()
        print_line(f"{events.sent:,} records were written (seed {chosen}). Checking every view against the log ...")
        equal = _verdict(node, folder, run)
    raise typer.Exit(0 if equal else 1)


@contextlib.contextmanager
def _node(folder: Path) -> Iterator[_Node]:
    command = [sys.executable, "-c", "from headrace.cli import main; main()", "up", "--data", str(folder / "data")]
    command += ["--listen", "127.0.0.1:0", "-o", "json"]
    log = folder / "node.log"
    with log.open("wb") as file, _child(command, file, stdout=subprocess.PIPE) as process:
        line = process.stdout.readline() if process.stdout else b""
        if not line:
            raise CommandFailed("the node did not start.", detail=log.read_text()[-2000:])
        told = json.loads(line)
        if told["web"] is None:
            raise CommandFailed("this node serves no views.", hint="pip install 'headrace[pipelines]'")
        yield _Node(told["listen"], told["web"])


@contextlib.contextmanager
def _run(source: Path, server: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", "from headrace.cli import main; main()", "run", str(source), "--server", server]
    command += ["--data", str(folder / "data")]
    with (folder / "run.log").open("wb") as log, _child(command, log, stdout=log) as process:
        yield process


@contextlib.contextmanager
def _child(command: list[str], log: Any, stdout: Any) -> Iterator[subprocess.Popen[bytes]]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    libc = ctypes.CDLL(None)
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=log,
        env=env,
        start_new_session=True,
        preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM),
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()


def _create_topic(server: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": server, "log_level": 0})
    admin.create_topics([NewTopic("events", PARTITIONS)])["events"].result(20)


class _Events(threading.Thread):
    """Writes the shop's events for so many seconds, then the ones that were on their way, then the closing ones."""

    def __init__(self, server: str, seed: int, seconds: float) -> None:
        super().__init__(name="events", daemon=True)
        self.sent = 0
        self._server = server
        self._seconds = seconds
        self._start = time.time() - seconds * SPEED
        self._events = ShopEvents(seed, self._start)
        self._told_to_stop = threading.Event()

    def run(self) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._server, "log_level": 0, "linger.ms": 20})
        began = time.monotonic()
        while (gone := time.monotonic() - began) < self._seconds and not self._told_to_stop.is_set():
            for key, value in self._events.until(self._start + gone * SPEED):
                producer.produce("events", value, key)
                self.sent += 1
            producer.poll(0)
            self._told_to_stop.wait(0.05)
        for key, value in self._events.rest():
            producer.produce("events", value, key)
            self.sent += 1
        key, value = closing_event(self._start + self._seconds * SPEED + CLOSING_S)
        for partition in range(PARTITIONS):
            producer.produce("events", value, key, partition=partition)
            self.sent += 1
        producer.flush(30)

    def stop(self) -> None:
        """Stop early."""
        self._told_to_stop.set()


def _wait_for_queries(client: Client, run: subprocess.Popen[bytes]) -> None:
    """Until the three queries run; not for ever: events may wait for them too."""
    deadline = time.monotonic() + START_PATIENCE_S
    while time.monotonic() < deadline:
        _ensure_runs(run)
        with contextlib.suppress(HeadraceError):
            if sum(query.get("state") == "running" for query in client.queries()) == VIEWS:
                return
        time.sleep(0.25)


def _watch(node: _Node, events: _Events, run: subprocess.Popen[bytes], seconds: float) -> None:
    """Show the views while events come in: a live table on a terminal, else a line now and then."""
    from rich.console import Console
    from rich.live import Live

    console, client = Console(), Client(node.web)
    began = line_at = time.monotonic()
    with Live(console=console, auto_refresh=False) if console.is_terminal else contextlib.nullcontext() as live:
        while events.is_alive():
            _ensure_runs(run)
            gone = time.monotonic() - began
            with contextlib.suppress(HeadraceError):
                if live is not None:
                    live.update(_screen(client, node.web, events.sent, gone, seconds), refresh=True)
                elif time.monotonic() - line_at >= LINE_EVERY_S:
                    line_at = time.monotonic()
                    views = ", ".join(f"{view['name']} {view['rows']} rows" for view in client.views())
                    print_line(f"{gone:4.0f} s: {events.sent:,} records; {views or 'no views yet'}")
            events.join(0.5)


def _ensure_runs(run: subprocess.Popen[bytes]) -> None:
    if run.poll() is not None:
        raise CommandFailed(f"the app ended with {run.returncode}.", hint="--keep DIR, then see DIR/run.log")


def _screen(client: Client, web: str, sent: int, gone: float, seconds: float) -> RenderableType:
    """The live table: one per view, under a line of numbers."""
    from rich.columns import Columns
    from rich.console import Group
    from rich.text import Text

    late, dead = 0, 0
    for query in client.queries():
        late, dead = late + (query.get("late") or 0), max(dead, query.get("dead") or 0)
    head = f"{gone:3.0f} of {seconds:.0f} s   {sent:,} records   {late} late   {dead} broken   {web}"
    tables = [
        _table(client, "revenue", "-minute", {"minute": "minute", "revenue": "revenue", "orders": "orders"}),
        _table(client, "products", "-sold", {"product": "top product", "sold": "sold", "revenue": "revenue"}),
        _table(client, "sessions", "-session", {"customer_id": "customer", "steps": "steps", "spent": "spent"}),
    ]
    return Group(Text(head, style="bold"), Columns(tables, padding=(0, 3)))


def _table(client: Client, name: str, order: str, columns: dict[str, str]) -> RenderableType:
    from rich.table import Table

    table = Table(title=name)
    for title in columns.values():
        table.add_column(title, justify="left" if title in ("minute", "top product") else "right")
    with contextlib.suppress(HeadraceError):
        for row in client.view(name).rows(order=order, limit=8):
            table.add_row(*(_cell(row[column]) for column in columns))
    return table


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    text = "-" if value is None else str(value)
    return text[11:16] if text[10:11] == "T" else text


def _verdict(node: _Node, folder: Path, run: subprocess.Popen[bytes]) -> bool:
    """Compare until every view is equal, or for as long as a slow machine may need."""
    from headrace.feed import open_feed

    client = Client(node.web)
    feed = open_feed(node.server, folder / "data")
    deadline = time.monotonic() + PATIENCE_S
    try:
        while True:
            _ensure_runs(run)
            log = read_log(feed)
            differences = _differences(client, log)
            done = all(difference.equal for difference in differences) and log.dead == log.broken
            if done or time.monotonic() > deadline:
                _tell(differences, log)
                return done
            time.sleep(1.0)
    finally:
        feed.close()


def _differences(client: Client, log: Log) -> list[Difference]:
    differences = []
    for view, wanted in expected(log).items():
        try:
            found = client.view(view).rows()
        except HeadraceError as error:
            differences.append(Difference(view, 0, len(wanted), 0, 0, error.message))
        else:
            differences.append(compare(view, found, wanted))
    return differences


def _tell(differences: list[Difference], log: Log) -> None:
    total = len(log.found) + len(log.broken)
    aside = "all of them" if log.dead == log.broken else f"BUT {len(log.dead)} RECORDS"
    print_line(f"{total:,} records in the log; {len(log.broken)} are broken, {aside} put aside in events.dead.")
    for one in differences:
        late = len(log.late.get(one.view, ()))
        if one.equal:
            print_line(f"  {one.view:<9} {one.rows:>6,} rows, {late} records came too late: equal to the recomputation")
        else:
            wrong = f"{one.missing} missing, {one.extra} too many, {one.different} different"
            print_line(f"  {one.view:<9} {one.rows:>6,} rows: NOT EQUAL ({wrong}; {one.example})")
    right = all(one.equal for one in differences) and log.dead == log.broken
    print_line("Every view is what the log says." if right else "The views are not what the log says.")
