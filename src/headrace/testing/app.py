"""An app under test: a broker in the test's own process, rows sent by hand, views read as plain rows, no sleeps.

::

    with AppUnderTest(app, tmp_path) as shop:
        shop.send("orders", {"order_id": "1", "amount": 5.0, "ordered_at": "2026-01-01T00:00:00Z"}, Crash(), {...})
        assert shop.view("revenue") == [{"minute": "2026-01-01T00:00:00.000000Z", ..., "final": False}]

``send`` returns when every query has processed everything. ``Crash()`` among the rows ends all queries in the middle of
writing what came before it (before or after the rows were committed, as it says) and starts them again from what is on
disk. The clock stands still until the test moves it; records carry its time. One Spark session serves all tests of a
process.
"""

from __future__ import annotations

import atexit
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from confluent_kafka import Producer

from headrace.capture.declarations import SQLite
from headrace.capture.sqlite_drain import SQLiteDrain
from headrace.clock import SystemClock
from headrace.errors import HeadraceError
from headrace.feed import open_feed
from headrace.feed.cluster import Cluster
from headrace.pipelines.app import App
from headrace.pipelines.runner import Runner, ends_of
from headrace.pipelines.running import ATTEMPTS, reason
from headrace.pipelines.settings import RunSettings
from headrace.pipelines.spark import start_spark
from headrace.testing.broker import EmbeddedBroker
from headrace.testing.clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["AppUnderTest", "Crash", "Deleted", "Letter", "Log", "shared_spark"]

ROUNDS = 200


@dataclass(frozen=True, slots=True)
class Crash:
    """Everything stops here. ``at``: ``before-commit`` or ``after-commit`` of the rows that came before."""

    at: str = "after-commit"


@dataclass(frozen=True, slots=True)
class Letter:
    """A record of a dead-letter or late topic."""

    value: bytes | None
    reason: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Deleted:
    """The row of a table with this key is deleted: ``send("customers", Deleted({"id": 7}))``."""

    key: Mapping[str, Any]


class Log(Protocol):
    """A log for the length of a test."""

    @property
    def bootstrap(self) -> str:
        """The address for clients."""

    @property
    def data(self) -> Path | None:
        """The folder of its files, if they can be read."""

    def start(self) -> None:
        """Start it; topics are made by whoever needs them."""

    def stop(self) -> None:
        """Stop it."""


class _Crashed(Exception):
    """A crash that was asked for."""


