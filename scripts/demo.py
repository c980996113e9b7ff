#!/usr/bin/env python3
"""`make demo`: starts a node, writes a million records, reads them back, checks every one, and says how fast it was."""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka as ck
from confluent_kafka import admin
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

TOPIC = "demo"
PARTITIONS = 4
CHUNK = 10_000
PADDING = b"." * 80

console = Console()


@contextmanager
def node(data: Path) -> Iterator[str]:
    """A node on a free port; its address."""
    command = [str(Path(sys.executable).with_name("headrace")), "up", "--data", str(data), "--listen", "127.0.0.1:0"]
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            found = re.search(r"listens on (\S+)", line)
            if found is None:
                raise SystemExit(f"headrace up did not start (exit code {process.wait(10)})")
            console.print(f"A node listens on {found[1]}, {time.perf_counter() - started:.2f} s after it was started")
            yield found[1]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def value(number: int) -> bytes:
    """What record number so-and-so says."""
    return b"%d " % number + PADDING


def write(server: str, records: int, progress: Progress) -> float:
    """Writes the records with acks=all: each is on disk when it is acknowledged. Returns the seconds it took."""
    failed: list[ck.KafkaError] = []
    done = 0

    def delivered(error: ck.KafkaError | None, _: ck.Message) -> None:
        nonlocal done
        done += 1
        if error is not None:
            failed.append(error)

    producer = ck.Producer(
        {
            "bootstrap.servers": server,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 500_000,
        }
    )
    task = progress.add_task("write, acks=all", total=records)
    started = time.perf_counter()
    for number in range(records):
        while True:
            try:
                producer.produce(TOPIC, value(number), partition=number % PARTITIONS, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
        if number % CHUNK == 0:
            producer.poll(0)
            progress.update(task, completed=done)
    while producer.flush(0.2):
        progress.update(task, completed=done)
    progress.update(task, completed=done)
    if failed or done != records:
        raise SystemExit(f"{len(failed)} of {records} records were refused, the first because: {failed[:1]}")
    return time.perf_counter() - started


def read(server: str, records: int, progress: Progress) -> float:
    """Reads everything back and checks content, order and count. Returns the seconds it took."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": server,
            "group.id": "demo",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "check.crcs": True,
            "fetch.queue.backoff.ms": 2,
        }
    )
    consumer.assign([ck.TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    task = progress.add_task("read and verify", total=records)
    following = list(range(PARTITIONS))
    done, started, last = 0, time.perf_counter(), time.monotonic()
    while done < records:
        messages = consumer.consume(CHUNK, 0.5)
        if messages:
            last = time.monotonic()
        elif time.monotonic() - last > 30:
            raise SystemExit(f"only {done} of {records} records came back")
        for message in messages:
            if message.error() is not None:
                raise SystemExit(f"reading failed: {message.error()}")
            index = message.partition()
            if message.value() != value(following[index]):
                raise SystemExit(f"partition {index}, offset {message.offset()}: not record {following[index]}")
            following[index] += PARTITIONS
        done += len(messages)
        progress.update(task, completed=done)
    took = time.perf_counter() - started
    ends = sum(consumer.get_watermark_offsets(ck.TopicPartition(TOPIC, index), 10)[1] for index in range(PARTITIONS))
    consumer.close()
    if ends != records:
        raise SystemExit(f"the log holds {ends} records, not {records}")
    return took


def main() -> None:
    """The demo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    records = parser.parse_args().records
    size = sum(len(value(number)) for number in (0, records - 1)) // 2
    columns = (TextColumn("{task.description:<16}"), BarColumn(None), MofNCompleteColumn(), TimeElapsedColumn())
    with tempfile.TemporaryDirectory(prefix="headrace-demo-") as folder, node(Path(folder) / "data") as server:
        client = admin.AdminClient({"bootstrap.servers": server, "log_level": 0})
        client.create_topics([admin.NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(20)
        with Progress(*columns, console=console) as progress:
            wrote = write(server, records, progress)
            took = read(server, records, progress)
    for what, seconds in (("Wrote", wrote), ("Read ", took)):
        rate, mb = records / seconds, records * size / seconds / 1e6
        console.print(f"{what} {records:,} records in {seconds:5.2f} s: {rate:11,.0f} records/s, {mb:6.1f} MB/s")
    console.print("Every record came back once, whole and in order.", style="green")


if __name__ == "__main__":
    main()
