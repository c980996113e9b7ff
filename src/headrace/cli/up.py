"""``headrace up``: a node in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.command import Command
from headrace.cli.options import Output
from headrace.cli.output import OutputFormat
from headrace.cli.start import DEFAULT_DATA, DEFAULT_HTTP, DEFAULT_LISTEN, start_node

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode="rich")


@app.command(cls=Command)
def up(
    data: Annotated[
        Path, typer.Option("--data", "-d", metavar="DIR", envvar="HEADRACE_DATA", help="The data folder.")
    ] = Path(DEFAULT_DATA),
    listen: Annotated[
        str,
        typer.Option(
            "--listen", "-l", metavar="HOST:PORT", envvar="HEADRACE_LISTEN", help="Port 0 takes any free port."
        ),
    ] = DEFAULT_LISTEN,
    advertise: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            envvar="HEADRACE_ADVERTISE",
            help="The address clients are told, if not where it listens.",
        ),
    ] = None,
    http: Annotated[
        str,
        typer.Option(
            "--http",
            metavar="HOST:PORT",
            envvar="HEADRACE_HTTP",
            help="Where views and the page are served; 'none' serves none.",
        ),
    ] = DEFAULT_HTTP,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            envvar="HEADRACE_METRICS",
            help="Where GET /metrics is answered, for Prometheus. Port 0 takes any free port.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", "-c", metavar="NAME=VALUE", help="A broker setting, with Kafka's name. Repeatable."),
    ] = None,
    output: Output = OutputFormat.text,
) -> None:
    """Start a node: a broker for any Kafka client, and a web server for views. Ctrl-C or SIGTERM stops it cleanly.

    [bold]Examples[/bold]

    \b
    headrace up
    headrace up --data /var/lib/headrace --listen 0.0.0.0:9092 --advertise log.example.org:9092
    headrace up --metrics 127.0.0.1:9308
    headrace up --listen 127.0.0.1:0 --set num.partitions=4 --set auto.create.topics.enable=false
    headrace up --http 127.0.0.1:8081        (or --http none)

    Once clients can connect it prints one line: where it listens, its data folder, and the web address of views.
    There is no password and no encryption yet: do not listen where strangers are.
    """
    start_node(data, listen, advertise, settings or [], http=http, metrics=metrics, as_json=output is OutputFormat.json)
