"""The ``headrace`` command: all commands put together, each imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from headrace import __version__

__all__ = ["COMMANDS", "app"]

COMMANDS = (
    "demo",
    "init",
    "up",
    "run",
    "capture",
    "install",
    "view",
    "query",
    "state",
    "topic",
    "produce",
    "consume",
    "group",
    "queue",
    "dlq",
    "log",
)
"""Each is a module of this package with an ``app``."""


class _Commands(TyperGroup):
    """The commands, in the order in which a newcomer needs them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        return typer.main.get_command(import_module(f"headrace.cli.{cmd_name}").app)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def headrace(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", envvar="HEADRACE_DEBUG", help="Show tracebacks of errors.")] = False,
) -> None:
    """A streaming platform: a log that speaks the Kafka protocol, pipelines on Spark, live views.

    [bold]First steps[/bold]

    \b
    headrace demo                see it work, for a minute
    headrace init shop           write a small app with its test
    headrace up                  start a node on 127.0.0.1:9092
    headrace produce orders      type records, one per line
    headrace consume orders      read them back, and follow

    Every command takes -o json, exits with 1 when it fails, and shows examples with --help.
    """
