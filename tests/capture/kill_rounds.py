"""Workers killed at random points while a database changes: ``python -m tests.capture.kill_rounds --kills 100``.

One PostgreSQL, one log. A writer inserts, updates, deletes, moves keys, copies thousands of rows in one go and rolls
back, while the worker is killed with SIGKILL: in streaming, in a COPY, in an incremental snapshot, in the initial
snapshot. Every row has a version that its updates count, so the topic must show, of every key, each version once and in
order.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg

from headrace.capture.declarations import Captured
from headrace.capture.declarations import Postgres as Source
from tests.capture.databases import Postgres
from tests.capture.running import Running
from tests.capture.topics import Change, Reader
from tests.servers import Headrace

__all__ = ["Rounds", "broken_sequences"]

KEYS = 400
KINDS = ("streaming", "streaming", "copy", "snapshot")


def broken_sequences(changes: list[Change]) -> list[str]:
    """What is wrong with the order of changes per key: versions that are missing, doubled or out of order."""
    found: list[str] = []
    versions: dict[int, int | None] = {}
    ended: dict[int, bool] = {}
    for change in changes:
        key = int(change.key["id"])
        if change.op == "tombstone":
            if not ended.pop(key, False):
                found.append(f"key {key}: a tombstone without a deletion at {change.offset}")
            continue
        if ended.pop(key, False):
            found.append(f"key {key}: a deletion without its tombstone before {change.offset}")
        before = versions.get(key)
        now = None if change.row is None else int(change.row["v"])
        if change.op == "d":
            if key in versions and before is None:
                found.append(f"key {key}: deleted twice at {change.offset}")
            ended[key] = True
        elif change.op == "c" and before is not None:
            found.append(f"key {key}: created again at {change.offset}, with version {now} after {before}")
        elif change.op == "u" and before is not None and now != before + 1:
            found.append(f"key {key}: version {now} follows {before} at {change.offset}")
        elif change.op == "r" and before is not None and now is not None and now < before:
            found.append(f"key {key}: a snapshot went back from version {before} to {now} at {change.offset}")
        versions[key] = now
    return found


class Writer:
    """Changes the table without end; stops between statements."""

    def __init__(self, dsn: str, seed: int) -> None:
        self._dsn, self._random = dsn, random.Random(seed)
        self._stopping, self.copying = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self.failed: BaseException | None = None
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self.failed is not None:
            raise self.failed

    def _write(self) -> None:
        try:
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                while not self._stopping.is_set():
                    self._one(connection)
        except BaseException as error:
            self.failed = error

    def _one(self, connection: psycopg.Connection[Any]) -> None:
        choose, key = self._random.random(), self._random.randrange(KEYS)
        if choose < 0.35:
            connection.execute("insert into t values (%s, 1, 'x') on conflict do nothing", [key])
        elif choose < 0.75:
            connection.execute(
                "update t set v = v + 1, pad = %s where id = %s", ["p" * self._random.randrange(200), key]
            )
        elif choose < 0.9:
            connection.execute("delete from t where id = %s", [key])
        elif choose < 0.93:
            other = KEYS + self._random.randrange(KEYS)
            with connection.transaction():
                connection.execute("delete from t where id = %s", [other])
                connection.execute("update t set id = %s, v = 1 where id = %s", [other, key])
        elif choose < 0.96:
            with connection.transaction(force_rollback=True):
                connection.execute("update t set v = v + 1")
        else:
            self._copy(connection)

    def _copy(self, connection: psycopg.Connection[Any]) -> None:
        start = 10_000 + self._random.randrange(50) * 5000
        self.copying.set()
        with connection.transaction():
            connection.execute("delete from t where id between %s and %s", [start, start + 4999])
            with connection.cursor() as cursor, cursor.copy("copy t from stdin") as copy:
                for key in range(start, start + self._random.randrange(100, 3000)):
                    copy.write_row((key, 1, "copied"))
        self.copying.clear()


class Rounds:
    """A database, its capture and its topic; ``kill`` does one round."""

    def __init__(self, postgres: Postgres, log: Headrace, folder: Path, seed: int, told: Callable[[str], None]) -> None:
        self.postgres, self.log, self.folder, self.seed, self.told = postgres, log, folder, seed, told
        self.random = random.Random(seed)
        self.name = f"kills{seed}"
        self.dsn = postgres.create(self.name)
        postgres.execute("create table t (id bigint primary key, v int not null, pad text)", self.name)
        self.running = self._start("t")
        self.reader = Reader(log.bootstrap, self._topic("t"))

    def _topic(self, table: str) -> str:
        return f"{self.name}-{table}"

    def _start(self, table: str) -> Running:
        captured = Captured(self._topic(table), Source(self.dsn, table=table))
        return Running(f"{self.name}{table}", [captured], self.log.bootstrap, self.folder)

    def close(self) -> None:
        self.running.stop()
        self.reader.close()

    def kill(self, kinds: Sequence[str] = KINDS) -> str:
        """One kill at a random point of one kind; returns which."""
        kind = self.random.choice(kinds)
        writer = Writer(self.dsn, self.random.randrange(1 << 30))
        try:
            self.running.until(lambda: self.running.state(self._topic("t")) in ("streaming", "snapshot"))
            if kind == "snapshot":
                self.running.run.ask(self._topic("t"), "snapshot")
            if kind == "copy":
                writer.copying.wait(10)
            time.sleep(self.random.uniform(0, 1.5))
            self.running.kill_worker()
            time.sleep(self.random.uniform(0, 0.5))
        finally:
            writer.stop()
        self.check()
        return kind

    def check(self) -> None:
        """The topic's table is the database's, and every key's changes are in order, each once."""
        rows = {
            json.dumps({"id": key}): {"id": key, "v": version, "pad": pad}
            for key, version, pad in self.postgres.execute("select id, v, pad from t", self.name)
        }
        self.reader.until(lambda: self.reader.table() == rows, 300)
        broken = broken_sequences(self.reader.changes)
        assert not broken, f"seed {self.seed}: {len(broken)} keys are out of order, the first: {broken[:5]}"

    def kill_in_the_initial_snapshot(self) -> int:
        """A table of its own: killed while its rows are read, with rows deleted before it is read again."""
        table = f"s{self.random.randrange(1 << 30)}"
        self.postgres.execute(
            f"create table {table} as select g as id, 1 as v, repeat('x', 50) as pad from generate_series(1, 40000) g;"
            f"alter table {table} add primary key (id)",
            self.name,
        )
        running = self._start(table)
        reader = Reader(self.log.bootstrap, self._topic(table))
        wanted = self.random.randrange(1, 30_000)
        reader.until(lambda: len(reader.changes) > wanted)
        running.kill_worker()
        low = self.random.randrange(1, 20_000)
        self.postgres.execute(f"delete from {table} where id between {low} and {low + 500}", self.name)
        self.postgres.execute(f"update {table} set v = 2 where id % 100 = 0", self.name)
        rows = {json.dumps({"id": key}): v for key, v in self.postgres.execute(f"select id, v from {table}", self.name)}
        try:
            reader.until(lambda: {key: row["v"] for key, row in reader.table().items()} == rows, 300)
        finally:
            running.stop()
            reader.close()
        return sum(change.op == "r" for change in reader.changes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None)
    chosen = parser.parse_args()
    seed = chosen.seed if chosen.seed is not None else random.randrange(1 << 30)
    print(f"capture: {chosen.kills} kills, seed {seed}", flush=True)
    postgres = Postgres()
    with tempfile.TemporaryDirectory() as folder:
        log = Headrace(Path(folder) / "log")
        rounds = Rounds(postgres, log, Path(folder) / "run", seed, print)
        try:
            for number in range(1, chosen.kills + 1):
                if number % 5 == 0:
                    print(
                        f"kill {number}: initial snapshot, {rounds.kill_in_the_initial_snapshot()} rows read",
                        flush=True,
                    )
                else:
                    print(f"kill {number}: {rounds.kill()}, {len(rounds.reader.changes)} changes so far", flush=True)
        finally:
            rounds.close()
            log.stop()
            postgres.close()
    print("every table was equal, every key's changes in order", flush=True)


if __name__ == "__main__":
    main()
    sys.exit(0)
