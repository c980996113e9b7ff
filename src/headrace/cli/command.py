"""A command of the command line: its errors are told, not thrown, and a settings file can change its defaults."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand

from headrace.cli.failures import explained, report

__all__ = ["Command"]


class Command(TyperCommand):
    """A command whose errors are told, not thrown; what no flag and no variable says, the settings file may say."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read the command line, with the defaults that the settings file gives."""
        file = None if parent is None else parent.find_root().obj
        if file is not None:
            from headrace.cli.defaults import defaults_of

            given = defaults_of(file, (*_names(parent), str(info_name)), self.params)
            extra["default_map"] = {name: value for name, (value, _) in given.items()}
        return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; turn what it raises into a message and an exit code."""
        try:
            with self._over_pairs(ctx):
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

    @contextmanager
    def _over_pairs(self, ctx: Any) -> Iterator[None]:
        """Put [client] and [broker] of the settings file beneath what -X and --set say."""
        file = ctx.find_root().obj
        if file is None:
            yield
            return
        from headrace.cli.defaults import BROKER, CLIENT, table_of
        from headrace.cli.pairs import over_file

        tables = {param.name: table_of(tuple(_names(ctx)), param, self.params) for param in self.params}
        for name in (name for name, table in tables.items() if table == BROKER):
            pairs = [f"{key}={value}" for key, value in file.pairs(BROKER).items()]
            ctx.params[name] = [*pairs, *(ctx.params[name] or [])]
        with over_file(file.pairs(CLIENT) if CLIENT in tables.values() else {}):
            yield


def _names(ctx: Any) -> list[str]:
    """The words that lead to a context, without the program's own name."""
    return [] if ctx.parent is None else [*_names(ctx.parent), ctx.info_name]
