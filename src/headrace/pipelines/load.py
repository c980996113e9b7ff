"""Loading a user's file: the one ``hr.App`` that it makes."""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType

from headrace.errors import HeadraceError, InvalidDeclaration
from headrace.pipelines.app import App

__all__ = ["NeedsSpark", "load_app"]


class NeedsSpark(HeadraceError):
    """The file makes something that only a running Spark can make, say a ``udf``: start Spark and load it again."""


def load_app(target: str) -> App:
    """The app of ``FILE``, or ``FILE:NAME`` where the file has several."""
    file, _, wanted = target.partition(":")
    path = Path(file).resolve()
    if not path.is_file():
        raise HeadraceError(f"there is no file {file}.", hint="`headrace init NAME` writes a small app to begin with")
    found = {name: value for name, value in vars(_module(path)).items() if isinstance(value, App)}
    if wanted:
        if wanted not in found:
            raise HeadraceError(f"{file} has no app {wanted!r}.", hint=f"it has: {', '.join(found) or 'none'}")
        return found[wanted]
    apps = {id(app): app for app in found.values()}
    if len(apps) != 1:
        hint = 'add app = hr.App("name")' if not apps else f"say which, like {file}:{next(iter(found))}"
        raise HeadraceError(f"{file} makes {len(apps) or 'no'} app{'s' if apps else ''}.", hint=hint)
    return next(iter(apps.values()))


def _module(path: Path) -> ModuleType:
    """Run the file as a module. Its folder can be imported from, here and in Spark's workers; what it defines travels
    to the workers by value."""
    folder = str(path.parent)
    sys.path.insert(0, folder)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    spec = importlib.util.spec_from_file_location(path.stem.replace("-", "_"), path)
    if spec is None or spec.loader is None:
        raise HeadraceError(f"{path} cannot be loaded.", hint="name a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    try:
        spec.loader.exec_module(module)
    except HeadraceError:
        raise
    except Exception as error:
        if "SESSION_OR_CONTEXT_NOT_EXISTS" in str(error):
            raise NeedsSpark(f"{path.name} needs Spark to be loaded.", detail=_line(error, path)) from error
        raise InvalidDeclaration(
            f"{path.name} cannot be run: {type(error).__name__}: {error}",
            detail=_line(error, path),
            hint="correct that line; `python` runs the file too",
        ) from error
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)
    return module


def _line(error: Exception, path: Path) -> str:
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f"{error.filename}, line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{path}, line {lines[-1]}" if lines else str(path)
