"""The jars that change capture runs on: a fixed list (``jars.txt``), fetched once, each checked against its checksum.

::

    HOME/worker/             Kafka Connect, on the class path
    HOME/postgres/debezium/  the connector for PostgreSQL: a plugin, which has a class loader of its own
    HOME/binlog/debezium/    the connectors for MariaDB and MySQL
    HOME/fetched             which list was fetched

They are fetched with Maven where it is installed, otherwise with the Ivy in PySpark's jars, into a folder beside the
final one, which takes its place when everything is there and right.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from headrace.errors import HeadraceError

__all__ = ["Jar", "default_home", "ensure_installed", "fetcher", "install", "is_installed", "jars"]

_PLUGINS = ("postgres", "binlog")
_FOLDERS = ("worker", *_PLUGINS)
_DONE = "fetched"
_LIST = Path(__file__).with_name("jars.txt")
_LOOK_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class Jar:
    """One jar of the list."""

    folder: str
    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        """Its name on disk."""
        return f"{self.artifact}-{self.version}.jar"


def jars() -> tuple[Jar, ...]:
    """The list."""
    lines = [line.split() for line in _LIST.read_text().splitlines() if line and not line.startswith("#")]
    split = [(folder, name.split(":"), sha256) for folder, name, sha256 in lines]
    return tuple(Jar(folder, group, artifact, version, sha256) for folder, (group, artifact, version), sha256 in split)


def default_home() -> Path:
    """Where the jars are: ``$HEADRACE_TOOLS/capture``, or the user's data folder."""
    tools = os.environ.get("HEADRACE_TOOLS")
    if tools:
        return Path(tools) / "capture"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "headrace" / "capture"


def is_installed(home: Path) -> bool:
    """Whether exactly this list was fetched into the folder."""
    try:
        return (home / _DONE).read_text() == _fingerprint()
    except OSError:
        return False


def ensure_installed(home: Path) -> None:
    """Raise unless the jars are there, and Java to run them."""
    if shutil.which("java") is None:
        raise HeadraceError(
            "change capture needs Java 17 or newer, and there is no `java` here.",
            hint="install a Java runtime (Debian: apt-get install openjdk-17-jre-headless)",
        )
    if not is_installed(home):
        raise HeadraceError(
            "the jars of change capture are not installed.",
            detail=f"they belong into {home}",
            hint="run: headrace install capture",
        )


def fetcher() -> str:
    """What can fetch here: ``maven`` or ``ivy``; raises if nothing can."""
    if shutil.which("mvn"):
        return "maven"
    if shutil.which("java") and _ivy() is not None:
        return "ivy"
    raise HeadraceError(
        "nothing here can fetch jars.",
        hint="install Maven, or Java and PySpark (pip install 'headrace[pipelines]'), whose Ivy is then used",
    )


def install(home: Path, progress: Callable[[int, int], None] | None = None, *, using: str | None = None) -> bool:
    """Fetch the jars unless they are there. ``progress`` is told how many of how many. Whether anything was fetched."""
    if is_installed(home):
        return False
    wanted = jars()
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{home.name}-", dir=home.parent) as scratch:
        part = Path(scratch) / "jars"
        for folder in _FOLDERS:
            (part / folder).mkdir(parents=True)
        command = _maven(wanted, part) if (using or fetcher()) == "maven" else _ivy_command(wanted, part)
        _run(command, part, len(wanted), progress)
        _verify(wanted, part)
        for folder in _PLUGINS:
            (part / folder).rename(part / "debezium")
            (part / folder).mkdir()
            (part / "debezium").rename(part / folder / "debezium")
        (part / _DONE).write_text(_fingerprint())
        if home.exists():
            shutil.rmtree(home)
        part.rename(home)
    return True


def _fingerprint() -> str:
    return hashlib.sha256(_LIST.read_bytes()).hexdigest()


def _run(command: list[str], part: Path, total: int, progress: Callable[[int, int], None] | None) -> None:
    log = part / "fetch.log"
    with log.open("wb") as output:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=part)
    try:
        while child.poll() is None:
            if progress is not None:
                progress(_count(part), total)
            time.sleep(_LOOK_EVERY_S)
    finally:
        child.kill()
        child.wait()
    if child.returncode:
        tail = " ".join(log.read_text(errors="replace").split())[-600:]
        raise HeadraceError(
            f"the jars could not be fetched with {Path(command[0]).name}.",
            detail=tail,
            hint="is the Maven registry reachable from here? Nothing was changed; try again.",
        )
    if progress is not None:
        progress(total, total)


def _count(part: Path) -> int:
    return sum(1 for folder in _FOLDERS for _ in (part / folder).glob("*.jar"))


def _verify(wanted: tuple[Jar, ...], part: Path) -> None:
    for jar in wanted:
        path = part / jar.folder / jar.file
        found = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "nothing"
        if found != jar.sha256:
            raise HeadraceError(
                f"{jar.group}:{jar.artifact}:{jar.version} is not the jar it should be.",
                detail=f"its SHA-256 is {jar.sha256}, fetched was {found}",
                hint="nothing was installed; look at your registry or its mirror",
            )


def _maven(wanted: tuple[Jar, ...], part: Path) -> list[str]:
    items = "".join(
        f"<artifactItem><groupId>{jar.group}</groupId><artifactId>{jar.artifact}</artifactId>"
        f"<version>{jar.version}</version><outputDirectory>{escape(str(part / jar.folder))}</outputDirectory>"
        "</artifactItem>"
        for jar in wanted
    )
    pom = part / "pom.xml"
    pom.write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>headrace.tools</groupId><artifactId>capture</artifactId><version>1</version><packaging>pom</packaging>"
        "<build><plugins><plugin><groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId>"
        f"<version>3.8.1</version><configuration><artifactItems>{items}</artifactItems></configuration>"
        "</plugin></plugins></build></project>"
    )
    return ["mvn", "-B", "-q", "-f", str(pom), "dependency:copy"]


def _ivy() -> Path | None:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        return None
    found = sorted(Path(spec.submodule_search_locations[0]).glob("jars/ivy-*.jar"))
    return found[-1] if found else None


def _ivy_command(wanted: tuple[Jar, ...], part: Path) -> list[str]:
    ivy = _ivy()
    if ivy is None:
        raise HeadraceError("PySpark's jars have no Ivy.", hint="pip install 'headrace[pipelines]', or install Maven")
    confs = "".join(f'<conf name="{folder}"/>' for folder in _FOLDERS)
    needs = "".join(
        f'<dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.version}" transitive="false" '
        f'conf="{jar.folder}->master"/>'
        for jar in wanted
    )
    (part / "ivy.xml").write_text(
        '<ivy-module version="2.0"><info organisation="headrace" module="capture"/>'
        f'<configurations>{confs}</configurations><dependencies>{needs}<conflict manager="all"/></dependencies>'
        "</ivy-module>"
    )
    pattern = f"{part}/[conf]/[artifact]-[revision].[ext]"
    return ["java", "-jar", str(ivy), "-ivy", str(part / "ivy.xml"), "-types", "jar", "bundle", "-retrieve", pattern]
