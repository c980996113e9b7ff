"""A disk that is full, and one that cannot sync: what was promised is kept, and nothing is promised that cannot be."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contract.batches import batch
from tests.contract.session import LATEST, Session, Topic
from tests.servers import Headrace, die_with_parent

Start = Callable[..., Headrace]
Talk = Callable[[Headrace], Session]

MIB = 1 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def write(session: Session, topic: Topic, size: int = MIB // 2, partition: int = 0) -> tuple[str, int]:
    answer = session.ask("produce", 9, **session.produce_body(topic, batch([(b"k", os.urandom(size))]), partition))
    part = answer["responses"][0]["partition_responses"][0]
    return part["error_code"], part["base_offset"]


def test_a_full_disk_refuses_writes_serves_reads_and_recovers_without_restart(
    small_disk: Path, start: Start, talk: Talk
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * 6 * MIB)
    node = start(small_disk / "node")
    session = talk(node)
    topic = session.topic()
    acknowledged = 0
    while (result := write(session, topic))[0] == "none":
        assert result[1] == acknowledged
        acknowledged += 1
        assert acknowledged < 40
    assert result[0] == "kafka_storage_error"
    assert write(session, topic)[0] == "kafka_storage_error"
    for offset in range(acknowledged):
        assert session.fetch(topic, offset, partition_max_bytes=1)["error_code"] == "none"
    assert session.list_offset(topic, LATEST)["offset"] == acknowledged
    ballast.unlink()
    deadline = time.monotonic() + 10
    while (result := write(session, topic))[0] != "none":
        assert time.monotonic() < deadline, "it did not recover when there was room"
        time.sleep(0.1)
    assert result[1] == acknowledged
    node.kill9()
    node.start()
    session = talk(node)
    assert session.list_offset(topic, LATEST)["offset"] == acknowledged + 1
    assert session.fetch(topic, acknowledged)["error_code"] == "none"


def test_topics_cannot_be_made_on_a_full_disk_and_can_again_later(small_disk: Path, start: Start, talk: Talk) -> None:
    node = start(small_disk / "node")
    session = talk(node)
    session.topic("before")
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"\0" * 4096):
            pass
    spec = {"name": "fault-full", "num_partitions": 50, "replication_factor": 1}
    made = session.ask("create_topics", topics=[spec], timeout=5000)["topics"][0]
    assert made["error_code"] != "none"
    ballast.unlink()
    made = session.ask("create_topics", topics=[spec], timeout=5000)["topics"][0]
    assert made["error_code"] == "none", made


class FailingSync:
    """Every fdatasync and fsync of one partition's files fails with EIO while this is attached."""

    def __init__(self, node: Headrace, partition: Path, log: Path) -> None:
        paths = [word for path in sorted(partition.iterdir()) if path.is_file() for word in ("-P", str(path))]
        command = ["strace", "-f", "-qq", "-o", str(log), "-p", str(node.pid), *paths]
        command += ["-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:error=EIO"]
        self.popen = subprocess.Popen(command, stderr=subprocess.PIPE, preexec_fn=die_with_parent)
        deadline = time.monotonic() + 10
        while not self._traced(node.pid):
            if self.popen.poll() is not None:
                said = self.popen.stderr.read().decode() if self.popen.stderr else ""
                pytest.skip(f"strace cannot attach here: {said.strip()}")
            assert time.monotonic() < deadline
            time.sleep(0.02)

    @staticmethod
    def _traced(pid: int) -> bool:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return all("TracerPid:\t0\n" not in (task / "status").read_text() for task in tasks)

    def detach(self) -> None:
        self.popen.send_signal(signal.SIGINT)
        self.popen.communicate(timeout=10)


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed: apt-get install strace")
def test_a_partition_whose_sync_fails_takes_no_more_writes_and_the_others_do(
    start: Start, talk: Talk, tmp_path: Path
) -> None:
    node = start()
    session = talk(node)
    topic = session.topic(partitions=2)
    assert write(session, topic, 100) == ("none", 0)
    assert write(session, topic, 100, partition=1) == ("none", 0)
    broken = FailingSync(node, node.data / "topics" / topic.name / "0", tmp_path / "strace.log")
    try:
        assert write(session, topic, 100)[0] == "kafka_storage_error"
        assert write(session, topic, 100)[0] == "kafka_storage_error"
        assert write(session, topic, 100, partition=1) == ("none", 1)
    finally:
        broken.detach()
    assert write(session, topic, 100)[0] == "kafka_storage_error", (
        "a sync that failed once may have lost pages for ever"
    )
    assert session.fetch(topic, 0)["error_code"] == "none"
    assert session.fetch(topic, 0)["high_watermark"] == 1
    assert write(session, topic, 100, partition=1) == ("none", 2)
    assert "EIO" in node.output or "error" in node.output.lower(), "the operator is told"
    node.kill9()
    node.start()
    session = talk(node)
    assert session.fetch(topic, 0)["error_code"] == "none"
    error, offset = write(session, topic, 100)
    assert error == "none"
    assert offset >= 1
