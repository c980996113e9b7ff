"""Bad days: the broker does not answer, is gone for a while, or its disk is full; the disk of the checkpoints is full.
Queries wait and go on by themselves, and in the end every view is what a recomputation from the log gives."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import admin

from tests.pipelines.kill_rounds import PARTITIONS, Driver, Orders, Wrong, descendants, settle
from tests.servers import Headrace

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

AWAY_S = 12.0
"""Longer than any request waits for its answer."""


@dataclass
class Day:
    """A node, and an app that runs on it."""

    server: Headrace
    driver: Driver
    disks: dict[str, Path]
    orders: int = 0

    @contextlib.contextmanager
    def ends_well(self) -> Iterator[Orders]:
        """Orders keep coming in while the block runs; then all of them come out."""
        source = Orders(self.server.bootstrap, seed=self.orders, first=self.orders)
        yield source
        source.stop()
        self.orders = source.number
        try:
            settle(self.server, self.driver)
        except Wrong as wrong:
            raise AssertionError(f"{wrong}\n{self.driver.output[-4000:]}") from wrong
        assert "has failed" not in self.driver.output, self.driver.output

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Spark does nothing while the block runs."""
        (spark,) = [
            pid for pid, line in descendants(self.driver.process.popen.pid) if b"org.apache.spark.deploy" in line
        ]
        os.kill(spark, signal.SIGSTOP)
        yield
        os.kill(spark, signal.SIGCONT)

    def waits(self, times: int) -> None:
        """Let queries notice that something is wrong."""
        deadline = time.monotonic() + 120
        while self.driver.output.count(" waits for ") < times:
            assert time.monotonic() < deadline, f"nobody noticed:\n{self.driver.output[-4000:]}"
            assert not self.driver.process.dead(0.1), self.driver.output[-4000:]


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[bool]:
    """A file system of that size at a folder, if it can be had here."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and not subprocess.run(command, capture_output=True, check=False).returncode
    yield mounted
    if mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextlib.contextmanager
def full(disk: Path | None) -> Iterator[None]:
    """No room on a disk while the block runs."""
    if disk is None:
        pytest.skip("mounting a small file system needs root")
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"\0" * 4096):
            pass
    yield
    ballast.unlink()


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    folder = tmp_path_factory.mktemp("day")
    data = folder / "node" / "data"
    with small_disk(data, 256) as log, small_disk(data / "checkpoints", 32) as checkpoints:
        (folder / "spark").mkdir()
        (data / "spark").symlink_to(folder / "spark")
        disks = {"log": data} if log else {}
        if checkpoints:
            disks["checkpoints"] = data / "checkpoints"
        server = Headrace(folder / "node", http="127.0.0.1:0")
        made = admin.AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
        made.create_topics([admin.NewTopic("orders", PARTITIONS)])["orders"].result(30)
        driver = Driver(folder, server)
        driver.wait_until_running()
        yield Day(server, driver, disks)
        stopped = driver.stop()
        server.stop()
        assert stopped == 0, driver.output[-4000:]


def test_a_broker_that_does_not_answer_is_waited_for(day: Day) -> None:
    with day.ends_well():
        os.kill(day.server.pid, signal.SIGSTOP)
        time.sleep(AWAY_S)
        os.kill(day.server.pid, signal.SIGCONT)


def test_a_broker_that_is_gone_is_waited_for(day: Day) -> None:
    with day.ends_well():
        day.server.kill9()
        time.sleep(AWAY_S)
        day.server.start()


@pytest.mark.parametrize("which", ["checkpoints", "log"])
def test_a_full_disk_is_waited_for(day: Day, which: str) -> None:
    with day.ends_well() as source, contextlib.ExitStack() as disk:
        noticed = day.driver.output.count(" waits for ")
        with day.held():  # there is work to do once the disk is full
            while len(source.acknowledged) < 100:
                assert not day.driver.process.dead(0.1), day.driver.output[-4000:]
            disk.enter_context(full(day.disks.get(which)))
        day.waits(noticed + 1)
