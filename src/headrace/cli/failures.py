"""How a command fails: one sentence, perhaps a detail and a hint, on stderr; exit code 1.

A traceback only with ``--debug``. With ``-o json`` the error is one JSON object on stderr. Wrong usage of the command
line itself exits with 2, as usual.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import typer
from typer.core import TyperCommand

from headrace.errors import HeadraceError

__all__ = ["Command", "CommandFailed", "report"]


class CommandFailed(HeadraceError):
    """A command could not do what it was asked to."""


class Command(TyperCommand):
    """A command whose errors are told, not thrown."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; turn what it raises into a message and an exit code."""
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except BrokenPipeError:
            # The reader of our output has seen enough (``| head``). Nothing more can be written, not even at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except Exception as error:
            if ctx.find_root().params.get("debug"):
                raise
            report(_explained(error), as_json=ctx.params.get("output") == "json")
            raise typer.Exit(1) from None


def report(error: HeadraceError, *, as_json: bool = False) -> None:
    """Tell an error on stderr."""
    if as_json:
        fields = {"error": error.message, "detail": error.detail, "hint": error.hint}
        lines = [json.dumps({name: value for name, value in fields.items() if value})]
    else:
        lines = [f"{typer.style('Error:', fg='red', bold=True)} {error.message}"]
        lines += [f"  {error.detail}"] if error.detail else []
        lines += [f"  {typer.style('Hint:', bold=True)} {error.hint}"] if error.hint else []
    for line in lines:
        typer.echo(line, err=True)


def _explained(error: Exception) -> HeadraceError:
    if isinstance(error, HeadraceError):
        return error
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return CommandFailed(f"{where}{error.strerror}.")
    return CommandFailed(
        f"unexpected {type(error).__name__}: {error}",
        hint="this is a bug in Headrace; `headrace --debug ...` shows where it happened",
    )
