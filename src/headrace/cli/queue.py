"""``headrace queue list|describe|peek|alter``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headrace.cli.command import Command
from headrace.cli.embedded_only import ensure_known
from headrace.cli.failures import CommandFailed
from headrace.cli.names import group_names
from headrace.cli.options import ClientSettings, Log, Output
from headrace.cli.output import OutputFormat, print_json, print_line, print_table
from headrace.cli.pairs import client_settings, name_values
from headrace.operations.cluster import DEFAULT_SERVER, REQUEST_TIMEOUT_S, Cluster
from headrace.operations.queues import group_settings, in_flight, next_records, parts_of, queue_parts, queues_of

__all__ = ["app"]

app = typer.Typer(
    name="queue",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Look at queues: share groups, in which consumers settle records one by one.",
)

Name = Annotated[str, typer.Argument(metavar="GROUP", show_default=False, autocompletion=group_names)]
_SHOWN_BYTES = 60


@app.command("list", cls=Command)
def list_queues(log: Log = DEFAULT_SERVER, client: ClientSettings = None, output: Output = OutputFormat.text) -> None:
    """List the groups that share topics, and how many records each has to settle.

    [bold]Examples[/bold]

    \b
    headrace queue list
    headrace queue list -o json
    """
    cluster = Cluster(log, client_settings(client))
    rows = queues_of(cluster)
    if output is OutputFormat.json:
        print_json(rows)
        return
    cells = [[row["group"], " ".join(row["topics"]), *list(row.values())[2:]] for row in rows]
    print_table(["group", "topics", "lag", "to retry", "in flight", "dead letters waiting"], cells)


@app.command(cls=Command)
def describe(
    name: Name, log: Log = DEFAULT_SERVER, client: ClientSettings = None, output: Output = OutputFormat.text
) -> None:
    """Show where a group is in each partition that it shares, and its settings.

    START is the first record that is not settled; LAG counts the records from there on that are not; TO RETRY those of
    them that were tried before. Records that consumers hold at the moment are part of the lag; how many those are (in
    flight), Apache Kafka does not say.

    [bold]Examples[/bold]

    \b
    headrace queue describe billing
    headrace queue describe billing -o json
    """
    cluster = Cluster(log, client_settings(client))
    parts = parts_of(cluster, name)
    settings = group_settings(cluster, name)
    held = in_flight(cluster, name)
    rows = queue_parts(parts)
    if output is OutputFormat.json:
        print_json({"group": name, "settings": settings, "in_flight": held, "partitions": rows})
        return
    flying = "" if held is None else f", {held} in flight"
    print_line(f"group {name}, {sum(one.lag for one in parts)} records to settle{flying}")
    for setting, value in settings.items():
        print_line(f"  {setting}={value}")
    print_line()
    headers = ["topic", "partition", "start", "end", "lag", "to retry", "dead letters waiting"]
    print_table(headers, [list(row.values()) for row in rows])


@app.command(cls=Command)
def peek(
    name: Name,
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Only this topic.")] = None,
    limit: Annotated[int, typer.Option("--max", "-n", min=1, help="At most so many records.")] = 20,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Settled records in between, too.")] = False,
    log: Log = DEFAULT_SERVER,
    client: ClientSettings = None,
    output: Output = OutputFormat.text,
) -> None:
    """Show the next records of a queue, with their state and attempts, without taking them.

    A record that a consumer holds at the moment shows as available: who holds what is not kept on disk.

    [bold]Examples[/bold]

    \b
    headrace queue peek billing
    headrace queue peek billing --topic orders --max 5 -o json
    """
    cluster = Cluster(log, client_settings(client))
    parts = [one for one in parts_of(cluster, name) if topic in (None, one.topic)]
    rows = next_records(cluster, parts, limit, settled=everything)
    if output is OutputFormat.json:
        print_json(rows)
        return
    headers = ["topic", "partition", "offset", "state", "attempts", "key", "value"]
    print_table(
        headers, [[*(row[field] for field in headers[:5]), _short(row, "key"), _short(row, "value")] for row in rows]
    )


@app.command(cls=Command)
def alter(
    name: Name,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the group. Repeatable.")
    ] = None,
    unset: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Back to the default. Repeatable.")] = None,
    log: Log = DEFAULT_SERVER,
    client: ClientSettings = None,
    output: Output = OutputFormat.text,
) -> None:
    """Change a group's settings; it need not exist yet. What is not named stays as it is.

    [bold]Examples[/bold]

    \b
    headrace queue alter billing --set share.auto.offset.reset=earliest
    headrace queue alter billing --set headrace.dead.letter.topic=dlq.billing --set headrace.backoff.ms=500
    headrace queue alter billing --set headrace.key.ordered=true --unset share.delivery.count.limit
    """
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    config = name_values(settings, "--set")
    if not config and not unset:
        raise CommandFailed("nothing to change.", hint="say --set NAME=VALUE or --unset NAME")
    resource = ConfigResource(ConfigResource.Type.GROUP, name)
    for key, value in config.items():
        resource.add_incremental_config(ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET))
    for key in unset or ():
        resource.add_incremental_config(ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE))
    cluster = Cluster(log, client_settings(client))
    ensure_known(cluster, config)
    (asked,) = cluster.admin.incremental_alter_configs([resource], request_timeout=REQUEST_TIMEOUT_S).values()
    cluster.answer(asked, f"the settings of group {name!r} were not changed")
    if output is OutputFormat.json:
        print_json({"group": name, "set": config, "unset": unset or []})
    else:
        print_line(f"Altered group {name}")


def _short(row: dict[str, Any], name: str) -> str | None:
    text = row.get(name, row.get(f"{name}_base64"))
    return None if text is None else text if len(text) <= _SHOWN_BYTES else f"{text[: _SHOWN_BYTES - 3]}..."