@cache
def shared_spark() -> SparkSession:
    """The Spark session of this process, started when first used."""
    more = {"spark.sql.shuffle.partitions": "2", "spark.sql.streaming.pollingDelay": "50"}
    folder = Path(mkdtemp(prefix="headrace-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return start_spark("headrace-tests", folder, "local[2]", more)


class AppUnderTest:
    """An app with a broker of its own, for the length of a ``with`` block; Spark is shared by all tests of a process.

    ```python
    with AppUnderTest(app, tmp_path) as shop:
        shop.send("orders", {"order_id": "1", "amount": 5.0, "ordered_at": "2026-01-01T00:00:00Z"})
        assert shop.view("revenue")[0]["revenue"] == 5.0
    ```

    ``folder`` is where it keeps everything. ``rebuild`` and ``start_from`` are ``headrace run``'s ``--rebuild`` and
    ``--from``; ``partitions`` is how many a topic has.
    """

    def __init__(
        self,
        app: App,
        folder: Path,
        *,
        clock: ManualClock | None = None,
        partitions: int = 1,
        rebuild: bool = False,
        start_from: str | None = None,
        checkpoints: str | None = None,
    ) -> None:
        self.app, self.folder = app, folder
        self.clock = clock or ManualClock(SystemClock().now_ms())
        self.rebuild, self.start_from, self.checkpoints = rebuild, start_from, checkpoints
        self.runner: Runner | None = None
        self._broker = self.new_log(partitions)
        self._queries: dict[str, StreamingQuery] = {}
        self._crash_at: str | None = None

    def new_log(self, partitions: int) -> Log:
        """What it runs on: a broker of its own, unless a subclass knows another."""
        properties = {"num.partitions": str(partitions), "log.message.timestamp.after.max.ms": str(2**62)}
        return EmbeddedBroker(self.folder / "data", properties, clock=self.clock)

    def __enter__(self) -> AppUnderTest:
        self._broker.start()
        try:
            self.start()
        except BaseException:
            self._broker.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            self._broker.stop()

    @property
    def bootstrap(self) -> str:
        """Where the broker listens."""
        return self._broker.bootstrap

    @property
    def cluster(self) -> Cluster:
        """What the broker can be asked, also while the app is stopped."""
        return Cluster(self.bootstrap, {})

    def start(self) -> None:
        """Start the app, where it was."""
        settings = RunSettings(
            self.bootstrap,
            self.folder,
            self._broker.data,
            interval_ms=0,
            rebuild=self.rebuild,
            buckets=2,
            start_from=self.start_from,
            checkpoints=self.checkpoints,
        )
        self.runner = Runner(self.app, settings, lambda sentence: None, spark=shared_spark(), crash=self._maybe_crash)
        try:
            self.runner.prepare()
            self.runner.register_views()
            for name, job in self.runner.jobs.items():
                self._queries[name] = job.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the app; the broker stays."""
        for name, query in self._queries.items():
            query.stop()
            self._runner.jobs[name].done()
        self._queries.clear()
        if self.runner is not None:
            self.runner.stop()
            self.runner = None

    def send(self, topic: str, *rows: Mapping[str, Any] | bytes | Crash | Deleted) -> None:
        """Send rows to a stream's or table's topic, and process them. Bytes are sent as they are."""
        producer = Producer(self._runner.cluster.config(linger_ms=0))
        for row in rows:
            if isinstance(row, Crash):
                producer.flush(30)
                self._crash(row)
            else:
                key = self._key(topic, row.key if isinstance(row, Deleted) else row)
                producer.produce(topic, value=_value(row), key=key, timestamp=self.clock.now_ms())
        producer.flush(30)
        self.settle()

    def capture(self) -> None:
        """Carry what was changed in the SQLite files of captured tables into the log, and process it."""
        for captured in self.app.captured:
            if isinstance(captured.source, SQLite):
                drain = SQLiteDrain(self.app.name, captured, self.cluster)
                try:
                    drain.open()
                    while drain.step():
                        pass
                finally:
                    drain.close()
        self.settle()

    def settle(self) -> None:
        """Process everything that there is."""
        for _ in range(ROUNDS):
            for name in self._queries:
                try:
                    self._process(name)
                except Exception as error:
                    raise self._failed(name, error) from error
            if all(job.has_read(ends_of(self._runner.cluster, job)) for job in self._runner.jobs.values()):
                self._runner.swap_what_caught_up()
                return
        raise HeadraceError("the queries do not come to the end of what they read")

    def view(self, name: str) -> list[dict[str, Any]]:
        """The rows of a view, by key."""
        rows: dict[bytes, bytes] = {}
        for record in self._records(self._runner.jobs[name].generation.topic):
            if record["value"] is None:
                rows.pop(record["key"], None)
            else:
                rows[record["key"]] = record["value"]
        return [json.loads(rows[key]) for key in sorted(rows)]

    def stream(self, name: str) -> list[dict[str, Any]]:
        """The rows of a derived stream, an alert, or any topic of JSON, in order."""
        job = self._runner.jobs.get(name)
        topic = job.generation.topic if job is not None else name
        return [json.loads(record["value"]) for record in self._records(topic)]

    def letters(self, topic: str) -> list[Letter]:
        """The records of a topic of dead letters or late rows: ``letters("orders.dead")``. Each once, as compaction
        leaves them: every query that reads a stream writes the dead rows that it finds."""
        found: dict[Any, Letter] = {}
        for number, record in enumerate(self._records(topic)):
            headers = {h["key"]: (h["value"] or b"").decode() for h in record["headers"]}
            found[record["key"] or number] = Letter(record["value"], headers.get("headrace.reason", ""), headers)
        return list(found.values())

    def crash(self, at: str = "after-commit") -> None:
        """Crash while what is there is written, and start again."""
        self._crash(Crash(at))
        self.settle()

    def _crash(self, crash: Crash) -> None:
        self._crash_at = crash.at
        for name in self._queries:
            try:
                self._process(name)
            except Exception as error:
                if "_Crashed" not in str(error):
                    raise
        self._crash_at = None
        self.stop()
        self.start()

    def _process(self, name: str) -> None:
        """Let a query do what there is to do. Spark gives a new Python process 10 s to come up: try again if that is
        not enough."""
        for _ in range(ATTEMPTS):
            try:
                return self._queries[name].processAllAvailable()
            except Exception as error:
                if "failed to connect back" not in str(error):
                    raise
            self._queries[name] = self._runner.jobs[name].start()
        return self._queries[name].processAllAvailable()

    def _maybe_crash(self, point: str) -> None:
        if point == self._crash_at:
            raise _Crashed(point)

    @property
    def _runner(self) -> Runner:
        if self.runner is None:
            raise HeadraceError("the app is not running")
        return self.runner

    def _failed(self, name: str, error: Exception) -> HeadraceError:
        why = self._runner.jobs[name].failure() or error
        return why if isinstance(why, HeadraceError) else HeadraceError(f"query {name!r} failed: {reason(why)}")

    def _key(self, topic: str, row: Mapping[str, Any] | bytes) -> bytes | None:
        declared = next((one for one in self.app if one.topic == topic), None)
        key: tuple[str, ...] = getattr(declared, "key", ())
        if not key:
            return None
        if isinstance(row, bytes):  # a table's topic takes no record without a key
            known = _object(row)
            if not known.keys() >= set(key):
                return row
            row = known
        return json.dumps({name: row[name] for name in key}, separators=(",", ":"), default=str).encode()

    def _records(self, topic: str) -> list[dict[str, Any]]:
        feed = open_feed(self.bootstrap, self._broker.data)
        try:
            return [
                record
                for partition, (start, end) in sorted(feed.bounds(topic).items())
                for batch in feed.read(topic, partition, start, end)
                for record in batch.to_pylist()
            ]
        finally:
            feed.close()


def _object(text: bytes) -> Mapping[str, Any]:
    """What a record says; nothing if it is no JSON object."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _value(row: Mapping[str, Any] | bytes | Deleted) -> bytes | None:
    if isinstance(row, Deleted):
        return None
    return row if isinstance(row, bytes) else json.dumps(row, default=str).encode()
