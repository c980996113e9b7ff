"""``headrace up``: a node in the foreground."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.command import Command
from headrace.cli.failures import CommandFailed
from headrace.cli.options import ClientSettings, Data, Http, Logs, Output, Views
from headrace.cli.output import OutputFormat
from headrace.cli.start import DEFAULT_DATA, DEFAULT_HTTP, DEFAULT_LISTEN, start_node
from headrace.logs import LogForm

__all__ = ["app"]

_OF_A_BROKER = {"listen": "--listen", "advertise": "--advertise", "metrics": "--metrics", "settings": "--set"}

app = typer.Typer(add_completion=False, rich_markup_mode="rich")


@app.command(cls=Command)
def up(
    ctx: typer.Context,
    data: Data = Path(DEFAULT_DATA),
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
    http: Http = DEFAULT_HTTP,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            envvar="HEADRACE_METRICS",
            help="Where GET /metrics is answered, for Prometheus. No token is asked for there, and labels"
            " are names of topics and groups. Port 0 takes any free port.",
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            metavar="SECRET",
            envvar="HEADRACE_TOKEN",
            show_envvar=True,
            help="Who has it may look at everything and change it, over HTTP. Needed unless --http is loopback.",
        ),
    ] = None,
    read_token: Annotated[
        str | None,
        typer.Option(metavar="SECRET", envvar="HEADRACE_READ_TOKEN", help="Who has it may look, not change."),
    ] = None,
    views: Views = None,
    log: Annotated[
        str | None,
        typer.Option(
            "--log",
            envvar="HEADRACE_LOG",
            metavar="kafka://HOST:PORT[,...]",
            help="Serve the views of this log (Apache Kafka, or another node), without a broker of our own.",
        ),
    ] = None,
    client: ClientSettings = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", "-c", metavar="NAME=VALUE", help="A broker setting, with Kafka's name. Repeatable."),
    ] = None,
    logs: Logs = LogForm.text,
    output: Output = OutputFormat.text,
) -> None:
    """Start a node: a broker for any Kafka client, and a web server for views. Ctrl-C or SIGTERM stops it cleanly.
    With --log it is the web server alone, for the views of a log elsewhere.

    [bold]Examples[/bold]

    \b
    headrace up
    headrace up --data /var/lib/headrace --listen 0.0.0.0:9092 --advertise log.example.org:9092
    headrace up --metrics 127.0.0.1:9308
    headrace up --listen 127.0.0.1:0 --set num.partitions=4 --set auto.create.topics.enable=false
    headrace up --http 127.0.0.1:8081        (or --http none)
    HEADRACE_TOKEN=... headrace up --http 0.0.0.0:8080
    headrace up --views postgresql://headrace@db.example/views
    headrace up --log kafka://kafka1:9092,kafka2:9092 --views postgresql://headrace@db.example/views

    Once clients can connect it prints one line: where it listens, its data folder, and the web address of views.
    Kafka clients need no password and there is no encryption yet: do not listen where strangers are. A command line can
    be seen by other users of the machine: give tokens in HEADRACE_TOKEN and HEADRACE_READ_TOKEN, a password of --views
    in HEADRACE_VIEWS, PGPASSWORD or ~/.pgpass, and one of the log's in HEADRACE_CLIENT or -X @FILE. Several nodes with
    the same --log and --views share the work.
    """
    if log:
        _leave_the_broker_aside(ctx)
    start_node(
        data,
        listen,
        advertise,
        settings or [],
        http=http,
        metrics=metrics,
        views=views,
        token=token,
        read_token=read_token,
        log=log,
        client=client or [],
        as_json=output is OutputFormat.json,
    )


def _leave_the_broker_aside(ctx: typer.Context) -> None:
    """Without a broker here, options that are for one are refused; what the settings file or the environment has for
    one is not meant for this node, so that a change of the log's address is all that it takes."""
    sources = {name: getattr(ctx.get_parameter_source(name), "name", "DEFAULT") for name in _OF_A_BROKER}
    if asked := [_OF_A_BROKER[name] for name, source in sources.items() if source == "COMMANDLINE"]:
        raise CommandFailed(
            f"{' and '.join(asked)}: with --log there is no broker here that it would be for.",
            hint="leave it away; or leave --log away, to start a broker",
        )
    aside = [name for name in ("listen", "advertise", "metrics") if sources[name] != "DEFAULT"]
    if ctx.params["settings"]:
        aside.append("[broker]")
    if aside:
        told = ", ".join(aside)
        print(f"Left aside, as there is no broker here: {told}", file=sys.stderr, flush=True)
