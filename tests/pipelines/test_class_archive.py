"""Java's archive of Spark's classes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.pipelines.class_archive import archive_path, forget_old, java_options, make


def test_an_archive_belongs_to_one_java_and_one_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ours = archive_path()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert ours is not None
    assert archive_path() != ours


def test_without_a_file_java_is_told_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert java_options() == ""


def test_none_is_made_where_none_is_wanted_or_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "has a space"))
    assert make() is None
    monkeypatch.setenv("HEADRACE_CLASS_ARCHIVE", "off")
    assert archive_path() is None


def test_archives_that_nobody_used_for_long_go_when_one_is_made(tmp_path: Path) -> None:
    old, new = tmp_path / "spark-1-a.jsa", tmp_path / "spark-1-b.jsa"
    for path in (old, new):
        path.touch()
    os.utime(old, (0, 0))
    forget_old(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [new.name]


@pytest.mark.system
def test_spark_starts_with_a_file_that_is_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = archive_path()
    assert path is not None
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no archive" * 1000)
    assert f"-XX:SharedArchiveFile={path}" in java_options()
    assert started(tmp_path)[0] == "3"


@pytest.mark.system
def test_java_takes_sparks_classes_from_the_archive(tmp_path: Path) -> None:
    assert make() is not None
    shown, log = started(tmp_path)
    assert shown == "3"
    assert "org.apache.spark.SparkContext source: shared objects file (top)" in log


def started(folder: Path) -> tuple[str, str]:
    """What a small query shows, and what Java says of the classes that it loads."""
    code = f"""if True:
        from pathlib import Path
        from headrace.pipelines.class_archive import java_options
        from headrace.pipelines.spark import start_spark
        spark = start_spark("small", Path({str(folder)!r}), "local[1]", java=java_options() + " -Xlog:class+load")
        print(spark.range(3).count())
        spark.stop()
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1], (folder / "spark.log").read_text(errors="replace")
