"""What is measured on a broker: one function per case, all with the same signature."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.contract.batches import batch
from tests.contract.raw import Connection, Disconnected
from tests.contract.session import Session
from tests.servers import ApacheKafka, Headrace, free_port

from benchmarks import coordination, load, meter

PARTITIONS = 4
Figures = dict[str, float]


@dataclass(frozen=True)
class Bench:
    """A running server and how much work to give it."""

    server: Headrace | ApacheKafka
    scale: float

    @property
    def is_kafka(self) -> bool:
        return self.server.name == "kafka"

    def records(self, full: int) -> int:
        return max(1000, int(full * self.scale))

    def topic(self, name: str, partitions: int = PARTITIONS, **configs: str) -> str:
        session = Session(self.server.bootstrap, "bench")
        try:
            return session.topic(name, partitions, **configs).name
        finally:
            session.close()

    def metered(self, work: Callable[[], Figures], volume: int) -> Figures:
        """The work's figures with the server's processor time per GB."""
        before = meter.cpu_seconds(self.server.pid)
        figures = work()
        return {**figures, "CPU s/GB": (meter.cpu_seconds(self.server.pid) - before) / (volume / 1e9)}

    def metered_each(self, work: Callable[[], Figures], count: int) -> Figures:
        """The work's figures with the server's processor time for each of so many things; warming up included."""
        before = meter.cpu_seconds(self.server.pid)
        figures = work()
        return {**figures, "CPU ms each": (meter.cpu_seconds(self.server.pid) - before) * 1000 / count}


def _produce(bench: Bench, size: int, full: int, acks: str, name: str, **configs: str) -> Figures:
    topic, records = bench.topic(name, **configs), bench.records(full)
    return bench.metered(
        lambda: load.java_produce(bench.server.bootstrap, topic, records, size, acks=acks), records * size
    )


def produce_100b_all(bench: Bench) -> Figures:
    return _produce(bench, 100, 5_000_000, "all", "p100all")


def produce_1k_all(bench: Bench) -> Figures:
    return _produce(bench, 1024, 1_000_000, "all", "p1kall")


def produce_100b_one(bench: Bench) -> Figures:
    return _produce(bench, 100, 5_000_000, "1", "p100one")


def produce_1k_one(bench: Bench) -> Figures:
    return _produce(bench, 1024, 1_000_000, "1", "p1kone")


def produce_100b_synced(bench: Bench) -> Figures:
    """Kafka is told to sync every batch; Headrace's acks=all does that anyway."""
    configs = {"flush_messages": "1"} if bench.is_kafka else {}
    return _produce(bench, 100, 2_500_000, "all", "p100sync", **configs)


def produce_1k_synced(bench: Bench) -> Figures:
    configs = {"flush_messages": "1"} if bench.is_kafka else {}
    return _produce(bench, 1024, 500_000, "all", "p1ksync", **configs)


def _consume(bench: Bench, size: int, full: int, name: str) -> Figures:
    topic, records = bench.topic(name), bench.records(full)
    load.java_produce(bench.server.bootstrap, topic, records, size, acks="1")
    return bench.metered(lambda: load.java_consume(bench.server.bootstrap, topic, records), records * size)


def consume_100b(bench: Bench) -> Figures:
    return _consume(bench, 100, 10_000_000, "c100")


def consume_1k(bench: Bench) -> Figures:
    return _consume(bench, 1024, 2_000_000, "c1k")


def _share(bench: Bench, size: int, full: int, name: str, threads: int) -> Figures:
    topic, records, group = bench.topic(name), bench.records(full), f"group-{name}"
    load.java_produce(bench.server.bootstrap, topic, records, size, acks="1")
    setting = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
    session = Session(bench.server.bootstrap, "bench")
    try:
        session.ask(
            "incremental_alter_configs",
            resources=[{"resource_type": 32, "resource_name": group, "configs": [setting]}],
            validate_only=False,
        )
    finally:
        session.close()
    return bench.metered(
        lambda: load.java_share(bench.server.bootstrap, topic, records, group, threads=threads), records * size
    )


def share_100b(bench: Bench) -> Figures:
    return _share(bench, 100, 1_000_000, "s100", 1)


def share_1k(bench: Bench) -> Figures:
    return _share(bench, 1024, 500_000, "s1k", 1)


def share_100b_by_four(bench: Bench) -> Figures:
    """Four members of one group."""
    return _share(bench, 100, 2_000_000, "s100x4", 4)


def _python(bench: Bench, size: int, full: int, acks: str, name: str) -> Figures:
    topic, records = bench.topic(name), bench.records(full)
    return bench.metered(
        lambda: load.python_produce(bench.server.bootstrap, topic, records, size, acks=acks, partitions=PARTITIONS),
        records * size,
    )


