"""The Connect worker: one JVM with Kafka Connect in distributed mode, exactly-once source support on.

It is a child that dies with us. Its files are in one folder: ``worker.properties`` (readable by the owner alone),
``log4j2.properties``, ``worker.log``, ``notifications.log`` (how snapshots go), ``plugins`` (links to Debezium's jars,
with ours beside them). Passwords, of databases and of the log, are in its environment and nowhere else; that file and
connectors refer to them (``${env:NAME}``). Its REST interface listens on a free loopback port.

``connect.jar`` and ``connect-postgres.jar`` are ours: built from ``java/`` by ``scripts/capture-jars``.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.capture.rest import ConnectRest
from headrace.errors import HeadraceError, InvalidConfig, ServerAway

__all__ = ["ConnectWorker", "WorkerSettings", "hidden", "java_client_settings", "worker_properties"]

START_PATIENCE_S = 180.0
STOP_PATIENCE_S = 10.0
HEAP = "384m"
YOUNG = "160m"
"""Of the heap, for what is new: rows under way are dead before it is full, so hardly anything is ever copied."""
_COMPILED_LATER = (
    "-XX:Tier4InvocationThreshold=20000",
    "-XX:Tier4MinInvocationThreshold=2400",
    "-XX:Tier4CompileThreshold=60000",
    "-XX:Tier4BackEdgeThreshold=160000",
)
"""Java's second compiler took a quarter of all processor time of the first half million changes: it waits four times as
long before it takes a method for one worth its while."""
_PR_SET_PDEATHSIG = 1
_PEM = {
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
_PEM_FILES = {"ssl.certificate.location": "ssl.keystore.certificate.chain", "ssl.key.location": "ssl.keystore.key"}
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_SECRET = ("sasl.jaas.config", "ssl.keystore.key", "ssl.key.password", "ssl.keystore.password")
_OURS = Path(__file__).with_name("connect.jar")
_OURS_BESIDE = {"postgres": Path(__file__).with_name("connect-postgres.jar")}
_LOG4J = """rootLogger.level = {level}
rootLogger.appenderRef.file.ref = File
appender.file.type = RollingFile
appender.file.name = File
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %-5p %m (%c{{1}})%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
appender.told.type = File
appender.told.name = Told
appender.told.fileName = {notifications}
appender.told.layout.type = PatternLayout
appender.told.layout.pattern = %m%n
logger.told.name = io.debezium.pipeline.notification.channels.LogNotificationChannel
logger.told.level = INFO
logger.told.additivity = false
logger.told.appenderRef.told.ref = Told
logger.configs.name = org.apache.kafka.common.config.AbstractConfig
logger.configs.level = WARN
logger.clients.name = org.apache.kafka.clients
logger.clients.level = WARN
logger.rest.name = org.apache.kafka.connect.runtime.rest.RestServer
logger.rest.level = WARN
logger.reflections.name = org.reflections
logger.reflections.level = ERROR
"""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What a worker is started with."""

    app: str
    bootstrap: str
    folder: Path
    home: Path
    """Where the jars are."""
    plugins: tuple[str, ...] = ("postgres",)
    """``postgres``, ``binlog``: those that are needed."""
    client: Mapping[str, str] = field(default_factory=dict)
    """Settings of Kafka clients, under librdkafka's names, as everywhere in Headrace."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Passwords by the name of the variable that connectors refer to."""
    heap: str = HEAP
    replication: int = -1
    """Of the worker's own topics, and of those that connectors make; -1: as the cluster does it."""
    topic_settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def group(self) -> str:
        """The group that the worker is alone in, and the stem of its topics' names."""
        return f"headrace.connect.{self.app}"


