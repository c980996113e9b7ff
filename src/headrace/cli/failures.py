"""How a command fails: one sentence, perhaps a detail and a hint, on stderr; exit code 1.

A traceback only with ``--debug``. With ``-o json`` the error is one JSON object on stderr. Wrong usage of the command
line itself exits with 2, as usual.
"""

from __future__ import annotations

import json
import sys

from headrace.errors import HeadraceError

__all__ = ["CommandFailed", "explained", "report"]


_RED = ";31"


class CommandFailed(HeadraceError):
    """A command could not do what it was asked to."""


def report(error: HeadraceError, *, as_json: bool = False) -> None:
    """Tell an error on stderr."""
    if as_json:
        fields = {"error": error.message, "detail": error.detail, "hint": error.hint}
        lines = [json.dumps({name: value for name, value in fields.items() if value})]
    else:
        lines = [f"{_bold('Error:', _RED)} {error.message}"]
        lines += [f"  {error.detail}"] if error.detail else []
        lines += [f"  {_bold('Hint:')} {error.hint}"] if error.hint else []
    print("\n".join(lines), file=sys.stderr, flush=True)


def _bold(word: str, colour: str = "") -> str:
    return f"\x1b[1{colour}m{word}\x1b[0m" if sys.stderr.isatty() else word


def explained(error: Exception) -> HeadraceError:
    """Any error as one that can be told."""
    if isinstance(error, HeadraceError):
        return error
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return CommandFailed(f"{where}{error.strerror}.")
    return CommandFailed(
        f"unexpected {type(error).__name__}: {error}",
        hint="this is a bug in Headrace; `headrace --debug ...` shows where it happened",
    )