def python_produce_100b_all(bench: Bench) -> Figures:
    return _python(bench, 100, 4_000_000, "all", "py100all")


def python_produce_1k_all(bench: Bench) -> Figures:
    return _python(bench, 1024, 1_000_000, "all", "py1kall")


def python_produce_100b_one(bench: Bench) -> Figures:
    return _python(bench, 100, 4_000_000, "1", "py100one")


def python_produce_1k_one(bench: Bench) -> Figures:
    return _python(bench, 1024, 1_000_000, "1", "py1kone")


def _python_consume(bench: Bench, size: int, full: int, name: str) -> Figures:
    topic, records = bench.topic(name), bench.records(full)
    load.python_produce(bench.server.bootstrap, topic, records, size, acks="1", partitions=PARTITIONS)
    return bench.metered(
        lambda: load.python_consume(bench.server.bootstrap, topic, records, size, partitions=PARTITIONS), records * size
    )


def python_consume_100b(bench: Bench) -> Figures:
    return _python_consume(bench, 100, 4_000_000, "pyc100")


def python_consume_1k(bench: Bench) -> Figures:
    return _python_consume(bench, 1024, 1_000_000, "pyc1k")


def latency_at_1000_per_second(bench: Bench) -> Figures:
    """1,000 records of 100 B a second, acks=all, each sent at once."""
    topic = bench.topic("latency")
    figures = load.java_produce(
        bench.server.bootstrap,
        topic,
        bench.records(30_000),
        100,
        acks="all",
        rate=1000,
        settings={"linger.ms": "0"},
        warm_up=0.3,
    )
    return {key: value for key, value in figures.items() if key != "MB/s"}


def start_up(bench: Bench) -> Figures:
    """From starting the process on an empty folder to the first record acknowledged with acks=all."""
    folder = bench.server.folder.with_name("start-up")
    shutil.rmtree(folder, ignore_errors=True)
    fresh: Headrace | ApacheKafka
    if bench.is_kafka:
        fresh = ApacheKafka(folder, heap="1g", fast=True, start=False)
    else:
        fresh = Headrace(folder, port=free_port(), start=False)
    started = time.perf_counter()
    fresh.spawn()
    try:
        _first_record(fresh.bootstrap)
        took = time.perf_counter() - started
        time.sleep(2)
        return {"seconds": took, "resident MB": meter.resident_mb(fresh.pid)}
    finally:
        fresh.kill9()
        shutil.rmtree(folder, ignore_errors=True)


def _first_record(bootstrap: str, patience: float = 60.0) -> None:
    body = {"name": "first", "partition_data": [{"index": 0, "records": batch()}]}
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            with Connection(bootstrap) as connection:
                while True:
                    connection.call("metadata", 5, topics=[{"name": "first"}], allow_auto_topic_creation=True)
                    answer = connection.call("produce", 9, acks=-1, timeout=1000, topic_data=[body])
                    if answer["responses"][0]["partition_responses"][0]["error_code"] == "none":
                        return
                    time.sleep(0.005)
        except (OSError, Disconnected):
            time.sleep(0.005)
    raise load.LoadFailed(f"no record was acknowledged in {patience} s")


def memory_after_5_gb(bench: Bench) -> Figures:
    topic, records = bench.topic("memory"), bench.records(5_000_000)
    figures = bench.metered(
        lambda: load.java_produce(bench.server.bootstrap, topic, records, 1000, acks="all"), records * 1000
    )
    pid = bench.server.pid
    return {
        "GB written": records * 1000 / 1e9,
        "resident MB": meter.resident_mb(pid),
        "peak MB": meter.peak_mb(pid),
        "CPU s/GB": figures["CPU s/GB"],
    }


