"""The Python of this machine as an archive that Spark's executors unpack: interpreter, standard library, packages.

::

    bin/python                    a script that starts the interpreter with what lies beside it
    bin/pythonX.Y                 the interpreter itself
    lib/libpythonX.Y.so*          if it has one
    lib/pythonX.Y/                the standard library, without tests and windows
    lib/pythonX.Y/site-packages/  packages, without Spark's jars: executors have them

Tools that pack a virtual environment leave the interpreter out, which must then be at the same path on every machine,
and refuse packages that are installed in place (as Headrace is while it is worked on); those that build an environment
anew need a registry and a compiler. This one takes what runs now, byte for byte. What the interpreter needs of the
system (glibc, OpenSSL) is not in it: executors want the same kind of Linux as the driver.
"""

from __future__ import annotations

import io
import os
import re
import sys
import sysconfig
import tarfile
from collections.abc import Collection, Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path

from headrace.errors import HeadraceError, InvalidInput

__all__ = ["pack", "with_dependencies"]

_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
_SITE = f"lib/{_VERSION}/site-packages"
_TOOLS = frozenset({"pip", "setuptools", "wheel"})
_CACHE = "__pycache__"
_UNUSED = frozenset(
    {_CACHE, "ensurepip", "idlelib", "lib2to3", "site-packages", "dist-packages", "test", "tkinter", "turtledemo"}
)
_JARS = ("pyspark/jars/", "pyspark/examples/", "pyspark/data/", "pyspark/licenses/", "pyspark/python/")
_START = f"""#!/bin/sh
here=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONHOME="$here"
export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}$here/{_SITE}"
export LD_LIBRARY_PATH="$here/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
exec "$here/bin/{_VERSION}" "$@"
"""


def pack(target: Path, names: Iterable[str] | None = None, compression: int = 1) -> int:
    """Write the archive; returns how many packages are in it. ``names``: only these, by default all that there are.

    Its name ends with ``.tar.gz``: of what else Spark unpacks, no file can be run. ``compression`` is gzip's, 0 to 9.
    """
    if not target.name.endswith((".tar.gz", ".tgz")):
        raise InvalidInput(
            f"{target} is no name for an archive that Spark unpacks well.", hint="let it end with .tar.gz"
        )
    chosen = list(distributions() if names is None else map(_installed, names))
    found = {_normal(one.name): one for one in chosen if _normal(one.name) not in _TOOLS}
    beside = target.with_name(f".{target.name}.new")
    with tarfile.open(beside, "w:gz", compresslevel=compression) as archive:
        _add_interpreter(archive)
        written: set[str] = set()
        for one in found.values():
            for file, name in _files(one):
                if name not in written and file.is_file():
                    written.add(name)
                    archive.add(file, f"{_SITE}/{name}", recursive=False)
    beside.replace(target)
    return len(found)


def with_dependencies(names: Iterable[str]) -> set[str]:
    """Packages, and all that they need, of what is installed. ``name[extra]`` takes what an extra needs, too."""
    waiting = [_split(name) for name in names]
    for name, _ in waiting:
        _installed(name)
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras = waiting.pop()
        try:
            needed = distribution(name).requires or []
        except PackageNotFoundError:  # it is for another system or Python
            continue
        if (name, extras) not in seen:
            seen.add((name, extras))
            waiting += [_split(one) for one in needed if _is_wanted(one, extras)]
    return {name for name, _ in seen}


def _is_wanted(requirement: str, extras: frozenset[str]) -> bool:
    only_for = re.findall(r"""extra\s*==\s*['"]([^'"]+)['"]""", requirement)
    return not only_for or bool(extras.intersection(only_for))


def _split(requirement: str) -> tuple[str, frozenset[str]]:
    parts = re.match(r"\s*([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?", requirement)
    if parts is None:
        raise InvalidInput(f"{requirement!r} is no name of a package.")
    return _normal(parts[1]), frozenset(extra.strip() for extra in (parts[2] or "").split(",") if extra.strip())


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _installed(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError:
        raise InvalidInput(f"package {name!r} is not installed here.", hint="install it first: pip install") from None


def _add_interpreter(archive: tarfile.TarFile) -> None:
    script = tarfile.TarInfo("bin/python")
    script.mode, script.size = 0o755, len(_START)
    archive.addfile(script, io.BytesIO(_START.encode()))
    archive.add(os.path.realpath(sys.executable), f"bin/{_VERSION}", recursive=False)
    library = sysconfig.get_config_var("INSTSONAME")
    if sysconfig.get_config_var("Py_ENABLE_SHARED") and library:
        archive.add((Path(sysconfig.get_config_var("LIBDIR")) / library).resolve(), f"lib/{library}")
    base = Path(sysconfig.get_path("stdlib"))
    for file in _below(base, _UNUSED):
        archive.add(file.resolve(), f"lib/{_VERSION}/{file.relative_to(base)}", recursive=False)


def _below(folder: Path, without: Collection[str] = (_CACHE,)) -> Iterator[Path]:
    for one in sorted(folder.iterdir()):
        if one.name in without or one.name.startswith("config-3"):
            continue
        if one.is_dir():
            yield from _below(one, without)
        elif one.exists():
            yield one


def _files(one: Distribution) -> Iterator[tuple[Path, str]]:
    """The files of a package, and their names in the archive's folder of packages."""
    if one.files is None:
        raise HeadraceError(
            f"nobody wrote down which files belong to package {one.name!r}.",
            hint="install it with pip, or leave it out",
        )
    for file in one.files:
        name, path = str(file), Path(str(file.locate()))
        if name.endswith(".pth"):
            yield from _in_place(one, path)
        elif not name.startswith(("..", "/", *_JARS)) and _CACHE not in file.parts:
            yield path, name


def _in_place(one: Distribution, pth: Path) -> Iterator[tuple[Path, str]]:
    """What a package that is installed in place (editable) has: the packages in the folders that it points to."""
    for line in pth.read_text().splitlines():
        if line.startswith(("import ", "import\t")):
            if "editable" in pth.name:
                raise HeadraceError(
                    f"package {one.name!r} is installed in place, by a hook that cannot be packed.",
                    hint="install it without --editable; or name what you need with --package",
                )
            continue
        folder = pth.parent / line.strip()
        if line.strip() and folder.is_dir():
            for package in folder.iterdir():
                if (package / "__init__.py").exists():
                    yield from ((file, str(file.relative_to(folder))) for file in _below(package))
                elif package.suffix == ".py":
                    yield package, package.name
