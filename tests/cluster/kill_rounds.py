"""Kills what an app on a cluster runs on with SIGKILL, at random moments, while orders come in: one of three Kafka
brokers, one of two executors (Spark runs as a small cluster), the driver (and the node that serves views beside it),
PostgreSQL. A second node shares the views. In the end
every view must be what a recomputation from the log gives, in its topic and in the database, read from both nodes;
every acknowledged order must be in the log once. A driver that is started again has nothing of the one before but the
address of the checkpoints.

``python -m tests.cluster.kill_rounds --rounds 10 --seed 7`` (``make faults``). A round is a kill of each.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

import confluent_kafka as ck

from headrace.feed.cluster import Cluster
from headrace.feed.topics import ensure_topic
from tests.capture.databases import Postgres
from tests.cli.command import Cli
from tests.pipelines.conftest import order
from tests.pipelines.kill_rounds import (
    CLUSTER,
    PARTITIONS,
    PATIENCE_S,
    Driver,
    Orders,
    Wrong,
    aside,
    differences,
    records,
    stored,
)
from tests.servers import ROOT, KafkaCluster, ViewsNode
from tests.serving.live import eventually

VICTIMS = ("broker", "executor", "driver", "postgres")
READERS = ("revenue", "large", "best")
QUERIES = (*READERS, "sizes")


def campaign(folder: Path, cluster: KafkaCluster, postgres: Postgres, views: str, seed: int, rounds: int = 1) -> None:
    """Raises Wrong if something is not as it should be."""
    print(f"seed {seed}, {rounds} rounds", flush=True)
    chance, env = random.Random(seed), {"HEADRACE_VIEWS": views}
    ensure_topic(Cluster(cluster.bootstrap, {}), "orders", PARTITIONS, {})
    checkpoints = ["--checkpoints", (folder / "shared").as_uri()]
    driver, source = Driver(folder, cluster, checkpoints, env, CLUSTER), Orders(cluster.bootstrap, seed)
    node = None
    try:
        driver.wait_until_running()
        node = ViewsNode(folder / "node", cluster.bootstrap, env=env)
        for _ in range(rounds):
            for victim in chance.sample(VICTIMS, len(VICTIMS)):
                time.sleep(chance.uniform(0, 5))
                print(f"{time.strftime('%H:%M:%S')} killing {victim}", flush=True)
                _kill(victim, cluster, driver, postgres, chance)
        source.stop()
        _settle(cluster, driver, node)
        _ensure_kept(cluster, source)
        _ensure_late_are_told(cluster)
        _settle(cluster, driver, node)
        (own,) = (folder / "shared").iterdir()
        if {one.name for one in (own / "shop").iterdir()} != {f"shop.{query}" for query in QUERIES}:
            raise Wrong("checkpoints are not where they should be")
        if driver.stop() != 0:
            raise Wrong("the driver did not stop cleanly")
    except AssertionError as error:
        told = node.output[-3000:] if node is not None else ""
        raise Wrong(f"seed {seed}: {error}\n{driver.output[-6000:]}\n{told}") from error
    finally:
        driver.process.end(signal.SIGKILL, 10.0)
        if node is not None:
            node.stop()


def _kill(victim: str, cluster: KafkaCluster, driver: Driver, postgres: Postgres, chance: random.Random) -> None:
    """Kill one, and have it back after a while."""
    if victim == "driver":
        driver.data = driver.data.with_name(f"machine {time.time_ns()}")  # all that it needs is where checkpoints are
        driver.kill9()
    elif victim == "executor":
        deadline = time.monotonic() + PATIENCE_S
        while not driver.kill_executor(chance):  # a driver that was just started has none yet
            assert time.monotonic() < deadline, "there is no executor"
            time.sleep(0.2)
    elif victim == "postgres":
        postgres.kill9()
        time.sleep(chance.uniform(0, 2))
        postgres.start()
    else:
        broker = chance.choice(cluster.brokers)
        broker.kill9()
        assert Cluster(cluster.bootstrap, {}).brokers.replication == 3, "a topic made now would have fewer copies"
        time.sleep(chance.uniform(0, 10))
        broker.start()
        cluster.wait_until_whole(PATIENCE_S)


def _settle(cluster: KafkaCluster, driver: Driver, node: ViewsNode) -> None:
    deadline = time.monotonic() + driver.patience_s
    while wrong := differences(cluster) or stored(cluster, driver.web) or stored(cluster, node.web):
        if time.monotonic() > deadline or driver.process.dead():
            raise Wrong("; ".join(wrong))
        time.sleep(0.5)


def _ensure_kept(cluster: KafkaCluster, source: Orders) -> None:
    """Every acknowledged order is in the log, and none is there twice."""
    found = Counter(int(record["key"]) for record in records(cluster, "orders"))
    lost = set(source.acknowledged) - found.keys()
    twice = [number for number, times in found.items() if times > 1]
    if lost or twice or not source.acknowledged:
        raise Wrong(f"of {len(source.acknowledged)} acknowledged orders {len(lost)} are lost, {len(twice)} there twice")


def _ensure_late_are_told(cluster: KafkaCluster) -> None:
    """A row that comes too late is put aside by every query that reads it, and counted."""
    places: list[str] = []
    producer = ck.Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    late = json.dumps(order(-1, -100, 60.0)).encode()
    producer.produce("orders", late, "-1", 0, on_delivery=lambda _, sent: places.append(f"orders/0/{sent.offset()}"))
    assert producer.flush(60) == 0
    for query in READERS:
        eventually(partial(aside, cluster, "orders.late", f"shop.{query}"), lambda found: found >= set(places))
    cli = Cli(f"kafka://{cluster.bootstrap}")
    eventually(  # a batch is reported a moment after it is written
        lambda: {one["name"]: (one["state"], one["late"] > 0) for one in cli("query", "list", "-o", "json").json},
        lambda found: found == {query: ("running", query in READERS) for query in QUERIES},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else int(time.time())
    with tempfile.TemporaryDirectory(prefix="headrace-cluster-") as folder:
        cluster, postgres = KafkaCluster(Path(folder) / "kafka"), Postgres(wal_level="minimal", settings=_PLAIN)
        try:
            postgres.create("views")
            campaign(Path(folder), cluster, postgres, postgres.dsn("views"), seed, given.rounds)
        finally:
            cluster.stop()
            postgres.close()


_PLAIN = {"max_wal_senders": "0"}

if __name__ == "__main__":
    os.chdir(ROOT)
    main()