def four_thousand_partitions(bench: Bench) -> Figures:
    """4,000 partitions are made, each is written to once, then the server is stopped and started."""
    count = bench.records(4000)
    started = time.perf_counter()
    names = [bench.topic(f"many{number}", 400) for number in range(max(1, count // 400))]
    made = time.perf_counter() - started
    started = time.perf_counter()
    for name in names:
        load.python_produce(bench.server.bootstrap, name, 400 * 2000, 10, acks="all", partitions=400)
    wrote = time.perf_counter() - started
    pid = bench.server.pid
    figures = {"resident MB": meter.resident_mb(pid), "open files": float(meter.open_files(pid))}
    bench.server.stop()
    started = time.perf_counter()
    bench.server.start()
    _first_record(bench.server.bootstrap)
    return {"made in s": made, "written in s": wrote, **figures, "restart s": time.perf_counter() - started}


MEMBERS = 50
QUICK_HEARTBEATS = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
}
"""Members of the newer protocol are told by the broker how often to ask, and new assignments are made at once; the
classic ones decide that themselves."""


def rebalance_raw_members(bench: Bench) -> Figures:
    """50 members join and are told their part; nothing but the coordinator is timed."""
    rounds = max(10, int(100 * bench.scale))
    return bench.metered_each(
        lambda: coordination.raw_rebalances(bench.server.bootstrap, MEMBERS, rounds), rounds + coordination.WARM_UP
    )


def _members(bench: Bench, name: str, **settings: object) -> Figures:
    """A member of 50 leaves and comes back: until every consumer has its new part."""
    topic, rounds = bench.topic(name, 2 * MEMBERS), max(1, int(5 * bench.scale))
    return coordination.member_rebalances(bench.server.bootstrap, topic, 2 * MEMBERS, MEMBERS, rounds, **settings)


def rebalance_classic_members(bench: Bench) -> Figures:
    return _members(bench, "classic", **{"heartbeat.interval.ms": 100})


def rebalance_consumer_members(bench: Bench) -> Figures:
    return _members(bench, "modern", **{"group.protocol": "consumer"})


def python_transactions(bench: Bench) -> Figures:
    topic, count = bench.topic("pytxn"), max(20, int(500 * bench.scale))
    return bench.metered_each(
        lambda: coordination.python_transactions(bench.server.bootstrap, topic, count, partitions=PARTITIONS), count
    )


def java_transactions(bench: Bench) -> Figures:
    topic, count = bench.topic("jtxn"), max(60, int(900 * bench.scale))
    return bench.metered_each(lambda: coordination.java_transactions(bench.server.bootstrap, topic, count), count)


@dataclass(frozen=True)
class Case:
    """A case, what of it is compared, and what is aimed at (Headrace / Kafka, or Headrace alone)."""

    name: str
    run: Callable[[Bench], Figures]
    figure: str
    more_is_better: bool = True
    ratio: float | None = None
    limit: float | None = None


CASES = (
    Case("produce 100 B acks=all", produce_100b_all, "records/s", ratio=1.3),
    Case("produce 1 KiB acks=all", produce_1k_all, "MB/s", ratio=1.3),
    Case("produce 100 B acks=1", produce_100b_one, "records/s", ratio=2.0),
    Case("produce 1 KiB acks=1", produce_1k_one, "MB/s", ratio=2.0),
    Case("produce 100 B both on disk", produce_100b_synced, "records/s", ratio=3.0),
    Case("produce 1 KiB both on disk", produce_1k_synced, "MB/s", ratio=3.0),
    Case("consume 100 B", consume_100b, "records/s", ratio=1.2),
    Case("consume 1 KiB", consume_1k, "MB/s", ratio=1.2),
    Case("share 100 B", share_100b, "records/s", ratio=1.0),
    Case("share 1 KiB", share_1k, "MB/s", ratio=1.0),
    Case("share 100 B, four members", share_100b_by_four, "records/s", ratio=1.0),
    Case("confluent produce 100 B acks=all", python_produce_100b_all, "records/s", ratio=1.3),
    Case("confluent produce 1 KiB acks=all", python_produce_1k_all, "MB/s", ratio=1.3),
    Case("confluent produce 100 B acks=1", python_produce_100b_one, "records/s", ratio=2.0),
    Case("confluent produce 1 KiB acks=1", python_produce_1k_one, "MB/s", ratio=2.0),
    Case("confluent consume 100 B", python_consume_100b, "records/s", ratio=1.2),
    Case("confluent consume 1 KiB", python_consume_1k, "MB/s", ratio=1.2),
    Case("transactions of 1 MiB", java_transactions, "MB/s", ratio=1.0),
    Case("confluent transactions of 1 MiB", python_transactions, "MB/s", ratio=1.0),
    Case("rebalance of 50 raw members", rebalance_raw_members, "rebalances/s", ratio=1.0),
    Case("rebalance of 50 classic members", rebalance_classic_members, "rebalances/s", ratio=1.0),
    Case("rebalance of 50 consumer members", rebalance_consumer_members, "rebalances/s", ratio=1.0),
    Case("latency at 1,000 records/s", latency_at_1000_per_second, "p99 ms", more_is_better=False),
    Case("start-up to first record", start_up, "seconds", more_is_better=False, limit=0.7),
    Case("memory after 5 GB", memory_after_5_gb, "resident MB", more_is_better=False, limit=150),
    Case("4,000 partitions", four_thousand_partitions, "restart s", more_is_better=False),
)


def server_for(name: str, folder: Path) -> Headrace | ApacheKafka:
    shutil.rmtree(folder, ignore_errors=True)
    if name == "kafka":
        return ApacheKafka(folder, heap="1g", fast=True, settings=QUICK_HEARTBEATS)
    return Headrace(folder, options=[word for pair in QUICK_HEARTBEATS.items() for word in ("--set", "=".join(pair))])
