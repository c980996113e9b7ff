"""Java's archive of Spark's classes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.pipelines.class_archive import archive_path, java_options, make


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


@pytest.mark.system
def test_spark_starts_with_a_file_that_is_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = archive_path()
    assert path is not None
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no archive" * 1000)
    assert f"-XX:SharedArchiveFile={path}" in java_options()
    code = (
        "from pathlib import Path; from headrace.pipelines.spark import start_spark; "
        f"spark = start_spark('odd', Path({str(tmp_path)!r}), 'local[1]'); print(spark.range(3).count()); spark.stop()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=False)
    assert done.stdout.split()[-1] == "3", done.stderr


@pytest.mark.system
def test_java_uses_the_archive_that_the_set_up_made() -> None:
    path = make()
    assert path is not None
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if "JAVA_HOME" in os.environ else "java"
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    command = [str(java), f"-XX:SharedArchiveFile={path}", "-Xshare:auto", "-Xlog:class+load", "-XX:+UseSerialGC"]
    command += ["-cp", f"{jars.parent / 'conf'}:{jars}/*", "org.apache.spark.deploy.SparkSubmit", "--version"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    assert "org.apache.spark.deploy.SparkSubmit source: shared objects file (top)" in loaded
