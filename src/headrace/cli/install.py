"""``headrace install``: what some parts need beside Python packages."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from headrace.cli.command import Command
from headrace.cli.failures import CommandFailed
from headrace.cli.output import print_line

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode="rich")


@app.command(cls=Command)
def install(what: Annotated[str, typer.Argument(metavar="capture", show_default=False)]) -> None:
    """Fetch what a part needs: [bold]capture[/bold] (Kafka Connect and Debezium as jars, 58 MB, each checked).

    They are fetched with Maven where it is installed, otherwise with PySpark's Ivy, into ~/.local/share/headrace or
    $HEADRACE_TOOLS. Doing it again does nothing.

    [bold]Example[/bold]

    \b
    headrace install capture
    """
    from headrace.capture.jars import default_home, fetcher, install, is_installed

    if what != "capture":
        raise CommandFailed(f"there is nothing called {what!r} to install.", hint="there is: capture")
    home = default_home()
    if is_installed(home):
        print_line(f"capture is installed already, in {home}")
        return
    how = fetcher()
    install(home, lambda done, total: _show(f"Fetching jars with {how}: {done} of {total}"))
    _show("")
    print_line(f"capture is installed, in {home}")


def _show(text: str) -> None:
    """Progress, in place; nothing if nobody looks."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()
