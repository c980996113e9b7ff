"""``headrace query list|stop|restart|rescale``."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.cluster import DEFAULT_SERVER, Cluster
from headrace.cli.command import Command
from headrace.cli.failures import CommandFailed
from headrace.cli.options import ClientSettings, Output, Server
from headrace.cli.output import OutputFormat, print_json, print_line, print_table
from headrace.cli.pairs import name_values
from headrace.cli.start import DEFAULT_DATA
from headrace.cli.state import checkpoint_of

__all__ = ["app"]

app = typer.Typer(
    name="query",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Look at the queries of running apps; stop and restart them.",
)

PATIENCE_S = 20.0
_OVER = ("stopped", "failed")

Name = Annotated[str, typer.Argument(metavar="APP.QUERY", show_default=False)]


@app.command("list", cls=Command)
def list_queries(
    server: Server = DEFAULT_SERVER, client: ClientSettings = None, output: Output = OutputFormat.text
) -> None:
    """List queries: state, batches, rows in, late and dead, watermark, and the last error."""
    found = list(_queries(server, client).values())
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
def stop(name: Name, server: Server = DEFAULT_SERVER, client: ClientSettings = None) -> None:
    """Stop a query; the rest of its app goes on."""
    _command(name, "stop", server, client)


@app.command(cls=Command)
def restart(name: Name, server: Server = DEFAULT_SERVER, client: ClientSettings = None) -> None:
    """Start a query again that was stopped or has failed; it goes on where it was."""
    _command(name, "restart", server, client)


@app.command(cls=Command)
def rescale(
    name: Name,
    buckets: Annotated[int, typer.Option(metavar="N", help="Into how many buckets its keys are put.")],
    data: Annotated[
        Path,
        typer.Option("--data", "-d", metavar="DIR", envvar="HEADRACE_DATA", help="Where `headrace run` keeps it."),
    ] = Path(DEFAULT_DATA),
    server: Server = DEFAULT_SERVER,
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

    checkpoint = checkpoint_of(data, name)
    lock = lock_app(checkpoint.parent, checkpoint.parent.name)
    try:
        with tempfile.TemporaryDirectory() as folder:
            before = put_into_buckets(
                lambda: start_spark("rescale", Path(folder), "local[*]"),
                _feed_cluster(server, client),
                checkpoint,
                buckets,
            )
    finally:
        os.close(lock)
    print_line(f"{name} has {buckets} buckets now, before it had {before}; `headrace run` goes on with it")


def _command(name: str, action: str, server: str, client: list[str] | None) -> None:
    from headrace.feed.catalog import send_command
    from headrace.feed.presence import GONE

    known = _queries(server, client)
    if name not in known:
        raise CommandFailed(f"there is no query {name!r}.", hint=f"there are: {', '.join(known) or 'none'}")
    one = known[name]
    if one["state"] == GONE:
        raise CommandFailed(
            f"the run of app {one['app']!r} (process {one['pid']}) is gone: it was killed, or has crashed.",
            hint="`headrace run FILE` starts it, and all its queries with it, where they were",
        )
    if action == "stop" and one["state"] in _OVER:
        print_line(f"{name} is {one['state']} already")
        return
    send_command(_feed_cluster(server, client), one["app"], one["name"], action)
    print_line(f"{name} is {_answer(name, one, action, lambda: _queries(server, client))}")


def _answer(name: str, before: dict[str, Any], action: str, ask: Callable[[], dict[str, dict[str, Any]]]) -> str:
    """The state that a query has come to; CommandFailed if nobody obeys."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        now = ask().get(name, before)
        over = now["state"] in _OVER
        if over if action == "stop" else now["since"] != before["since"] and not over:
            state: str = now["state"]
            return state
        time.sleep(0.2)
    raise CommandFailed(
        f"the run of app {before['app']!r} (process {before['pid']}) does not answer.",
        hint="is it still running? `headrace run FILE` starts it, and all its queries with it",
    )


def _queries(server: str, client: list[str] | None) -> dict[str, dict[str, Any]]:
    from headrace.feed.catalog import read_catalog
    from headrace.feed.presence import now

    found = read_catalog(_feed_cluster(server, client), "query")
    return {f"{one['app']}.{one['name']}": now(one) for _, one in sorted(found.items())}


def _feed_cluster(server: str, client: list[str] | None) -> Any:
    from headrace.feed.cluster import Cluster as Asked

    settings = name_values(client, "-X")
    Cluster(server, settings)
    return Asked(server, settings)