def java_client_settings(client: Mapping[str, str]) -> dict[str, str]:
    """Settings of librdkafka under the names of Java's clients. Those of access that have no counterpart are refused,
    for the worker would not get in; others are left out."""
    _ensure_translatable(client)
    found: dict[str, str] = {}
    for name, value in client.items():
        if name in ("client.dns.lookup", "ssl.key.password"):
            found[name] = value
        elif name == "security.protocol":
            found[name] = value.upper()
        elif name == "ssl.endpoint.identification.algorithm":
            found[name] = "" if value.lower() == "none" else value
        elif name in ("sasl.mechanism", "sasl.mechanisms"):
            found["sasl.mechanism"] = value.upper()
        elif name == "ssl.ca.location":
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": value}
        elif name in _PEM:
            found |= {_PEM[name]: value, f"ssl.{'truststore' if name == 'ssl.ca.pem' else 'keystore'}.type": "PEM"}
        elif name in _PEM_FILES:
            found |= {_PEM_FILES[name]: Path(value).read_text(), "ssl.keystore.type": "PEM"}
        elif name == "ssl.keystore.location":
            found["ssl.keystore.location"] = value
        elif name == "ssl.keystore.password":
            found["ssl.keystore.password"] = value
    if "sasl.username" in client:
        module = (
            "plain.PlainLoginModule" if found.get("sasl.mechanism", "").upper() == "PLAIN" else "scram.ScramLoginModule"
        )
        user, password = (_quoted(client.get(f"sasl.{name}", "")) for name in ("username", "password"))
        found["sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module} required username={user} password={password};"
        )
    return found


def _ensure_translatable(client: Mapping[str, str]) -> None:
    hint = "change capture runs in Java: give it an account with SASL PLAIN or SCRAM, or a certificate"
    mechanism = client.get("sasl.mechanism", client.get("sasl.mechanisms", "GSSAPI")).upper()
    if "sasl" in client.get("security.protocol", "").lower() and mechanism not in _MECHANISMS:
        raise InvalidConfig(f"change capture cannot use SASL mechanism {mechanism}.", hint=hint)
    if client.get("enable.ssl.certificate.verification", "true").lower() != "true":
        raise InvalidConfig(
            "change capture cannot do without verification of the log's certificate.",
            hint="name the authority that signed it: ssl.ca.location=FILE",
        )


