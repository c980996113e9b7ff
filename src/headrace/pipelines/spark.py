"""The Spark session that queries run in: quiet, in UTC, with the settings that streaming needs, on any master."""

from __future__ import annotations

import os
import shlex
import string
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import InvalidConfig
from headrace.pipelines.class_archive import java_options
from headrace.pipelines.executors import absolute_files, own_home, python_command, stand_in
from headrace.pipelines.masters import Manager, Master

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["default_settings", "session_settings", "start_spark", "told_in_a_file"]

_STREAMING = "spark.sql.streaming"
_SUBMIT, _FILE_OPTION = "PYSPARK_SUBMIT_ARGS", "--properties-file"
_PLAIN = frozenset(string.ascii_letters + string.digits + "-._/")
_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Spark asks for nulls itself and stays in its columns: no need to have every access checked once more."""
_COMPILER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""Java compiles with all its effort what runs ten times as often as by default. What is done per row gets there at
once; what Spark does per batch does not, and its compilation took a third of a processor for half a minute."""
_JAVA = f"{_COMPILER} {_ARROW}"
_QUICK_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Spark's default starts processes for every file of a checkpoint in a folder of the machine."""
_LOG4J = """\
status = off
rootLogger.level = error
rootLogger.appenderRef.file.ref = file
appender.file.type = Console
appender.file.name = file
appender.file.target = SYSTEM_ERR
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS} %p %c{1}: %m%n%ex
"""


def default_settings(cores: int) -> dict[str, str]:
    """What differs from Spark's own defaults. No adaptive execution: a batch done again must be cut up the same way."""
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(max(1, min(cores, 8))),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.pythonUDF.arrow.enabled": "false",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.driver.memory": "1g",
        "spark.driver.maxResultSize": "0",
        f"{_STREAMING}.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        f"{_STREAMING}.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        f"{_STREAMING}.stateStore.rocksdb.trackTotalNumberOfRows": "false",
        f"{_STREAMING}.metricsEnabled": "false",
        f"{_STREAMING}.numRecentProgressUpdates": "5",
        f"{_STREAMING}.stopTimeout": "5s",
    }


def session_settings(
    master: Master, folder: Path, more: Mapping[str, str], *, java: str = "", local_checkpoints: bool = True
) -> dict[str, str]:
    """All that Spark is told, by what its master is; ``more`` are the user's, which win."""
    log4j = (folder / "log4j2.properties").resolve().as_uri()
    known = {
        **default_settings(master.cores(more) or 8),
        "spark.driver.extraJavaOptions": f"-Xss8m -XX:+UseSerialGC {_JAVA} -Dlog4j2.configurationFile={log4j} {java}",
    }
    if local_checkpoints:
        known[f"{_STREAMING}.checkpointFileManagerClass"] = _QUICK_FILES
    if master.is_here:
        known["spark.local.dir"] = str((folder / "tmp").resolve())
    if master.manager is not Manager.LOCAL:
        known["spark.executor.extraJavaOptions"] = _JAVA
        known["spark.executorEnv.POLARS_MAX_THREADS"] = "1"
    return {name: value.strip() for name, value in {**known, **absolute_files(more)}.items()}


def start_spark(
    app: str,
    folder: Path,
    master: str = "local[*]",
    more: Mapping[str, str] | None = None,
    *,
    hidden: Collection[str] = (),
    java: str | None = None,
    local_checkpoints: bool = True,
) -> SparkSession:
    """Start Spark (a few seconds), or take the session that is there. What Java prints goes to ``folder/spark.log``.

    ``java`` is what Java is told besides; by default, to use the archive of Spark's classes if there is one. Settings
    whose names are ``hidden`` are on no command line.
    """
    from pyspark import SparkContext
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True  # a page of JSON for a column that is not there
    chosen = Master.parse(master)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "log4j2.properties").write_text(_LOG4J)
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    settings = session_settings(
        chosen,
        folder,
        more or {},
        java=java_options() if java is None else java,
        local_checkpoints=local_checkpoints,
    )
    os.environ["PYSPARK_PYTHON"] = command = python_command(settings, os.environ)
    if chosen.manager is Manager.LOCAL_CLUSTER and SparkContext._active_spark_context is None:
        os.environ["SPARK_HOME"] = str(own_home(folder / "home"))
    builder = SparkSession.builder.appName(app).master(master)
    for name, value in settings.items():
        if name not in hidden:
            builder = builder.config(name, value)
    told = {name: settings[name] for name in hidden if name in settings}
    with _printing_to(folder / "spark.log"), _inside(stand_in(command, folder / "driver")), told_in_a_file(told):
        return _beside(builder.getOrCreate)


@contextmanager
def told_in_a_file(settings: Mapping[str, str]) -> Iterator[None]:
    """A Spark that is started in the block reads these settings from a file that only we can read and that is gone
    afterwards: PySpark would say each of them on Java's command line, for all users of the machine to see."""
    if not settings:
        yield
        return
    before = os.environ.get(_SUBMIT)
    if _FILE_OPTION in (before or ""):
        raise InvalidConfig(
            f"{_SUBMIT} has a {_FILE_OPTION}, and so has --spark-conf @FILE: Spark reads one of them.",
            hint="put the settings of both into one file for --spark-conf",
        )
    with tempfile.NamedTemporaryFile("w", prefix="headrace-", suffix=".properties", encoding="utf-8") as file:
        file.writelines(f"{_escaped(name)}={_escaped(value)}\n" for name, value in settings.items())
        file.flush()
        also = before or "pyspark-shell"
        os.environ[_SUBMIT] = f"{_FILE_OPTION} {shlex.quote(file.name)} --load-spark-defaults {also}"
        try:
            yield
        finally:
            os.environ.pop(_SUBMIT)
            if before is not None:
                os.environ[_SUBMIT] = before


def _escaped(text: str) -> str:
    """Text as Java's properties have it."""
    units = text.encode("utf-16-be")
    codes = [int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2)]
    return "".join(chr(code) if chr(code) in _PLAIN else f"\\u{code:04x}" for code in codes)


@contextmanager
def _inside(folder: Path | None) -> Iterator[None]:
    """Children started in the block run in a folder."""
    before = os.getcwd()
    try:
        if folder is not None:
            os.chdir(folder)
        yield
    finally:
        os.chdir(before)


def _beside(start: Callable[[], SparkSession]) -> SparkSession:
    """Started in a thread: Ctrl-C is then ours. In the main thread, Spark would have it cancel jobs, over the very
    connection that waits for an answer."""
    started: Future[SparkSession] = Future()

    def run() -> None:
        try:
            started.set_result(start())
        except BaseException as failed:
            started.set_exception(failed)

    threading.Thread(target=run, name="spark start", daemon=True).start()
    return started.result()


@contextmanager
def _printing_to(path: Path) -> Iterator[None]:
    """Children started in the block print to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    kept = [os.dup(1), os.dup(2)]
    try:
        os.dup2(log, 1)
        os.dup2(log, 2)
        yield
    finally:
        for number, descriptor in enumerate(kept, 1):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.close(log)
