"""The ``headrace`` command: all commands put together, each imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from headrace import __version__
from headrace.cli.failures import report
from headrace.cli.settings_file import SettingsFile, find_settings, read_settings
from headrace.errors import HeadraceError

__all__ = ["COMMANDS", "app", "settings_of"]

COMMANDS = (
    "demo",
    "init",
    "up",
    "run",
    "capture",
    "install",
    "pack",
    "view",
    "query",
    "state",
    "topic",
    "produce",
    "consume",
    "group",
    "queue",
    "dlq",
    "quota",
    "log",
    "backup",
    "restore",
    "move",
    "settings",
    "doctor",
    "completion",
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

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take --settings wherever it stands, before or after the command."""
        return super().parse_args(ctx, _settings_first(args))

    def invoke(self, ctx: Any) -> Any:
        """Run the command; a bad settings file is told."""
        try:
            return super().invoke(ctx)
        except HeadraceError as error:
            if ctx.params.get("debug"):
                raise
            report(error)
            raise typer.Exit(1) from None


def settings_of(ctx: Any) -> SettingsFile | None:
    """The settings file that holds, checked; None if there is none."""
    path = find_settings(ctx.find_root().params.get("settings"))
    if path is None:
        return None
    from headrace.cli.defaults import ensure_known

    file = read_settings(path)
    ensure_known(file, ctx.find_root().command)
    return file


def _settings_first(args: list[str]) -> list[str]:
    end = args.index("--") if "--" in args else len(args)
    for at in range(end):
        if args[at] == "--settings" and at + 1 < end:
            return [*args[at : at + 2], *args[:at], *args[at + 2 :]]
        if args[at].startswith("--settings="):
            return [args[at], *args[:at], *args[at + 1 :]]
    return args


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
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    settings: Annotated[
        Path | None,
        typer.Option(
            "--settings",
            envvar="HEADRACE_SETTINGS",
            metavar="FILE",
            show_default=False,
            help="The settings file. Without it: headrace.toml, if there is one.",
        ),
    ] = None,
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
    if ctx.invoked_subcommand != "doctor":  # which looks at the file itself, however bad it is
        ctx.obj = settings_of(ctx)
