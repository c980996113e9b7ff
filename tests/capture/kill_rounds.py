"""Workers killed at random points while a database changes: ``python -m tests.capture.kill_rounds --kills 100``.

One PostgreSQL with two tables, one log. Two writers insert, update, delete, move keys, copy thousands of rows in one go
and roll back, in transactions that overlap, while the worker is killed with SIGKILL: in streaming, in a COPY, in an
incremental snapshot, in the initial snapshot. Every row has a version that its updates count, so the topics must show,
of every key, each version once and in order.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from headrace.capture.declarations import Captured
from headrace.capture.declarations import Postgres as Source
from tests.capture.databases import Postgres
from tests.capture.diagnosis import diagnosis
from tests.capture.running import Running
from tests.capture.topics import Change, Reader
from tests.servers import Headrace

__all__ = ["Rounds", "broken_sequences"]

TABLES = ("t", "u")
KEYS, COPIES = 400, 6
COPIED, OLD = 100_000, 1_000_000
"""Where keys begin that are copied in one large COPY, and that nobody changes any more."""
LARGE = 20_000
"""Rows: many polls of the worker, so that there is time to kill it within them."""
PATIENCE_S = 300.0
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
    """Changes both tables without end, in transactions that overlap with those of others; stops between them.

    Its keys are its own (even or odd), so that nobody waits for another.
    """

    def __init__(self, dsn: str, seed: int, parity: int = 0) -> None:
        self._dsn, self._random, self._parity = dsn, random.Random(seed), parity
        self._stopping, self._copy_asked, self._copied = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self.failed: BaseException | None = None
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self.failed is not None:
            raise self.failed

    def copy(self) -> None:
        """Have a large COPY made and committed."""
        self._copy_asked.set()
        assert self._copied.wait(PATIENCE_S), f"nothing was copied: {self.failed!r}"

    def _write(self) -> None:
        try:
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                while not self._stopping.is_set():
                    if self._copy_asked.is_set():
                        self._copy(connection, "t", LARGE)
                        self._copy_asked.clear()
                        self._copied.set()
                    elif self._random.random() < 0.5:
                        self._one(connection)
                    else:
                        with connection.transaction():
                            for _ in range(self._random.randrange(2, 8)):
                                self._one(connection)
        except BaseException as error:
            self.failed = error

    def _key(self, start: int, keys: int) -> int:
        return 2 * ((start + self._random.randrange(keys)) // 2) + self._parity

    def _one(self, connection: psycopg.Connection[Any]) -> None:
        choose, key, table = self._random.random(), self._key(0, KEYS), self._random.choice(TABLES)
        if choose < 0.35:
            self._execute(connection, f"insert into {table} values (%s, 1, 'x') on conflict do nothing", key)
        elif choose < 0.78:
            pad = "p" * self._random.randrange(200)
            self._execute(connection, f"update {table} set v = v + 1, pad = %s where id = %s", pad, key)
        elif choose < 0.93:
            self._execute(connection, f"delete from {table} where id = %s", key)
        elif choose < 0.97:
            other = self._key(KEYS, KEYS)
            with connection.transaction():
                self._execute(connection, f"delete from {table} where id = %s", other)
                self._execute(connection, f"update {table} set id = %s, v = 1 where id = %s", other, key)
        elif choose < 0.999:
            with connection.transaction(force_rollback=True):
                self._execute(
                    connection, f"update {table} set v = v + 1 where id < {2 * KEYS} and id %% 2 = %s", self._parity
                )
        else:
            self._copy(connection, table, self._random.randrange(100, 3000))

    def _copy(self, connection: psycopg.Connection[Any], table: str, rows: int) -> None:
        start = COPIED if rows >= LARGE else 10_000 + self._random.randrange(COPIES) * 6000
        end = start + 2 * rows
        with connection.transaction():
            mine = f"delete from {table} where id >= %s and id < %s and id %% 2 = %s"
            self._execute(connection, mine, start, max(end, start + 6000), self._parity)
            with connection.cursor() as cursor, cursor.copy(f"copy {table} from stdin".encode()) as copy:
                for key in range(start + self._parity, end, 2):
                    copy.write_row((key, 1, "copied"))

    @staticmethod
    def _execute(connection: psycopg.Connection[Any], statement: str, *values: object) -> None:
        connection.execute(statement.encode(), values)


class Rounds:
    """A database, its capture and its topics; ``kill`` does one round."""

    def __init__(self, postgres: Postgres, log: Headrace, folder: Path, seed: int, told: Callable[[str], None]) -> None:
        self.postgres, self.log, self.folder, self.seed, self.told = postgres, log, folder, seed, told
        self.random = random.Random(seed)
        self.killed: set[str] = set()
        self.name = f"kills{seed}"
        self.dsn = postgres.create(self.name)
        for table in TABLES:
            postgres.execute(f"create table {table} (id bigint primary key, v int not null, pad text)", self.name)
        self.running = self._start(*TABLES)
        self.readers = {table: Reader(log.bootstrap, self._topic(table)) for table in TABLES}

    def _topic(self, table: str) -> str:
        return f"{self.name}-{table}"

    def _start(self, *tables: str) -> Running:
        captured = [Captured(self._topic(table), Source(self.dsn, table=table)) for table in tables]
        return Running(f"{self.name}{tables[0]}", captured, self.log.bootstrap, self.folder)

    def close(self) -> None:
        self.running.stop()
        for reader in self.readers.values():
            reader.close()

    @property
    def changes(self) -> int:
        """How many came so far."""
        return sum(len(reader.changes) for reader in self.readers.values())

    @contextmanager
    def _written_to(self) -> Iterator[Writer]:
        """Two write meanwhile."""
        writers = [Writer(self.dsn, self.random.randrange(1 << 30), parity) for parity in (0, 1)]
        try:
            yield writers[0]
        finally:
            for writer in writers:
                writer.stop()

    def kill(self, kinds: Sequence[str] = KINDS) -> str:
        """One kill at a random point; returns of which kind: each in turn at first, then any."""
        due = [kind for kind in kinds if kind not in self.killed]
        kind = due[0] if due else self.random.choice(kinds)
        self.killed.add(kind)
        self.running.until(lambda: self.running.state(self._topic("t")) in ("streaming", "snapshot"))
        with self._written_to() as writer:
            if kind == "copy":
                done = self._kill_in_a_copy(writer)
            elif kind == "snapshot":
                done = self._kill_in_a_snapshot()
            else:
                time.sleep(self.random.uniform(0, 1.5))
                self.running.kill_worker()
                done = kind
            time.sleep(self.random.uniform(0, 0.5))
        self.check()
        return done

    def _kill_in_a_copy(self, writer: Writer) -> str:
        """Once some rows of one are in the topic. It is one transaction of the database, and many of the log."""
        reader = self.readers["t"]
        reader.read()
        before = len(reader.changes)

        def copied() -> int:
            return sum(one.op == "c" and COPIED <= one.key["id"] < OLD for one in reader.changes[before:])

        writer.copy()
        wanted = self.random.randrange(1, LARGE // 2)
        with self._explained(self.running, reader):
            reader.until(lambda: copied() >= wanted, PATIENCE_S)
        self.running.kill_worker()
        reader.read()
        return f"copy, {'within it' if copied() < LARGE else 'after it'}: {copied()} of {LARGE} rows were in the topic"

    def _kill_in_a_snapshot(self) -> str:
        """Once some of the rows that one reads are in the topic."""
        reader, topic = self.readers["t"], self._topic("t")
        self.postgres.execute(
            f"insert into t select g, 1, 'old' from generate_series({OLD}, {OLD + LARGE - 1}) g on conflict do nothing",
            self.name,
        )
        reader.until(lambda: json.dumps({"id": OLD + LARGE - 1}) in reader.table(), PATIENCE_S)
        before, wanted = len(reader.changes), self.random.randrange(1, LARGE)
        self.running.run.ask(topic, "snapshot")
        with self._explained(self.running, reader):
            reader.until(lambda: sum(one.op == "r" for one in reader.changes[before:]) >= wanted, PATIENCE_S)
        self.running.kill_worker()
        reader.read()
        read = {one.key["id"] for one in reader.changes[before:] if one.op == "r" and one.key["id"] >= OLD}
        return (
            f"snapshot, {'within it' if len(read) < LARGE else 'after it'}: {len(read)} of {LARGE} old rows were read"
        )

    def take_the_log_away(self, seconds: float) -> None:
        """The log is killed and comes back after a while, in which the database changes."""
        self.running.until(lambda: self.running.state(self._topic("t")) == "streaming")
        with self._written_to():
            time.sleep(1.0)
            self.log.kill9()
            time.sleep(min(seconds, 5.0))
        time.sleep(max(0.0, seconds - 5.0))
        self.log.restart()
        self.check()

    def check(self) -> None:
        """The topics' tables are the database's, and every key's changes are in order, each once."""
        for table, reader in self.readers.items():
            rows = {
                json.dumps({"id": key}): {"id": key, "v": version, "pad": pad}
                for key, version, pad in self.postgres.execute(f"select id, v, pad from {table}", self.name)
            }
            with self._explained(self.running, reader, rows):
                reader.until(lambda: reader.table() == rows, PATIENCE_S)  # noqa: B023
                broken = broken_sequences(reader.changes)
                assert not broken, f"{table}: {len(broken)} keys are out of order, the first: {broken[:5]}"

    @contextmanager
    def _explained(self, running: Running, reader: Reader, rows: Mapping[str, Any] | None = None) -> Iterator[None]:
        """What fails inside is told with the state of everything."""
        try:
            yield
        except AssertionError as failed:
            found = diagnosis(running, self.postgres, reader, rows)
            raise AssertionError(f"seed {self.seed}: {failed}\n{found}") from None

    def kill_in_the_initial_snapshot(self, kills: int = 1) -> int:
        """A table of its own: killed while its rows are read, with rows deleted before it is read again."""
        table = f"s{self.random.randrange(1 << 30)}"
        self.postgres.execute(
            f"create table {table} as select g as id, 1 as v, repeat('x', 50) as pad from generate_series(1, 40000) g;"
            f"alter table {table} add primary key (id)",
            self.name,
        )
        running = self._start(table)
        reader = Reader(self.log.bootstrap, self._topic(table))
        killed = None
        try:
            for _ in range(kills):
                with self._explained(running, reader):
                    self._until_rows_are_read(running, reader, table, killed)
                killed = running.worker_pid
                running.kill_worker()
                low = self.random.randrange(1, 20_000)
                self.postgres.execute(f"delete from {table} where id between {low} and {low + 500}", self.name)
                self.postgres.execute(f"update {table} set v = v + 1 where id % 100 = 0", self.name)
            found = self.postgres.execute(f"select id, v from {table}", self.name)
            rows = {json.dumps({"id": key}): version for key, version in found}
            with self._explained(running, reader, rows):
                reader.until(lambda: {key: row["v"] for key, row in reader.table().items()} == rows, PATIENCE_S)
        finally:
            running.stop()
            reader.close()
        return sum(change.op == "r" for change in reader.changes)

    def _until_rows_are_read(self, running: Running, reader: Reader, table: str, killed: int | None) -> None:
        """Some more rows; or the snapshot was complete before the last kill, and changes are streamed again."""
        wanted = len(reader.changes) + self.random.randrange(1, 30_000)

        def is_streaming() -> bool:
            return running.worker_pid != killed and running.state(self._topic(table)) == "streaming"

        reader.until(lambda: len(reader.changes) > wanted or (killed is not None and is_streaming()), PATIENCE_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--away", type=float, default=0.0, metavar="S", help="at the end the log is away for so long")
    parser.add_argument("--keep", action="store_true", help="keep the folder of logs even if nothing fails")
    chosen = parser.parse_args()
    seed = chosen.seed if chosen.seed is not None else random.randrange(1 << 30)
    folder = Path(tempfile.mkdtemp(prefix=f"headrace-kills-{seed}-"))
    print(f"capture: {chosen.kills} kills, seed {seed}, in {folder}", flush=True)
    postgres = Postgres()
    log = Headrace(folder / "log")
    rounds = Rounds(postgres, log, folder / "run", seed, print)
    try:
        for number in range(1, chosen.kills + 1):
            began = time.monotonic()
            if number % 5 == 0:
                done = f"initial snapshot, {rounds.kill_in_the_initial_snapshot()} rows read"
            else:
                done = f"{rounds.kill()}; {rounds.changes} changes so far"
            print(f"kill {number}: {done} ({time.monotonic() - began:.0f} s)", flush=True)
        if chosen.away:
            rounds.take_the_log_away(chosen.away)
            print(f"the log was away for {chosen.away:.0f} s", flush=True)
    finally:
        rounds.close()
        log.stop()
        shutil.copy(postgres.folder / "postgres.log", folder / "postgres.log")
        postgres.close()
    if not chosen.keep:
        shutil.rmtree(folder)
    print("every table was equal, every key's changes in order", flush=True)


if __name__ == "__main__":
    main()
    sys.exit(0)
