"""What Spark's executors are started with: the Python that they run, and the folder in which those of a
``local-cluster`` work.

Spark runs one and the same command for Python on every machine, the driver's too, where it plans what a batch reads. If
that is the Python of an archive (``./environment/bin/python``, in the folder of an executor), a script of that name
stands for it in the folder that the driver's Java process runs in, and calls the Python that runs now.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from headrace.errors import InvalidConfig
from headrace.pipelines.masters import ENVIRONMENT

__all__ = ["absolute_files", "own_home", "python_command", "stand_in"]

_PYTHON = "spark.pyspark.python"
_FILES = ("spark.archives", "spark.files", "spark.jars", "spark.submit.pyFiles")


def python_command(settings: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """What Spark calls for Python: as it was set; of an archive; or the Python that runs now, at the same path."""
    packed = any(one.strip().endswith(f"#{ENVIRONMENT}") for one in settings.get("spark.archives", "").split(","))
    command = settings.get(_PYTHON) or environ.get("PYSPARK_PYTHON")
    if not command:
        return f"./{ENVIRONMENT}/bin/python" if packed else sys.executable
    if os.path.isabs(command) and not os.access(command, os.X_OK):
        raise InvalidConfig(
            f"there is no Python at {command} on this machine.",
            detail="the driver plans what is read, with the same command as executors",
            hint="install it at one path on all machines, or send it along: `headrace pack` makes an archive",
        )
    return command


def stand_in(command: str, folder: Path) -> Path | None:
    """The folder that the driver's Java process must run in to find a relative command; None if it is not one."""
    if os.path.isabs(command) or os.sep not in command:
        return None
    script = folder / command
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    script.chmod(0o755)
    return folder.resolve()


def absolute_files(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings, with files of this machine named from the root. InvalidConfig if one of them is not there."""
    made = dict(settings)
    for name in _FILES:
        if name in made:
            made[name] = ",".join(_absolute(one.strip(), name) for one in made[name].split(",") if one.strip())
    return made


def _absolute(file: str, setting: str) -> str:
    path, mark, alias = file.partition("#")
    if "://" in path or path.startswith(("file:", "local:")):
        return file
    if not Path(path).exists():
        raise InvalidConfig(f"{setting}: there is no file {path}.", hint="`headrace pack -o FILE` makes an archive")
    return f"{Path(path).resolve()}{mark}{alias}"


def own_home(folder: Path) -> Path:
    """A home of Spark whose executors work in this folder, not where Spark is installed."""
    import pyspark

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    installed = Path(pyspark.__file__).parent
    for part in installed.iterdir():
        if part.name != "work":
            (folder / part.name).symlink_to(part)
    return folder.resolve()
