"""A command of the command line, whose errors are told and not thrown."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer
from typer.core import TyperCommand

from headrace.cli.failures import explained, report

__all__ = ["Command"]


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
            report(explained(error), as_json=ctx.params.get("output") == "json")
            raise typer.Exit(1) from None
