"""Kills the process that drains an SQLite file (and now and then the broker) with SIGKILL at random moments, while two
programs write to the file, with a rollback journal (SQLite's default) or a write-ahead log. In the end the topic's
table must be the file's, and the changes of each key must be exactly those that the writers noted, each once and in
order.

``python -m tests.capture.sqlite_kill_rounds --kills 100 --seed 7`` (``make faults``).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path

from headrace.capture import sqlite as looking
from headrace.capture.declarations import Captured, SQLite
from headrace.capture.sqlite_capture import SQLiteCapture
from headrace.capture.sqlite_drain import SQLiteDrain
from headrace.feed.cluster import Cluster
from headrace.feed.topics import COMPACTED, ensure_topic
from tests.capture.topics import Reader
from tests.servers import ROOT, Headrace, _Process, die_with_parent

KEYS, ROWS_AT_FIRST = 40, 400
PATIENCE_S = 180.0
JOURNALS = ("DELETE", "WAL")


class Wrong(AssertionError):
    """What the topic says is not what the file says."""


def captured(path: Path) -> Captured:
    return Captured("stock", SQLite(path, table="stock"), ("id",))


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=60, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")  # it is not the machine that crashes
    return connection


def prepare(path: Path, journal: str) -> None:
    with contextlib.closing(connect(path)) as made:
        made.executescript(
            f"PRAGMA journal_mode = {journal};"
            "CREATE TABLE stock (id INTEGER PRIMARY KEY, n INTEGER, note TEXT UNIQUE);"
            "CREATE TABLE noted (place INTEGER PRIMARY KEY AUTOINCREMENT, id INTEGER, n INTEGER);"
        )
        made.execute("BEGIN")
        rows = [(number, f"at first {number}") for number in range(KEYS, KEYS + ROWS_AT_FIRST)]
        made.executemany("INSERT INTO stock VALUES (?, 0, ?)", rows)
        made.execute("COMMIT")


class Writer:
    """A program that changes rows, some of them together, and notes in the same transaction what it changed (n is null
    for a row that was deleted)."""

    def __init__(self, path: Path, seed: int) -> None:
        self._path, self._random = path, random.Random(seed)
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            with contextlib.closing(connect(self._path)) as connection:
                while not self._stopping.wait(self._random.uniform(0, 0.01)):
                    connection.execute("BEGIN IMMEDIATE")
                    for _ in range(self._random.randrange(1, 6)):
                        self._change(connection, self._random.randrange(KEYS))
                    connection.execute("ROLLBACK" if self._random.random() < 0.05 else "COMMIT")
        except BaseException as error:
            self._error = error

    def _change(self, connection: sqlite3.Connection, key: int) -> None:
        found = connection.execute("SELECT n FROM stock WHERE id = ?", (key,)).fetchone()
        last = connection.execute("SELECT max(n) FROM noted WHERE id = ?", (key,)).fetchone()[0] or 0
        if found is None:
            connection.execute("INSERT INTO stock VALUES (?, ?, ?)", (key, last + 1, f"{key} is {last + 1}"))
        elif self._random.random() < 0.2:
            connection.execute("DELETE FROM stock WHERE id = ?", (key,))
            connection.execute("INSERT INTO noted VALUES (NULL, ?, NULL)", (key,))
            return
        else:
            connection.execute("UPDATE stock SET n = ?, note = ? WHERE id = ?", (last + 1, f"{key} is {last + 1}", key))
        connection.execute("INSERT INTO noted VALUES (NULL, ?, ?)", (key, last + 1))


class Drainer:
    """The process that is killed."""

    def __init__(self, folder: Path, path: Path, bootstrap: str) -> None:
        command = [sys.executable, "-m", "tests.capture.sqlite_kill_rounds", "--drain", str(path), bootstrap]
        self._folder, self._command = folder, command
        self.start()

    def start(self) -> None:
        self.process = _Process(self._command, self._folder / "drainer.log", {"PYTHONWARNINGS": "ignore"})

    def wait_until_it_drains(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while b"drains" not in self.process.printed():
            if self.process.dead(0.05) or time.monotonic() > deadline:
                raise Wrong(f"the drainer does not drain:\n{self.output}")

    @property
    def output(self) -> str:
        return (self._folder / "drainer.log").read_text(errors="replace")[-3000:]

    def kill9(self) -> None:
        self.process.end(signal.SIGKILL, 10.0)
        self.start()


def campaign(folder: Path, seed: int, kills: int, journal: str) -> dict[str, int]:
    """Kill so often; raises Wrong if the topic is not as the file is. Returns what was counted."""
    print(f"seed {seed}, journal {journal}, {kills} kills", flush=True)
    chance, path = random.Random(seed), folder / "shop.sqlite"
    prepare(path, journal)
    server = Headrace(folder / "node")
    cluster = Cluster(server.bootstrap, {})
    ensure_topic(cluster, "stock", 1, COMPACTED)
    with contextlib.closing(SQLiteDrain("shop", captured(path), cluster)) as first:
        first.open()  # the triggers are there before anything is written
    writers = [Writer(path, seed), Writer(path, seed + 1)]
    drainer, brokers = Drainer(folder, path, server.bootstrap), 0
    try:
        for _ in range(kills):
            drainer.wait_until_it_drains()
            time.sleep(chance.uniform(0, 0.6))
            if chance.random() < 0.15:
                server.kill9()
                server.start()
                brokers += 1
            drainer.kill9()
        for writer in writers:
            writer.stop()
        return {"brokers": brokers, **_settle(path, server.bootstrap, drainer)}
    except AssertionError as error:
        raise Wrong(f"seed {seed}, journal {journal}: {error}\n{drainer.output}") from error
    finally:
        drainer.process.end(signal.SIGKILL, 10.0)
        server.stop()


def _settle(path: Path, bootstrap: str, drainer: Drainer) -> dict[str, int]:
    reader = Reader(bootstrap, "stock")
    with contextlib.closing(connect(path)) as file:
        rows = {row[0]: {"id": row[0], "n": row[1], "note": row[2]} for row in file.execute("SELECT * FROM stock")}
        noted: dict[int, list[int | None]] = defaultdict(list)
        for key, n in file.execute("SELECT id, n FROM noted ORDER BY place"):
            noted[key].append(n)
    wanted = {json.dumps({"id": key}): row for key, row in rows.items()}
    deadline = time.monotonic() + PATIENCE_S
    try:
        while _sequences(reader)[0] != noted or reader.table() != wanted:
            reader.read()
            if time.monotonic() > deadline or drainer.process.dead():
                found, _ = _sequences(reader)
                differing = [key for key in noted if found.get(key) != noted[key]]
                raise Wrong(f"{len(reader.table())} rows of {len(wanted)}; keys that differ: {differing[:5]}")
        _, copies = _sequences(reader)
        if copies != len(set(range(KEYS, KEYS + ROWS_AT_FIRST))):
            raise Wrong(f"{copies} rows of the snapshot instead of {ROWS_AT_FIRST}")
        return {"records": len(reader.changes), "changes": sum(map(len, noted.values()))}
    finally:
        reader.close()


def _sequences(reader: Reader) -> tuple[dict[int, list[int | None]], int]:
    """The changes of each key that the writers made, and how many rows of the first ones the snapshot has read. A row
    that a snapshot reads is as the changes before it say."""
    found: dict[int, list[int | None]] = defaultdict(list)
    copies = 0
    for change in reader.changes:
        key = change.key["id"]
        if change.op == "r":
            copies += key >= KEYS
            if key < KEYS and found[key][-1:] != [change.row["n"]]:  # type: ignore[index]
                raise Wrong(f"the snapshot has {change.row} after {found[key][-3:]}")
        elif change.op == "tombstone":
            if found[key][-1:] != [None]:
                raise Wrong(f"a tombstone of {key} without its deletion")
        else:
            found[key].append(None if change.op == "d" else change.row["n"])  # type: ignore[index]
    return found, copies


def drain(path: Path, bootstrap: str) -> None:
    """What the drainer does."""
    die_with_parent()
    looking.CHUNK_ROWS = 20
    capture = SQLiteCapture("shop", captured(path), Cluster(bootstrap, {}), lambda told: print(told, flush=True))
    capture.start()
    while not capture.status.rows and capture.status.state != "streaming":
        time.sleep(0.005)
    print("drains", flush=True)
    threading.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--drain", nargs=2, metavar=("FILE", "HOST:PORT"))
    given = parser.parse_args()
    if given.drain:
        drain(Path(given.drain[0]), given.drain[1])
        return
    left, seed = given.kills, given.seed if given.seed is not None else int(time.time())
    while left > 0:
        with tempfile.TemporaryDirectory(prefix="headrace-sqlite-kills-") as folder:
            print(campaign(Path(folder), seed, min(left, 20), JOURNALS[seed % 2]), flush=True)
        left, seed = left - 20, seed + 1


if __name__ == "__main__":
    os.chdir(ROOT)
    main()
