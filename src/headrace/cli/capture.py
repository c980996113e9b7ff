"""``headrace capture list|status|pause|resume|snapshot|remove|run|metrics``."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.capturing import capture_settings, captures_of
from headrace.cli.child import node_for
from headrace.cli.command import Command
from headrace.cli.failures import CommandFailed
from headrace.cli.options import ClientSettings, Log, MaybeLog, Output
from headrace.cli.output import OutputFormat, print_json, print_line, print_table, size
from headrace.cli.pairs import client_settings, own_client_settings
from headrace.cli.start import DEFAULT_DATA
from headrace.cli.stopping import stop_signals
from headrace.logs import spoken
from headrace.operations.cluster import DEFAULT_SERVER, Cluster

__all__ = ["app"]

app = typer.Typer(
    name="capture",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Look at tables that are captured from databases; pause them, read them again, remove them.",
)

PATIENCE_S = 30.0
Name = Annotated[str, typer.Argument(metavar="APP.TABLE", show_default=False)]
File = Annotated[str, typer.Argument(metavar="FILE[:APP]", show_default=False, help="A Python file with an hr.App.")]
Data = Annotated[
    Path, typer.Option("--data", "-d", metavar="DIR", envvar="HEADRACE_DATA", help="The worker's files and its log.")
]


@app.command("list", cls=Command)
def list_tables(log: Log = DEFAULT_SERVER, client: ClientSettings = None, output: Output = OutputFormat.text) -> None:
    """List captured tables: where from, state, rows captured, how far behind."""
    found = list(_tables(log, client).values())
    if output is OutputFormat.json:
        print_json(found)
        return
    headers = ["table", "source", "state", "rows", "lag", "seconds", "slot", "snapshot", "restarts", "last error"]
    rows = [
        [
            f"{one['app']}.{one['name']}",
            f"{one['source']} {one['table']}",
            one["state"],
            one.get("rows"),
            _size(one["lag_bytes"]),
            one["lag_seconds"],
            _size(one["slot_bytes"]),
            one["snapshot"],
            one["restarts"],
            one["alarm"] or one["last_error"],
        ]
        for one in found
    ]
    print_table(headers, rows)


@app.command(cls=Command)
def status(
    name: Name, log: Log = DEFAULT_SERVER, client: ClientSettings = None, output: Output = OutputFormat.text
) -> None:
    """Show all that is known of one captured table."""
    one = _known(name, log, client)
    if output is OutputFormat.json:
        print_json(one)
        return
    for key, value in one.items():
        print_line(f"{key.replace('_', ' '):<14} {'-' if value is None else value}")


@app.command(cls=Command)
def metrics(log: Log = DEFAULT_SERVER, client: ClientSettings = None) -> None:
    """Print the metrics of all captured tables, as Prometheus reads them."""
    from headrace.capture.status import families
    from headrace.exposition import lines

    for family in families(_tables(log, client).values()):
        typer.echo("".join(lines(family)), nl=False)


@app.command(cls=Command)
def pause(name: Name, log: Log = DEFAULT_SERVER, client: ClientSettings = None) -> None:
    """Pause the capture of a table, and of all others of its app in the same database: they share a connector.

    Meanwhile the database keeps its log; `headrace capture status` shows how much.
    """
    _command(name, "pause", ("paused",), log, client)


@app.command(cls=Command)
def resume(name: Name, log: Log = DEFAULT_SERVER, client: ClientSettings = None) -> None:
    """Go on with a capture that was paused; nothing that happened meanwhile is missed."""
    _command(name, "resume", ("streaming", "snapshot"), log, client)


@app.command(cls=Command)
def snapshot(
    name: Name,
    stop: Annotated[bool, typer.Option("--stop", help="Stop the one that is under way.")] = False,
    hold: Annotated[bool, typer.Option("--hold", help="Hold the one that is under way.")] = False,
    go: Annotated[bool, typer.Option("--go", help="Go on with one that is held.")] = False,
    log: Log = DEFAULT_SERVER,
    client: ClientSettings = None,
) -> None:
    """Read all rows of a table again while writes go on; any number of times. Changes keep coming in between.

    Not of an outbox, whose rows would be sent as events once more. One of SQLite cannot be held or stopped.

    [bold]Examples[/bold]

    \b
    headrace capture snapshot shop.customers
    headrace capture snapshot shop.customers --hold
    """
    if stop + hold + go > 1:
        raise CommandFailed("--stop, --hold and --go exclude each other.")
    action = "snapshot-stop" if stop else "snapshot-hold" if hold else "snapshot-go" if go else "snapshot"
    from headrace.capture.commands import refusal

    one = _known(name, log, client)
    refused = refusal(one, action)
    if refused is not None:
        raise CommandFailed(refused.sentence, hint=refused.cure)
    _send(one, action, log, client)
    print_line(f"{name}: {action} was asked for; `headrace capture status {name}` shows how it goes")


@app.command(cls=Command)
def remove(
    file: File,
    topics: Annotated[bool, typer.Option("--topics", help="Delete the topics of the tables too.")] = False,
    data: Data = Path(DEFAULT_DATA),
    log: Log = DEFAULT_SERVER,
    client: ClientSettings = None,
) -> None:
    """End all captures of an app that is not running: drop replication slots and publications, forget positions.

    Run again, the app begins with all rows anew. To end one table's capture, take it out of the file and run that.
    """
    from headrace.capture.removal import remove as removed
    from headrace.pipelines.load import load_app

    loaded = load_app(file)
    if not loaded.captured:
        raise CommandFailed(f"app {loaded.name!r} captures nothing.")
    settings = capture_settings(log, data, own_client_settings(client))
    for line in removed(loaded.name, loaded.captured, settings, topics=topics):
        print_line(line)


@app.command(cls=Command)
def run(
    file: File,
    data: Data = Path(DEFAULT_DATA),
    log: MaybeLog = None,
    until_current: Annotated[
        bool, typer.Option("--until-current", help="Stop when all that is in the databases now is in the log.")
    ] = False,
    client: ClientSettings = None,
) -> None:
    """Capture an app's tables without running its queries (`headrace run` does both). Ctrl-C stops it."""
    from headrace.pipelines.load import load_app
    from headrace.pipelines.settings import RunSettings

    loaded = load_app(file)
    if not loaded.captured:
        raise CommandFailed(f"app {loaded.name!r} captures nothing.", hint="declare a table with capture=")
    settings, stopped = own_client_settings(client), threading.Event()
    with node_for(log, data, settings, _tell, serve=False) as node, stop_signals(stopped.set):
        chosen = RunSettings(node.server, data, node.log_data, settings)
        with captures_of(loaded, chosen, _tell) as captures:
            if captures is not None and until_current:
                if not captures.wait_until_current(stopped):
                    raise CommandFailed(
                        "the captures did not come to what the databases have.", detail=captures.trouble
                    )
                _tell("all that was in the databases is in the log")
            else:
                stopped.wait()


