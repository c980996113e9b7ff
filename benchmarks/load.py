"""The clients that put load on a broker: Kafka's own performance tools, and confluent-kafka."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping

import confluent_kafka as ck
from tests.servers import java

TOOLS = "org.apache.kafka.tools"
JVM = ["-Xms512m", "-XX:+UseG1GC"]
PRODUCER = {"linger.ms": "5", "batch.size": "131072", "buffer.memory": "67108864"}
"""How the Java producer is set up, the same for both brokers; the rest is Kafka's default."""

_SUMMARY = re.compile(
    r"([\d.]+) records/sec \(([\d.]+) MB/sec\), ([\d.]+) ms avg latency, ([\d.]+) ms max latency,"
    r" (\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th, (\d+) ms 99.9th"
)


class LoadFailed(Exception):
    """A load tool did not do its work."""


def java_produce(
    bootstrap: str,
    topic: str,
    records: int,
    size: int,
    *,
    acks: str,
    rate: int = -1,
    settings: Mapping[str, str] | None = None,
    warm_up: float = 0.2,
) -> dict[str, float]:
    """ProducerPerformance; figures are of the steady state, after the JVM has warmed up."""
    properties = {**PRODUCER, "bootstrap.servers": bootstrap, "acks": acks, **(settings or {})}
    printed = run(
        java(
            f"{TOOLS}.ProducerPerformance",
            *("--topic", topic, "--num-records", str(records), "--record-size", str(size)),
            *("--throughput", str(rate), "--warmup-records", str(int(records * warm_up))),
            *("--command-property", *(f"{key}={value}" for key, value in properties.items())),
            heap="512m",
            options=JVM,
        )
    )
    found = _SUMMARY.findall(printed)
    if not found or "Exception" in printed:
        raise LoadFailed(printed)
    rate_seen, mb, _, _, p50, _, p99, p999 = map(float, found[-1])
    return {"records/s": rate_seen, "MB/s": mb, "p50 ms": p50, "p99 ms": p99, "p99.9 ms": p999}


def java_consume(bootstrap: str, topic: str, records: int) -> dict[str, float]:
    """ConsumerPerformance, from the beginning; the time to join the group is not counted."""
    printed = run(
        java(
            f"{TOOLS}.ConsumerPerformance",
            *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records)),
            *("--timeout", "60000", "--hide-header"),
            heap="512m",
            options=JVM,
        )
    )
    row = [line.split(", ") for line in printed.splitlines() if line.count(", ") >= 9]
    if not row or int(row[-1][5]) < records:
        raise LoadFailed(printed)
    return {"records/s": float(row[-1][9]), "MB/s": float(row[-1][8])}


def java_share(bootstrap: str, topic: str, records: int, group: str, *, threads: int = 1) -> dict[str, float]:
    """ShareConsumerPerformance; the group is to begin at the earliest offset. Every record is accepted."""
    printed = run(
        java(
            f"{TOOLS}.ShareConsumerPerformance",
            *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records), "--group", group),
            *("--timeout", "60000", "--hide-header", "--threads", str(threads)),
            heap="512m",
            options=JVM,
        )
    )
    row = [line.split(", ") for line in printed.splitlines() if line.count(", ") >= 5]
    if not row or int(row[-1][5]) < records:
        raise LoadFailed(printed)
    return {"records/s": float(row[-1][4]), "MB/s": float(row[-1][3])}


def python_produce(
    bootstrap: str, topic: str, records: int, size: int, *, acks: str, partitions: int
) -> dict[str, float]:
    """confluent-kafka, in batches; counted until the last record is acknowledged."""
    failed = 0

    def delivered(error: ck.KafkaError | None, _: ck.Message) -> None:
        nonlocal failed
        failed += error is not None

    producer = ck.Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 500_000,
            "delivery.report.only.error": True,
            "on_delivery": delivered,
        }
    )
    value = os.urandom(size)
    chunk = 2000
    started = time.perf_counter()
    for number in range(0, records, chunk):
        messages = [{"value": value} for _ in range(min(chunk, records - number))]
        while True:
            try:
                producer.produce_batch(topic, messages, partition=(number // chunk) % partitions)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    left = producer.flush(120)
    took = time.perf_counter() - started
    if failed or left:
        raise LoadFailed(f"{failed} records failed, {left} were not sent")
    return {"records/s": records / took, "MB/s": records * size / took / 1e6}


def python_consume(bootstrap: str, topic: str, records: int, size: int, *, partitions: int) -> dict[str, float]:
    """confluent-kafka, all partitions from the beginning; counted from the first record on."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
            "queued.min.messages": 500_000,
            "log_level": 0,
        }
    )
    consumer.assign([ck.TopicPartition(topic, index, 0) for index in range(partitions)])
    done, first, last = 0, 0.0, time.monotonic()
    while done < records:
        messages = consumer.consume(10_000, 0.2)
        if messages:
            last = time.monotonic()
            first = first or time.perf_counter()
            done += len(messages)
        elif time.monotonic() - last > 60:
            raise LoadFailed(f"only {done} of {records} records came")
    took = time.perf_counter() - first
    consumer.close()
    return {"records/s": done / took, "MB/s": done * size / took / 1e6}


def run(command: list[str]) -> str:
    """What a load tool printed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode:
        raise LoadFailed(done.stdout + done.stderr)
    return done.stdout + done.stderr
