"""Java's archive of Spark's classes: with it Spark is up in about half the time and half the processor time.

Finding, checking and linking twenty thousand classes is most of what Java does while Spark starts. Java can keep the
result in a file (class data sharing) and map that instead. The file belongs to one Java and one Spark; it is made once,
by a process of its own that starts Spark, runs small queries like ours and ends::

    python -m headrace.pipelines.class_archive

``start_spark`` uses the file if it is there. Java checks it and goes on without it if it does not fit. It is a cache:
it may be removed at any time.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession

__all__ = ["archive_path", "forget_old", "java_options", "make", "make_in_background"]

_OFF = "HEADRACE_CLASS_ARCHIVE"
"""Set to ``off``, no archive is used or made."""
_KEPT_S = 30 * 86_400
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def archive_path() -> Path | None:
    """Where the archive of this Java and this Spark is, or would be; None if there is no Java, or none is wanted."""
    java = _java()
    if java is None or os.environ.get(_OFF) == "off":
        return None
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    if not jars.is_dir():
        return None
    found = java.stat()
    said = f"{java} {found.st_mtime_ns} {found.st_size} {jars} {jars.stat().st_mtime_ns}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace"
    return cache / f"spark-{pyspark.__version__}-{hashlib.sha256(said.encode()).hexdigest()[:16]}.jsa"


def java_options() -> str:
    """What Java is told, so that it uses the archive if there is one."""
    path = archive_path()
    if path is None or not path.exists() or " " in str(path):
        return ""
    with contextlib.suppress(OSError):
        os.utime(path)
    return f"-XX:SharedArchiveFile={path} {_QUIET}"


def make() -> Path | None:
    """Make the archive unless it is there; takes about half a minute. None if it cannot be made here."""
    path = archive_path()
    if path is None or " " in str(path):
        return None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    with _alone(path.with_suffix(".lock")) as alone:
        if alone and not path.exists():
            forget_old(path.parent)
            folder = Path(tempfile.mkdtemp(prefix="headrace-classes-"))
            try:
                _record(folder, path)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    return path if path.exists() else None


def forget_old(cache: Path) -> None:
    """Remove archives that no Spark was started with for a month: that Java or that Spark is gone."""
    for found in cache.glob("spark-*.jsa"):
        if found.stat().st_mtime < time.time() - _KEPT_S:
            found.unlink(missing_ok=True)
            found.with_suffix(".lock").unlink(missing_ok=True)


def make_in_background() -> None:
    """Make the archive, unless it is there, in a process that gets only the time that nobody else wants."""
    path = archive_path()
    if path is None or path.exists():
        return
    with contextlib.suppress(OSError):
        subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: os.nice(19),
        )


def _java() -> Path | None:
    """The Java that Spark will start."""
    home = os.environ.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java")
    return Path(found).resolve() if found and Path(found).exists() else None


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[bool]:
    """Whether nobody else makes it at the moment; what others wait for is theirs."""
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield False
        else:
            yield True


def _record(folder: Path, path: Path) -> None:
    """Run Spark so that Java writes what it has loaded when it ends."""
    from pyspark import SparkContext

    from headrace.pipelines.spark import start_spark

    made = folder / "made.jsa"
    spark = start_spark("classes", folder / "spark", "local[2]", java=f"-XX:ArchiveClassesAtExit={made} {_QUIET}")
    try:
        with contextlib.suppress(Exception):  # what was loaded until then is worth having, too
            _use(spark, folder)
    finally:
        spark.stop()
        gateway: Any = SparkContext._gateway
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(120)
    if made.exists():
        shutil.copy(made, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)


def _use(spark: SparkSession, folder: Path) -> None:
    """A stream through Python, windows with state, and a batch that is collected: what all our queries do."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    rows = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    rows = rows.mapInArrow(_same, "timestamp timestamp, value long").withWatermark("timestamp", "1 second")
    counted = rows.groupBy(F.window("timestamp", "1 second"), (F.col("value") % 7).alias("key")).agg(
        F.count("*"), F.sum("value"), F.max("timestamp")
    )

    def write(batch: DataFrame, _: int) -> None:
        batch.toArrow()

    writer = counted.writeStream.outputMode("update").foreachBatch(write)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(processingTime="100 ms").start()
    try:
        query.awaitTermination(6)
    finally:
        query.stop()


def _same(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    yield from batches


if __name__ == "__main__":
    made = make()
    print(made or "no archive: there is no Java, or no cache folder for it (its name may have no space)")
