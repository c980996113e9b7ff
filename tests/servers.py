"""Real servers for tests and benchmarks: Headrace, and Apache Kafka 4.3.0 beside it.

Both run as child processes on free loopback ports with their own data folder. A child dies with the process that
started it (also when that is killed), so no test run leaves a server behind.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import os
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from confluent_kafka.admin import AdminClient

ROOT = Path(__file__).resolve().parent.parent
KAFKA_LIBS = ROOT / ".tools" / "kafka" / "libs"
LOG4J = Path(__file__).resolve().parent / "log4j2.properties"

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
_PORTS = range(15_000, 32_000)
"""Below those that Linux gives to connections."""
_DICE = random.SystemRandom()
_LISTENS = re.compile(rb"listens on (\S+):(\d+)")
_SERVES = re.compile(r"Views and status: (\S+)")


class ServerFailed(Exception):
    """A server did not start; carries what it printed."""


class Server(Protocol):
    """What tests need of a broker."""

    name: str
    bootstrap: str

    @property
    def data(self) -> Path | None:
        """The data folder, if its files can be read."""

    @property
    def pid(self) -> int: ...
    def stop(self) -> None: ...


def die_with_parent() -> None:
    """For preexec_fn: the kernel kills this child when its parent goes."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port() -> int:
    """A port that nobody listens on. The system gives it to no connection either, so it stays free while a server that
    is started again is down, whatever other tests do meanwhile."""
    while True:
        port = _DICE.choice(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port


def java(main: str, *arguments: str, heap: str = "256m", options: Sequence[str] = ()) -> list[str]:
    """The command line of a Java program from Kafka's jars."""
    if not any(KAFKA_LIBS.glob("kafka-clients-*.jar")):
        raise ServerFailed("Apache Kafka's jars are not here. Run: make kafka")
    quiet = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"] if not options else list(options)
    jvm = ["java", f"-Xmx{heap}", *quiet, f"-Dlog4j2.configurationFile={LOG4J}"]
    return [*jvm, "-cp", f"{KAFKA_LIBS}/*", main, *arguments]


class _Process:
    """A child process whose output goes to a file; killed with us."""

    def __init__(self, command: Sequence[str], output: Path, env: Mapping[str, str] | None = None) -> None:
        self.output = output
        self._file: IO[bytes] = output.open("ab")
        self._start = output.stat().st_size
        self.popen = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        self._exit = os.pidfd_open(self.popen.pid)

    def printed(self) -> bytes:
        with self.output.open("rb") as file:
            file.seek(self._start)
            return file.read()

    def dead(self, within: float = 0.0) -> bool:
        select.select([self._exit], [], [], within)
        return self.popen.poll() is not None

    def end(self, how: signal.Signals, patience: float) -> int:
        """Sends the signal and waits; kills when patience runs out. Returns the exit code."""
        if self.popen.poll() is None:
            self.popen.send_signal(how)
            if not self.dead(patience):
                self.popen.kill()
        code = self.popen.wait()
        self._file.close()
        with contextlib.suppress(OSError):
            os.close(self._exit)
        self._exit = -1
        return code


class Headrace:
    """`headrace up` on a folder. It can be killed and started again on the same folder and port."""

    name = "headrace"

    def __init__(
        self,
        folder: Path,
        *,
        port: int = 0,
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        http: str = "none",
        start: bool = True,
    ) -> None:
        self.folder = folder
        self.http = http
        self.data = folder / "data"
        self.port = port or free_port()
        self.options = tuple(options)
        self.env = dict(env or {})
        self.prefix = tuple(prefix)
        self._process: _Process | None = None
        folder.mkdir(parents=True, exist_ok=True)
        if start:
            self.start()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def process(self) -> _Process:
        if self._process is None:
            raise ServerFailed("Headrace is not running")
        return self._process

    @property
    def pid(self) -> int:
        return self.process.popen.pid

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def output(self) -> str:
        return (self.folder / "output.log").read_text(errors="replace")

    @property
    def web(self) -> str:
        """The address of its page, as it said last."""
        return _SERVES.findall(self.output)[-1]

    def spawn(self) -> None:
        """Starts the process on a given port and does not wait."""
        self._process = self._spawned()

    def _spawned(self) -> _Process:
        listen = f"127.0.0.1:{self.port}"
        command = [str(Path(sys.executable).with_name("headrace")), "up", "--data", str(self.data), "--listen", listen]
        command += ["--http", self.http]
        return _Process([*self.prefix, *command, *self.options], self.folder / "output.log", self.env)

    def start(self, patience: float = 120.0) -> None:
        process = self._spawned()
        deadline = time.monotonic() + patience
        while (found := _LISTENS.search(process.printed())) is None:
            if process.dead(0.01) or time.monotonic() > deadline:
                code = process.end(signal.SIGKILL, 1.0)
                raise ServerFailed(f"headrace up ended with {code}:\n{process.printed().decode(errors='replace')}")
        self.port = int(found[2])
        self._process = process

    def kill9(self) -> None:
        """SIGKILL, as the OOM killer would."""
        self.process.end(signal.SIGKILL, 10.0)
        self._process = None

    def stop(self) -> None:
        """SIGTERM; a clean stop. Raises when it did not exit with 0 in time."""
        if self._process is None:
            return
        process, self._process = self._process, None
        code = process.end(signal.SIGTERM, 30.0)
        if code != 0:
            raise ServerFailed(f"headrace ended with {code}:\n{process.printed().decode(errors='replace')}")

    def restart(self) -> None:
        self.start()


class ViewsNode(Headrace):
    """`headrace up --log`: a node without a broker, which serves the views of a log elsewhere."""

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        *,
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._bootstrap = bootstrap
        super().__init__(folder, options=options, env=env, http="127.0.0.1:0", port=1)

    @property
    def bootstrap(self) -> str:
        return self._bootstrap

    def _spawned(self) -> _Process:
        command = [str(Path(sys.executable).with_name("headrace")), "up", "--data", str(self.data), "--http", self.http]
        log = ["--log", f"kafka://{self._bootstrap}"]
        return _Process([*command, *log, *self.options], self.folder / "output.log", self.env)

    def start(self, patience: float = 180.0) -> None:
        process = self._spawned()
        deadline = time.monotonic() + patience
        while _SERVES.search(process.printed().decode(errors="replace")) is None:
            if process.dead(0.01) or time.monotonic() > deadline:
                code = process.end(signal.SIGKILL, 1.0)
                raise ServerFailed(f"headrace up ended with {code}:\n{process.printed().decode(errors='replace')}")
        self._process = process


class ApacheKafka:
    """One Apache Kafka broker and controller in a process of its own (KRaft)."""

    name = "kafka"
    data = None
    _voters: tuple[str, ...] = ("--standalone",)

    def __init__(
        self,
        folder: Path,
        *,
        settings: Mapping[str, str] | None = None,
        heap: str = "512m",
        fast: bool = False,
        start: bool = True,
    ) -> None:
        """``fast``: as a production server runs, not as one that starts quickly."""
        self.folder = folder
        self.heap = heap
        self.fast = fast
        folder.mkdir(parents=True, exist_ok=True)
        self.port, self._controller_port = free_port(), free_port()
        self._properties = folder / "server.properties"
        self._properties.write_text(
            "".join(f"{key}={value}\n" for key, value in self._settings(settings or {}).items())
        )
        self._process: _Process | None = None
        self._format()
        if start:
            self.start()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerFailed("Apache Kafka is not running")
        return self._process.popen.pid

    def _settings(self, extra: Mapping[str, str]) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self._controller_port}",
            "log.dirs": str(self.folder / "data"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.min.isr": "1",
            **extra,
        }

    def _format(self) -> None:
        done = subprocess.run(
            java(
                "kafka.tools.StorageTool",
                "format",
                *self._voters,
                "-t",
                "hTBHi0PvTBuZw0kWzDzWMA",
                "-c",
                str(self._properties),
            ),
            capture_output=True,
            check=False,
            text=True,
        )
        if done.returncode:
            raise ServerFailed(f"Kafka's storage could not be formatted:\n{done.stdout}{done.stderr}")

    @property
    def running(self) -> bool:
        return self._process is not None

    def spawn(self) -> None:
        """Starts the process and does not wait."""
        self._process = self._spawned()

    def _spawned(self) -> _Process:
        jvm = [f"-Xms{self.heap}", "-XX:+UseG1GC", "-Djava.awt.headless=true"] if self.fast else ()
        command = java("kafka.Kafka", str(self._properties), heap=self.heap, options=jvm)
        return _Process(command, self.folder / "output.log")

    def start(self, patience: float = 180.0) -> None:
        self.spawn()
        self.wait(patience)

    def wait(self, patience: float = 180.0) -> None:
        """Until it takes connections."""
        process = self._process
        assert process is not None
        deadline = time.monotonic() + patience
        while not _accepts(self.port):
            if process.dead(0.05) or time.monotonic() > deadline:
                self._process = None
                code = process.end(signal.SIGKILL, 1.0)
                raise ServerFailed(f"Apache Kafka ended with {code}:\n{process.printed().decode(errors='replace')}")

    def kill9(self) -> None:
        if self._process is not None:
            self._process.end(signal.SIGKILL, 10.0)
            self._process = None

    def stop(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            process.end(signal.SIGTERM, 30.0)


_FEATURES = "bootstrap.checkpoint"
"""What a new cluster begins with: among it settings that Kafka makes by itself."""


class _Member(ApacheKafka):
    """One of several brokers, each of them a controller too."""

    _voters = ()

    def __init__(
        self, folder: Path, number: int, ports: Sequence[tuple[int, int]], settings: Mapping[str, str]
    ) -> None:
        self.number, self._all = number, tuple(ports)
        super().__init__(folder, settings=settings, heap="256m", start=False)

    def _settings(self, extra: Mapping[str, str]) -> dict[str, str]:
        self.port, self._controller_port = self._all[self.number - 1]
        alone = super()._settings({})
        del alone["controller.quorum.bootstrap.servers"]
        kept = {name: "3" for name in alone if name.endswith("replication.factor")}
        voters = ",".join(f"{number}@127.0.0.1:{port}" for number, (_, port) in enumerate(self._all, 1))
        return {
            **alone,
            **kept,
            **{name: "2" for name in alone if name.endswith(".min.isr")},
            "node.id": str(self.number),
            "controller.quorum.voters": voters,
            "broker.session.timeout.ms": "6000",
            "broker.heartbeat.interval.ms": "1000",
            "group.initial.rebalance.delay.ms": "0",
            "num.network.threads": "2",
            "num.io.threads": "4",
            **extra,
        }

    def _format(self) -> None:
        """As Kafka's storage tool does it, which is started for the first broker alone."""
        data = self.folder / "data"
        if self.number == 1:
            super()._format()
            return
        data.mkdir()
        shutil.copy(self.folder.with_name("broker1") / "data" / _FEATURES, data)
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        said = {
            "version": "1",
            "cluster.id": "hTBHi0PvTBuZw0kWzDzWMA",
            "node.id": self.number,
            "directory.id": identity,
        }
        (data / "meta.properties").write_text("".join(f"{name}={value}\n" for name, value in said.items()))


class KafkaCluster:
    """Three Apache Kafka brokers in processes of their own; internal topics have three copies."""

    name = "kafka"
    data = None

    def __init__(self, folder: Path, *, settings: Mapping[str, str] | None = None) -> None:
        ports = [(free_port(), free_port()) for _ in range(3)]
        self.brokers = [_Member(folder / f"broker{n}", n, ports, settings or {}) for n in (1, 2, 3)]
        for broker in self.brokers:
            broker.spawn()
        for broker in self.brokers:
            broker.wait()
        self.wait_until_whole()

    def wait_until_whole(self, patience: float = 180.0) -> None:
        """Until all brokers are in, and have all that the others have."""
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            found = client.list_topics(timeout=30)
            partitions = [one for topic in found.topics.values() for one in topic.partitions.values()]
            if len(found.brokers) == 3 and all(len(one.isrs) == len(one.replicas) for one in partitions):
                return
            time.sleep(0.1)
        raise ServerFailed("the brokers do not come together")

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)

    @property
    def pid(self) -> int:
        return self.brokers[0].pid

    def stop(self) -> None:
        for broker in self.brokers:
            broker.kill9()


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True
