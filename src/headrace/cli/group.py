"""``headrace group list|describe|lag|seek|delete``."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from headrace.cli.command import Command
from headrace.cli.names import group_names as names_of_groups
from headrace.cli.names import topic_names
from headrace.cli.options import ClientSettings, Log, Output
from headrace.cli.output import OutputFormat, age, print_json, print_line, print_table
from headrace.cli.pairs import client_settings
from headrace.operations.cluster import DEFAULT_SERVER, REQUEST_TIMEOUT_S, Cluster
from headrace.operations.groups import (
    Lag,
    about_group,
    all_groups,
    existing_group,
    group_names,
    lags_of,
    members_of,
    move_group,
)
from headrace.operations.positions import parse_position
from headrace.operations.share_groups import ShareGroup, share_groups, share_offsets

__all__ = ["app"]

app = typer.Typer(
    name="group",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Look at groups: members, lag; move and delete them.",
)

Name = Annotated[str, typer.Argument(metavar="GROUP", show_default=False, autocompletion=names_of_groups)]
Topics = Annotated[
    list[str] | None, typer.Option("--topic", "-t", help="Only this topic. Repeatable.", autocompletion=topic_names)
]


@app.command("list", cls=Command)
def list_groups(log: Log = DEFAULT_SERVER, client: ClientSettings = None, output: Output = OutputFormat.text) -> None:
    """List groups of all types (classic, consumer, share) and their state.

    A group is damaged when the node cannot read a record of it; the node's log and [bold]headrace log verify[/bold] say
    which.
    """
    cluster = Cluster(log, client_settings(client))
    rows = all_groups(cluster)
    if output is OutputFormat.json:
        print_json(rows)
    else:
        print_table(["group", "type", "state", "members"], [list(row.values()) for row in rows])


@app.command(cls=Command)
def describe(
    name: Name, log: Log = DEFAULT_SERVER, client: ClientSettings = None, output: Output = OutputFormat.text
) -> None:
    """Show a group's state, its members with their partitions, and its offsets.

    A share group's offsets are those before which it has settled everything.
    """
    cluster = Cluster(log, client_settings(client))
    found = existing_group(cluster, name)
    if isinstance(found, ShareGroup):
        lags = lags_of(cluster, name, None, share_offsets(cluster, name))
        _print_described(about_group(found), found.members, lags, output)
        return
    lags = lags_of(cluster, name, None)
    _print_described(about_group(found), members_of(found), lags, output)


def _print_described(
    about: dict[str, Any], members: list[dict[str, Any]], lags: list[Lag], output: OutputFormat
) -> None:
    if output is OutputFormat.json:
        print_json({**about, "members": members, "offsets": [_without_group(lag) for lag in lags]})
        return
    assignor = f", assignor {about['assignor']}" if about["assignor"] else ""
    group = f"{about['type']} group {about['group']}"
    print_line(f"{group}, {about['state']}{assignor}, coordinator {about['coordinator']}")
    if members:
        print_line()
        rows = [[m["member"], m["client"], m["host"], " ".join(m["partitions"]) or None] for m in members]
        print_table(["member", "client", "host", "partitions"], rows)
    print_line()
    _print_lags(lags)


@app.command(cls=Command)
def lag(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[GROUP...]", show_default=False, autocompletion=names_of_groups)
    ] = None,
    topics: Topics = None,
    log: Log = DEFAULT_SERVER,
    client: ClientSettings = None,
    output: Output = OutputFormat.text,
) -> None:
    """Show how far groups are behind, in records and in seconds. All groups unless some are named.

    BEHIND is the age of the oldest record that the group has not committed (a share group: not settled): how stale
    its results are.
    """
    cluster = Cluster(log, client_settings(client))
    sharing = {group.name for group in share_groups(cluster)}
    for name in names or []:
        if name not in sharing:
            existing_group(cluster, name)
    wanted = names or sorted({*group_names(cluster), *sharing})
    lags = [
        lag
        for name in wanted
        for lag in lags_of(cluster, name, topics, share_offsets(cluster, name) if name in sharing else None)
    ]
    if output is OutputFormat.json:
        print_json([asdict(lag) for lag in lags])
        return
    _print_lags(lags, with_group=True)
    print_line()
    print_line(f"{sum(lag.lag for lag in lags)} records behind in total")


@app.command(cls=Command)
def seek(
    name: Name,
    to: Annotated[
        str, typer.Option("--to", metavar="WHERE", help="beginning, end, an OFFSET, -N before the end, or @TIME.")
    ],
    topics: Topics = None,
    partitions: Annotated[list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this one.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the new offsets, change nothing.")] = False,
    log: Log = DEFAULT_SERVER,
    client: ClientSettings = None,
    output: Output = OutputFormat.text,
) -> None:
    """Move a group to another place: to replay or to skip. Its consumers must be stopped first.

    [bold]Examples[/bold]

    \b
    headrace group seek billing --to beginning
    headrace group seek billing --to @2026-01-31T12:00 --topic orders
    headrace group seek billing --to end --dry-run

    Moves the topics that the group has offsets for, or those named. A group that does not exist is made.
    """
    position = parse_position(to, time.time_ns() // 1_000_000)
    cluster = Cluster(log, client_settings(client))
    rows = move_group(cluster, name, position, topics, partitions, dry_run=dry_run)
    if output is OutputFormat.json:
        print_json({"group": name, "moved": not dry_run, "offsets": rows})
        return
    print_table(["topic", "partition", "before", "after"], [list(row.values()) for row in rows])
    if dry_run:
        print_line("\nNothing was changed (--dry-run).")


@app.command(cls=Command)
def delete(
    names: Annotated[list[str], typer.Argument(metavar="GROUP...", show_default=False, autocompletion=names_of_groups)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    log: Log = DEFAULT_SERVER,
    client: ClientSettings = None,
    output: Output = OutputFormat.text,
) -> None:
    """Delete groups and their offsets. Their consumers must be stopped first. Asks when you are at a terminal."""
    cluster = Cluster(log, client_settings(client))
    wanted = list(dict.fromkeys(names))
    if not yes and sys.stdin.isatty() and output is OutputFormat.text:
        typer.confirm(f"Delete {', '.join(wanted)} and their offsets?", abort=True)
    gone = cluster.admin.delete_consumer_groups(wanted, request_timeout=REQUEST_TIMEOUT_S)
    for name in wanted:
        cluster.answer(gone[name], f"group {name!r} was not deleted")
    if output is OutputFormat.json:
        print_json([{"group": name, "deleted": True} for name in wanted])
    else:
        for name in wanted:
            print_line(f"Deleted group {name}")


def _without_group(lag: Lag) -> dict[str, object]:
    return {name: value for name, value in asdict(lag).items() if name != "group"}


def _print_lags(lags: Sequence[Lag], *, with_group: bool = False) -> None:
    headers = ["group", "topic", "partition", "committed", "end", "lag", "behind"]
    rows: list[list[object]] = [
        [
            one.group,
            one.topic,
            one.partition,
            one.committed,
            one.end,
            one.lag,
            age(one.lag_seconds) if one.lag else "0s",
        ]
        for one in lags
    ]
    first = 0 if with_group else 1
    print_table(headers[first:], [row[first:] for row in rows])
