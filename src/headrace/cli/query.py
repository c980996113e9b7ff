"""``headrace query list|stop|restart|rescale``."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.command import Command
from headrace.cli.options import Checkpoints, ClientSettings, Log, Output, SparkSettings
from headrace.cli.output import OutputFormat, print_json, print_line, print_table
from headrace.cli.pairs import client_settings, spark_settings
from headrace.cli.start import DEFAULT_DATA
from headrace.cli.state import checkpoint_of
from headrace.operations.cluster import DEFAULT_SERVER, Cluster
from headrace.operations.queries import OVER, command_query, ensure_obeyed, queries_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["app"]

app = typer.Typer(
    name="query",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Look at the queries of running apps; stop and restart them.",
)

Name = Annotated[str, typer.Argument(metavar="APP.QUERY", show_default=False)]


@app.command("list", cls=Command)
def list_queries(log: Log = DEFAULT_SERVER, client: ClientSettings = None, output: Output = OutputFormat.text) -> None:
    """List queries: state, batches, rows in, late and dead, watermark, and the last error."""
    found = list(queries_of(_feed_cluster(log, client)).values())
    if output is OutputFormat.json:
        print_json(found)
        return
    headers = ["query", "kind", "state", "batch", "rows in", "late", "dead", "watermark", "restarts", "last error"]
    print_table(
        headers,
        [
            [
                f"{one['app']}.{one['name']}",
                one["kind"],
                one["state"],
                one["batch"],
                one["rows_in"],
                one["late"],
                one["dead"],
                one["watermark"],
                one["restarts"],
                one["last_error"],
            ]
            for one in found
        ],
    )


@app.command(cls=Command)
def stop(name: Name, log: Log = DEFAULT_SERVER, client: ClientSettings = None) -> None:
    """Stop a query; the rest of its app goes on."""
    _command(name, "stop", log, client)


@app.command(cls=Command)
def restart(name: Name, log: Log = DEFAULT_SERVER, client: ClientSettings = None) -> None:
    """Start a query again that was stopped or has failed; it goes on where it was."""
    _command(name, "restart", log, client)


@app.command(cls=Command)
def rescale(
    name: Name,
    buckets: Annotated[int, typer.Option(metavar="N", help="Into how many buckets its keys are put.")],
    data: Annotated[
        Path,
        typer.Option("--data", "-d", metavar="DIR", envvar="HEADRACE_DATA", help="Where `headrace run` keeps it."),
    ] = Path(DEFAULT_DATA),
    checkpoints: Checkpoints = None,
    spark_conf: SparkSettings = None,
    log: Log = DEFAULT_SERVER,
    client: ClientSettings = None,
) -> None:
    """Change the number of buckets of a stopped query: more, if the state of one does not fit into memory.

    The app must not be running. Its log must. Views keep their rows, and the query goes on where it was.

    [bold]Example[/bold]

    \b
    headrace query rescale shop.sessions --buckets 64
    """
    from headrace.pipelines.rescale import rescale as put_into_buckets
    from headrace.pipelines.runner import lock_app
    from headrace.pipelines.spark import start_spark

    cluster, app_name = _feed_cluster(log, client), name.partition(".")[0]
    in_spark, hidden = spark_settings(spark_conf)
    with tempfile.TemporaryDirectory() as folder:

        def spark() -> SparkSession:
            return start_spark("rescale", Path(folder), "local[*]", in_spark, hidden=hidden)

        checkpoint = checkpoint_of(checkpoints or str(data / "checkpoints"), name, spark)
        lock = lock_app(data / "checkpoints" / checkpoint.where.split("/")[-3] / app_name, app_name)
        try:
            before = put_into_buckets(spark, cluster, checkpoint.where, buckets)
        finally:
            os.close(lock)
    print_line(f"{name} has {buckets} buckets now, before it had {before}; `headrace run` goes on with it")


def _command(name: str, action: str, log: str, client: list[str] | None) -> None:
    asked = _feed_cluster(log, client)
    before = ensure_obeyed(asked, name)
    if action == "stop" and before["state"] in OVER:
        print_line(f"{name} is {before['state']} already")
        return
    print_line(f"{name} is {command_query(asked, before, action)}")


def _feed_cluster(log: str, client: list[str] | None) -> Any:
    return Cluster(log, client_settings(client)).asked()