def _command(name: str, action: str, wanted: tuple[str, ...], log: str, client: list[str] | None) -> None:
    one = _known(name, log, client)
    if one["state"] in wanted:
        print_line(f"{name} is {one['state']} already")
        return
    _send(one, action, log, client)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        state = _known(name, log, client)["state"]
        if state in wanted:
            print_line(f"{name} is {state}")
            return
        time.sleep(0.3)
    raise CommandFailed(
        f"the run of app {one['app']!r} (process {one['pid']}) does not answer.",
        hint="is it still running? `headrace run FILE` starts it, and its captures with it",
    )


def _send(one: dict[str, Any], action: str, log: str, client: list[str] | None) -> None:
    from headrace.capture.run import COMMANDS
    from headrace.feed.catalog import send_command

    if one["state"] == "stopped":
        raise CommandFailed(f"the captures of app {one['app']!r} do not run.", hint="`headrace run FILE` starts them")
    send_command(_feed_cluster(log, client), one["app"], one["name"], action, COMMANDS)


def _known(name: str, log: str, client: list[str] | None) -> dict[str, Any]:
    known = _tables(log, client)
    if name not in known:
        raise CommandFailed(f"no table {name!r} is captured.", hint=f"there are: {', '.join(known) or 'none'}")
    return known[name]


def _tables(log: str, client: list[str] | None) -> dict[str, dict[str, Any]]:
    from headrace.feed.catalog import read_catalog

    found = read_catalog(_feed_cluster(log, client), "capture")
    return {f"{one['app']}.{one['name']}": one for _, one in sorted(found.items())}


def _feed_cluster(log: str, client: list[str] | None) -> Any:
    return Cluster(log, client_settings(client)).asked()


def _size(count: int | None) -> str | None:
    return None if count is None else size(count)


def _tell(sentence: str) -> None:
    spoken("headrace.capture", sentence)
