"""The machine: Python and its packages, Java, memory, limits, the clock."""

from __future__ import annotations

import ctypes
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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace import __version__
from headrace.cli.doctor.finding import Finding, bad, fine, so_so
from headrace.cli.output import size

if TYPE_CHECKING:
    from packaging.requirements import Requirement

__all__ = ["clock", "java", "kernel", "limits", "memory", "packages", "python"]

_EXTRAS = {
    "pipelines": "`headrace run` and apps",
    "postgres": "views in PostgreSQL",
    "capture": "change capture from databases",
    "tracing": "traces",
}
_OLDEST_JAVA = 17
_FILES_WANTED = 10_000
_MEMORY_WANTED = 1 << 30
_SANE_YEARS = range(2024, 2100)
_JUMP_S = 0.5
_TIMEX_BYTES, _TIME_ERROR = 512, 5


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
    """Required packages, and what each extra makes possible: whether they are there, in versions that fit."""
    from packaging.requirements import Requirement

    wanted = [Requirement(line) for line in _requirements()]
    required = [one for one in wanted if _is_for("", one)]
    if not required:
        yield so_so("packages", "nothing says what Headrace needs: it was not installed", "pip install headrace")
        return
    problems = [problem for one in required if (problem := _missing(one) or _misfit(one))]
    if problems:
        yield bad("packages", "; ".join(problems), "pip install --force-reinstall headrace")
    else:
        yield fine("packages", f"all {len(required)} are there, in versions that fit")
    for extra, use in _EXTRAS.items():
        yield _extra(extra, use, [one for one in wanted if one not in required and _is_for(extra, one)])


def _extra(extra: str, use: str, wanted: Sequence[Requirement]) -> Finding:
    check, todo = f"extra {extra}", f"pip install 'headrace[{extra}]'"
    lacking = [one.name for one in wanted if _missing(one)]
    misfits = [problem for one in wanted if not _missing(one) and (problem := _misfit(one))]
    if misfits:
        return bad(check, f"{'; '.join(misfits)}: {use} may not work", todo)
    if lacking:
        return so_so(check, f"without {', '.join(lacking)}: no {use}", f"{todo}, if you want it")
    return fine(check, f"{use}: installed")


def _requirements() -> list[str]:
    try:
        return importlib.metadata.requires("headrace") or []
    except importlib.metadata.PackageNotFoundError:
        return []


def _is_for(extra: str, wanted: Requirement) -> bool:
    return wanted.marker is None or wanted.marker.evaluate({"extra": extra})


def _missing(wanted: Requirement) -> str | None:
    try:
        importlib.metadata.version(wanted.name)
    except importlib.metadata.PackageNotFoundError:
        return f"{wanted.name} is missing"
    return None


def _misfit(wanted: Requirement) -> str | None:
    version = importlib.metadata.version(wanted.name)
    if wanted.specifier.contains(version, prereleases=True):
        return None
    return f"{wanted.name} is {version}, not {wanted.specifier}"


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
    elif not _is_synchronised():
        yield so_so(
            "clock", "nothing keeps it right, says the kernel", "timedatectl set-ntp true, or start chrony or ntpd"
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


def _is_synchronised() -> bool:
    """Whether something keeps the clock right; also where the kernel may not be asked."""
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (OSError, AttributeError):
        return True
    return bool(state != _TIME_ERROR)
