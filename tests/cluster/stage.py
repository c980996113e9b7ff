"""A plugin of pytest: apps under test run on three Apache Kafka brokers with three copies of everything, on Spark
executors of their own, with views in PostgreSQL; a view is then what both its topic and the database have. All else is
as on one machine, and so are the tests:

``pytest -p tests.cluster.stage tests/pipelines/test_tables.py`` (``make cluster``: every test of apps)
"""

from __future__ import annotations

import itertools
import json
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headrace.client import connect
from headrace.feed.cluster import Cluster
from headrace.feed.topics import delete_topics, ensure_topic
from headrace.pipelines.declarations import Query
from headrace.pipelines.spark import start_spark
from headrace.testing import app as kit
from tests.capture.databases import Postgres
from tests.pipelines.kill_rounds import CLUSTER
from tests.servers import ROOT, KafkaCluster, ViewsNode
from tests.serving.live import eventually

_KEPT = {"log.retention.ms": "-1", "log.message.timestamp.after.max.ms": str(2**62)}
"""Tests have clocks of their own, years from now."""


class EmptiedCluster:
    """A log for the length of a test: brokers stay, what the test before left behind does not."""

    data = None

    def __init__(self, bootstrap: str, topics: Iterable[str], partitions: int) -> None:
        self.bootstrap = bootstrap
        self._topics, self._partitions = tuple(topics), partitions

    def start(self) -> None:
        cluster = Cluster(self.bootstrap, {})
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        groups = [one.group_id for one in admin.list_consumer_groups(request_timeout=30).result(30).valid]
        for done in admin.delete_consumer_groups(groups).values() if groups else ():
            with suppress(KafkaException):  # not empty yet: its offsets go with the topics
                done.result(30)
        left = self._left(admin)
        if left:
            delete_topics(cluster, left)
        deadline = time.monotonic() + 60
        while any(self._left(AdminClient({"bootstrap.servers": one})) for one in self.bootstrap.split(",")):
            assert time.monotonic() < deadline, "topics stay"
            time.sleep(0.1)
        for topic in self._topics:
            ensure_topic(cluster, topic, self._partitions, {})

    def stop(self) -> None:
        """Brokers go on."""

    def _left(self, admin: AdminClient) -> list[str]:
        return [name for name in admin.list_topics(timeout=30).topics if not name.startswith("__")]


class OnCluster(kit.AppUnderTest):
    """An app under test on the stage."""

    _node: ViewsNode | None = None

    def new_log(self, partitions: int) -> EmptiedCluster:
        own = [one for one in self.app if not isinstance(one, Query) and not getattr(one, "capture", None)]
        return EmptiedCluster(_stage().cluster.bootstrap, [one.topic for one in own], partitions)

    def __enter__(self) -> kit.AppUnderTest:
        super().__enter__()
        self._node = ViewsNode(self.folder / "node", self.bootstrap, env={"HEADRACE_VIEWS": _stage().new_views()})
        return self

    def __exit__(self, *raised: Any) -> None:
        if self._node is not None:
            self._node.stop()
        super().__exit__(*raised)

    def view(self, name: str) -> list[dict[str, Any]]:
        wanted = super().view(name)
        assert self._node is not None
        view = connect(self._node.web).view(f"{self.app.name}.{name}")
        eventually(lambda: view.rows(limit=10_000), lambda rows: _counted(rows) == _counted(wanted))
        return wanted


def _counted(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


class Stage:
    """The servers; they stay for all tests."""

    def __init__(self) -> None:
        folder = Path(_ending.enter_context(tempfile.TemporaryDirectory(prefix="headrace-stage-")))
        self.cluster = KafkaCluster(folder / "kafka", settings=_KEPT)
        _ending.callback(self.cluster.stop)
        self._postgres = Postgres(wal_level="minimal", settings={"max_wal_senders": "0"})
        _ending.callback(self._postgres.close)
        self._numbers = itertools.count(1)
        more = {
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.streaming.pollingDelay": "50",
            "spark.executorEnv.PYTHONPATH": str(ROOT),
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        start_spark("headrace-tests", folder / "spark", CLUSTER, more)  # whoever starts Spark takes this one

    def new_views(self) -> str:
        name = f"views{next(self._numbers)}"
        self._postgres.create(name)
        return self._postgres.dsn(name)


_ending = ExitStack()
_stage = cache(Stage)


def pytest_configure() -> None:
    kit.AppUnderTest = OnCluster  # type: ignore[misc]


def pytest_sessionstart() -> None:
    _stage()


def pytest_unconfigure() -> None:
    _ending.close()
