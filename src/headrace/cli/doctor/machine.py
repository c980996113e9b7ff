"""The machine: Python and its packages, Java, memory, limits, the clock."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import resource
import shutil
import subprocess
import sys
import time
import zoneinfo
from collections.abc import Iterator
from pathlib import Path

from headrace import __version__
from headrace.cli.doctor.finding import Finding, bad, fine, so_so
from headrace.cli.output import size

__all__ = ["clock", "java", "kernel", "limits", "memory", "packages", "python"]

_EXTRAS = {
    "pipelines": (("pyspark", "polars", "pandas", "numpy", "google.protobuf"), "`headrace run` and apps"),
    "postgres": (("psycopg",), "views in PostgreSQL"),
    "capture": (("psycopg", "pymysql"), "change capture from databases"),
}
_OLDEST_JAVA = 17
_FILES_WANTED = 10_000
_MEMORY_WANTED = 1 << 30
_SANE_YEARS = range(2024, 2100)
_JUMP_S = 0.5


def python() -> Iterator[Finding]:
    """Its version."""
    yield fine("python", f"{'.'.join(map(str, sys.version_info[:3]))} ({sys.executable})")


def kernel() -> Iterator[Finding]:
    """The native part, and that it computes right on this machine."""
    try:
        from headrace import _kernel

        right = _kernel.crc32c(b"123456789") == 0xE3069283
    except ImportError as error:
        yield bad("kernel", f"the native part cannot be loaded: {error}", "install Headrace again for this machine")
        return
    if right:
        yield fine("kernel", f"headrace {__version__}, the native part works")
    else:
        yield bad("kernel", "the native part computes wrong checksums", "install Headrace again for this machine")


def packages() -> Iterator[Finding]:
    """Required packages, and what each extra makes possible."""
    missing = [name for name in _required() if not _is_there(name)]
    if missing:
        yield bad("packages", f"missing: {', '.join(missing)}", "pip install --force-reinstall headrace")
    for extra, (modules, use) in _EXTRAS.items():
        lacking = [name for name in modules if importlib.util.find_spec(name.partition(".")[0]) is None]
        if lacking:
            yield so_so(
                f"extra {extra}",
                f"without {', '.join(lacking)}: no {use}",
                f"pip install 'headrace[{extra}]', if you want it",
            )
        else:
            yield fine(f"extra {extra}", f"{use}: installed")


def _required() -> list[str]:
    try:
        wanted = importlib.metadata.requires("headrace") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [re.split(r"[\s<>=!~;\[]", line, maxsplit=1)[0] for line in wanted if "extra ==" not in line]


def _is_there(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def java() -> Iterator[Finding]:
    """Which Java Spark and Connect would use, how it is found, and whether it is new enough."""
    home = os.environ.get("JAVA_HOME")
    path = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    how = "by JAVA_HOME" if home else "on the PATH"
    wanted = (
        f"install Java {_OLDEST_JAVA} or later, or point JAVA_HOME to it; apps and capture need it, a node does not"
    )
    if path is None or not Path(path).exists():
        yield so_so("java", f"there is none {how}" + (f" ({path})" if home else ""), wanted)
        return
    try:
        said = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        yield bad("java", f"{path} does not run: {error}", wanted)
        return
    found = re.search(r'version "(?:1\.)?(\d+)[^"]*"', said.stderr + said.stdout)
    if found is None:
        yield bad("java", f"{path} does not say its version", wanted)
    elif int(found[1]) < _OLDEST_JAVA:
        yield bad("java", f"{found[1]}, {how} ({path})", wanted)
    else:
        yield fine("java", f"{found[1]}, {how} ({path})")
    yield from _spark()
    yield from _capture_jars()


def _spark() -> Iterator[Finding]:
    if importlib.util.find_spec("pyspark") is None:
        return
    version = importlib.metadata.version("pyspark")
    home = os.environ.get("SPARK_HOME")
    if home:
        yield so_so("spark", f"SPARK_HOME is {home}, PySpark is {version}", "unset SPARK_HOME unless both are the same")
    else:
        yield fine("spark", f"PySpark {version}")


def _capture_jars() -> Iterator[Finding]:
    from headrace.capture.jars import default_home, is_installed

    home = default_home()
    if is_installed(home):
        yield fine("capture jars", str(home))
    else:
        yield so_so(
            "capture jars", f"not in {home}", "headrace install capture, if you capture from PostgreSQL or MySQL"
        )


def limits() -> Iterator[Finding]:
    """How many files a node may open."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    told = "no limit" if hard == resource.RLIM_INFINITY else f"up to {hard}"
    if hard != resource.RLIM_INFINITY and hard < _FILES_WANTED:
        yield so_so(
            "open files", told, f"raise it: ulimit -Hn {_FILES_WANTED * 10}, or LimitNOFILE= in the systemd unit"
        )
    else:
        yield fine("open files", told)


def memory() -> Iterator[Finding]:
    """What is left of the machine's memory, or of the container's."""
    available = _available()
    if available is None:
        return
    if available < _MEMORY_WANTED:
        yield so_so("memory", f"{size(available)} available", "a node takes 200 MiB, an app on Spark 2 GiB: free some")
    else:
        yield fine("memory", f"{size(available)} available")


def _available() -> int | None:
    found: list[int] = []
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        line = next((line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable")), None)
        found += [int(line.split()[1]) * 1024] if line else []
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and limit.read_text().strip().isdigit():
        found.append(max(int(limit.read_text()) - int(used.read_text()), 0))
    return min(found, default=None)


def clock() -> Iterator[Finding]:
    """Whether the clock can be: its year, that it does not jump, and the names of time zones."""
    year = time.gmtime().tm_year
    if year not in _SANE_YEARS:
        yield bad("clock", f"the machine believes that it is {year}", "set the clock (timedatectl set-ntp true)")
        return
    before = time.time() - time.monotonic()
    time.sleep(0.1)
    jump = abs(time.time() - time.monotonic() - before)
    if jump > _JUMP_S:
        yield so_so(
            "clock", f"it jumped by {jump:.1f} s within 0.1 s", "see what sets the clock: it should slew, not step"
        )
    else:
        yield fine("clock", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()))
    try:
        zoneinfo.ZoneInfo("Europe/Berlin")
    except zoneinfo.ZoneInfoNotFoundError:
        yield so_so(
            "time zones",
            "the system has no time zone database",
            "install tzdata (apt install tzdata, pip install tzdata)",
        )
