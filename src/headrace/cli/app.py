"""The ``headrace`` command: all commands put together."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace import __version__
from headrace.cli.consume import consume
from headrace.cli.failures import Command
from headrace.cli.group import group
from headrace.cli.log import log
from headrace.cli.produce import produce
from headrace.cli.topic import topic

__all__ = ["app"]

app = typer.Typer(
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
    debug: Annotated[bool, typer.Option(envvar="HEADRACE_DEBUG", help="Show tracebacks of errors.")] = False,
) -> None:
    """A durable log that speaks the Kafka protocol.

    [bold]First steps[/bold]

    \b
    headrace up                  start a node on 127.0.0.1:9092
    headrace produce orders      type records, one per line
    headrace consume orders      read them back, and follow
    """


app.add_typer(topic, name="topic")
app.add_typer(group, name="group")
app.add_typer(log, name="log")
app.command(cls=Command)(produce)
app.command(cls=Command)(consume)
