"""The jars of our own that the worker runs with: built from java/, and the JSON is that of Connect's own converter."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.servers import ROOT

JARS = ROOT / "src" / "headrace" / "capture"
WORKER = ROOT / ".tools" / "capture" / "worker"
PROGRAMS = ROOT / "tests" / "capture" / "java"

needs_javac = pytest.mark.skipif(
    shutil.which("javac") is None or not WORKER.exists(), reason="needs a Java compiler and the jars of capture"
)


def _compiler() -> int:
    told = subprocess.run(["javac", "-version"], capture_output=True, text=True, check=True)
    found = re.search(r"\d+", told.stdout + told.stderr)
    return int(found[0]) if found else 0


def _classes(jar: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(jar) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@needs_javac
def test_the_jars_in_the_package_are_what_their_sources_give(tmp_path: Path) -> None:
    subprocess.run([str(ROOT / "scripts" / "capture-jars"), str(tmp_path)], check=True, capture_output=True)
    built = sorted(tmp_path.glob("*.jar"))
    assert [jar.name for jar in built] == ["connect-postgres.jar", "connect.jar"]
    for jar in built:
        shipped, found = _classes(JARS / jar.name), _classes(jar)
        assert shipped.keys() == found.keys()
        if _compiler() == 17:  # others write other bytes
            assert shipped == found, f"run scripts/capture-jars: {jar.name} is older than java/"


@needs_javac
def test_changes_are_the_json_that_connects_own_converter_writes_and_their_position_is_a_header() -> None:
    seed = random.randrange(1 << 31)
    done = subprocess.run(
        ["java", "-Xmx128m", "-cp", f"{WORKER}/*:{JARS / 'connect.jar'}", str(PROGRAMS / "SameJson.java"), str(seed)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-3000:]}"
    assert f"the same, seed {seed}" in done.stdout


def _run_beside_the_task(program: str, folder: Path) -> str:
    """A program in the package of our task, compiled for it."""
    libraries = f"{WORKER}/*:{JARS / 'connect-postgres.jar'}"
    compile_it = ["javac", "-cp", libraries, "-d", str(folder), str(PROGRAMS / f"{program}.java")]
    subprocess.run(compile_it, check=True, capture_output=True)
    done = subprocess.run(
        ["java", "-Xmx128m", "-cp", f"{folder}:{libraries}", f"headrace.connect.postgres.{program}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


@needs_javac
def test_a_task_goes_on_behind_its_stored_position_and_its_heart_beats_before(tmp_path: Path) -> None:
    assert _run_beside_the_task("Resuming", tmp_path) == "resumed"


@needs_javac
def test_the_records_of_one_change_are_written_together_however_they_are_polled(tmp_path: Path) -> None:
    assert _run_beside_the_task("Holding", tmp_path) == "held"