def hidden(access: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Settings of Java's clients as files and a connector's configuration may hold them, which is a record that others
    can read: with references in place of secrets; and the secrets, for the worker's environment."""
    secret = {name: f"HEADRACE_SECRET_LOG_{number}" for number, name in enumerate(_SECRET) if name in access}
    told = {name: f"${{env:{secret[name]}}}" if name in secret else value for name, value in access.items()}
    return told, {variable: access[name] for name, variable in secret.items()}


def worker_properties(settings: WorkerSettings, port: int) -> dict[str, str]:
    """The worker's own configuration."""
    access, _ = hidden(java_client_settings(settings.client))
    json = "headrace.connect.ChangeConverter"
    topics = {
        f"{kind}.storage.{name}": value
        for kind in ("config", "offset", "status")
        for name, value in (
            ("topic", f"{settings.group}.{'offsets' if kind == 'offset' else kind}"),
            ("replication.factor", str(settings.replication)),
            *settings.topic_settings.items(),
            *([] if kind == "config" else [("partitions", "1")]),
        )
    }
    return {
        "bootstrap.servers": settings.bootstrap,
        "group.id": settings.group,
        **topics,
        "exactly.once.source.support": "enabled",
        "plugin.path": ",".join(str(settings.folder / "plugins" / name) for name in settings.plugins),
        "plugin.discovery": "service_load",
        **{f"{part}.converter": json for part in ("key", "value")},
        **{f"{part}.converter.schemas.enable": "false" for part in ("key", "value")},
        **{f"{part}.converter.decimal.format": "NUMERIC" for part in ("key", "value")},
        # a null in a column that has a default is a null
        **{f"{part}.converter.replace.null.with.default": "false" for part in ("key", "value")},
        # text as it is, without quotes (an event's type); structures (a position) as JSON all the same
        "header.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter",
        "offset.flush.interval.ms": "1000",
        "scheduled.rebalance.max.delay.ms": "0",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "1500",
        "task.shutdown.graceful.timeout.ms": "8000",
        "listeners": f"http://127.0.0.1:{port}",
        "config.providers": "env",
        "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        "config.providers.env.param.allowlist.pattern": "HEADRACE_SECRET_.*",
        "connector.client.config.override.policy": "All",
        "producer.compression.type": "lz4",
        "producer.linger.ms": "5",
        "producer.batch.size": "262144",
        "producer.max.request.size": str(16 << 20),
        "producer.buffer.memory": str(32 << 20),
        "producer.transaction.timeout.ms": "60000",
        **{
            f"{role}{name}": value
            for role in ("", "producer.", "consumer.", "admin.")
            for name, value in access.items()
        },
    }


class ConnectWorker:
    """A worker that runs, or did."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings = settings
        self.port = _free_port()
        self.rest = ConnectRest(self.port)
        self.log = settings.folder / "worker.log"
        self.notifications = settings.folder / "notifications.log"
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process id; 0 before it was started."""
        return self._child.pid if self._child is not None else 0

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        """Start the process. The thread that calls this must live as long as the worker: the kernel ends it with it."""
        folder = self.settings.folder
        folder.mkdir(parents=True, exist_ok=True)
        properties = _written(folder / "worker.properties", worker_properties(self.settings, self.port))
        logging = folder / "log4j2.properties"
        logging.write_text(
            _LOG4J.format(
                level=os.environ.get("HEADRACE_CAPTURE_LOG", "INFO"), log=self.log, notifications=self.notifications
            )
        )
        self._link_plugins()
        libc = ctypes.CDLL(None)
        with (folder / "worker.out").open("ab") as output:
            self._child = subprocess.Popen(
                [
                    "java",
                    f"-Xmx{self.settings.heap}",
                    "-Xms256m",
                    f"-Xmn{YOUNG}",
                    "-XX:+UseSerialGC",
                    "-XX:MaxMetaspaceSize=160m",
                    "-XX:ReservedCodeCacheSize=64m",
                    *_COMPILED_LATER,
                    "-Xss512k",
                    *shlex.split(os.environ.get("HEADRACE_CAPTURE_JAVA", "")),
                    f"-Dlog4j2.configurationFile={logging}",
                    "-cp",
                    f"{self.settings.home / 'worker'}/*:{_OURS}",
                    "org.apache.kafka.connect.cli.ConnectDistributed",
                    str(properties),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**os.environ, **self.settings.secrets, "MALLOC_ARENA_MAX": "2"},
                start_new_session=True,
                preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
            )

    def _link_plugins(self) -> None:
        """Each plugin is a folder of jars with a class loader of its own: Debezium's, and ours that build on them."""
        shutil.rmtree(self.settings.folder / "plugins", ignore_errors=True)
        for plugin in self.settings.plugins:
            folder = self.settings.folder / "plugins" / plugin / "debezium"
            folder.mkdir(parents=True)
            ours = [_OURS_BESIDE[plugin]] if plugin in _OURS_BESIDE else []
            for jar in [*(self.settings.home / plugin / "debezium").glob("*.jar"), *ours]:
                (folder / jar.name).symlink_to(jar.resolve())

    def wait_until_ready(
        self, patience_s: float = START_PATIENCE_S, given_up: Callable[[], bool] | None = None
    ) -> None:
        """Wait until the worker answers as a member of its group."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                self.rest.connectors()
                return
            except HeadraceError as not_yet:
                if not self.is_alive:
                    raise HeadraceError(
                        "the change capture process ended as it started.",
                        detail=self.last_words(),
                        hint=f"see {self.log}",
                    ) from None
                if time.monotonic() > deadline:
                    raise ServerAway(
                        f"the change capture process does not answer after {patience_s:.0f} s.",
                        detail=str(not_yet),
                        hint=f"see {self.log}",
                    ) from None
                if given_up is not None and given_up():
                    return
            time.sleep(0.1)

    def last_words(self) -> str:
        """The end of what it wrote."""
        for name in (self.settings.folder / "worker.out", self.log):
            try:
                lines = name.read_text(errors="replace").strip().splitlines()
            except OSError:
                continue
            if lines:
                return " | ".join(lines[-3:])[-600:]
        return "it said nothing"

    def stop(self, patience_s: float = STOP_PATIENCE_S) -> None:
        """End it: politely, then not."""
        if self._child is None:
            return
        if self._child.poll() is None:
            self._child.terminate()
            try:
                self._child.wait(patience_s)
            except subprocess.TimeoutExpired:
                self.kill()
        self._child.wait()

    def kill(self) -> None:
        """End it at once."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()


def _written(path: Path, properties: Mapping[str, str]) -> Path:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.writelines(f"{name}={_escaped(value)}\n" for name, value in properties.items())
    return path


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
