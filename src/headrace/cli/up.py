"""``headrace up``: a node in the foreground."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.failures import Command, CommandFailed
from headrace.cli.options import DEFAULT_SERVER, Output, name_values
from headrace.cli.output import OutputFormat

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode="rich")


@app.command(cls=Command)
def up(
    data: Annotated[
        Path, typer.Option("--data", "-d", metavar="DIR", envvar="HEADRACE_DATA", help="The data folder.")
    ] = Path("headrace-data"),
    listen: Annotated[
        str,
        typer.Option(
            "--listen", "-l", metavar="HOST:PORT", envvar="HEADRACE_LISTEN", help="Port 0 takes any free port."
        ),
    ] = DEFAULT_SERVER,
    advertise: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            envvar="HEADRACE_ADVERTISE",
            help="The address clients are told, if not where it listens.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", "-c", metavar="NAME=VALUE", help="A broker setting, with Kafka's name. Repeatable."),
    ] = None,
    output: Output = OutputFormat.text,
) -> None:
    """Start a node: a broker for any Kafka client. Ctrl-C or SIGTERM stops it cleanly.

    [bold]Examples[/bold]

    \b
    headrace up
    headrace up --data /var/lib/headrace --listen 0.0.0.0:9092 --advertise log.example.org:9092
    headrace up --listen 127.0.0.1:0 --set num.partitions=4 --set auto.create.topics.enable=false

    Once clients can connect it prints one line: Headrace listens on 127.0.0.1:9092 (data in headrace-data).
    There is no password and no encryption yet: do not listen where strangers are.
    """
    from headrace.node import run_node
    from headrace.settings import BrokerSettings, host_port

    host, port = host_port(listen)
    told_host, told_port = host_port(advertise) if advertise else (None, None)
    if host in ("0.0.0.0", "::") and told_host is None:
        raise CommandFailed(
            f"{listen} means all addresses, so clients must be told which one to use.",
            hint="add --advertise HOST:PORT with a name or address that they can reach",
        )

    def announce(bound_host: str, bound_port: int) -> None:
        shown = f"[{bound_host}]" if ":" in bound_host else bound_host
        if output is OutputFormat.json:
            line = json.dumps(
                {"listen": f"{shown}:{bound_port}", "host": bound_host, "port": bound_port, "data": str(data)}
            )
        else:
            line = f"Headrace listens on {shown}:{bound_port} (data in {data})"
        print(line, flush=True)

    chosen = BrokerSettings(data, host, port, told_host, told_port, name_values(settings, "--set"))
    try:
        run_node(chosen, announce)
    except OSError as error:
        raise _explained(error, listen, data) from error


def _explained(error: OSError, listen: str, data: Path) -> CommandFailed:
    if error.errno == errno.EADDRINUSE:
        return CommandFailed(
            f"{listen} is in use by another process.",
            hint="stop that one, or choose another with --listen HOST:PORT (port 0 takes any free port)",
        )
    if error.errno in (errno.EADDRNOTAVAIL, errno.EACCES) and error.filename is None:
        return CommandFailed(
            f"cannot listen on {listen}: {error.strerror or error}.", hint="choose another with --listen"
        )
    where = f"{error.filename or data}"
    return CommandFailed(f"{where}: {error.strerror or error}.", hint="choose another data folder with --data")
