"""Kafka's own tool reads our segments, and prints the same lines as ``headrace log dump``."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from headrace import _kernel
from headrace.log import LogStore
from tests.cli.command import Cli
from tests.servers import java

pytestmark = pytest.mark.system


def test_kafka_dump_log_prints_what_headrace_log_dump_prints(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path)
    partition = store.create_topic("t", 1).partitions[0]
    records = [(1_700_000_000_000 + n, b"key" if n % 2 else None, b"value %d" % n, [("h", b"x")]) for n in range(4)]
    for codec in range(5):
        partition.append(_kernel.build_batch(records, codec=codec), acks_all=False)
    partition.append(_kernel.build_batch([(0, b"gone", None, [])]), acks_all=False)
    idempotent = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    partition.append(_kernel.build_batch(records, **idempotent), acks_all=False)
    store.close()
    [path] = (tmp_path / "topics" / "t" / "0").glob("*.log")
    command = java("org.apache.kafka.tools.DumpLogSegments", "--files", str(path), "--print-data-log")
    theirs = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert Cli()("log", "dump", str(path), "--records").lines == theirs
