"""``headrace queue list|describe|peek|alter``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headrace.cli.cluster import DEFAULT_SERVER, REQUEST_TIMEOUT_S, Cluster
from headrace.cli.command import Command
from headrace.cli.failures import CommandFailed
from headrace.cli.formats import record_json
from headrace.cli.options import ClientSettings, Output, Server
from headrace.cli.output import OutputFormat, print_json, print_line, print_table
from headrace.cli.pairs import name_values
from headrace.cli.ranges import messages_in
from headrace.cli.share_states import Shared, shared_by

__all__ = ["app", "group_settings"]

app = typer.Typer(
    name="queue",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Look at queues: share groups, in which consumers settle records one by one.",
)

Name = Annotated[str, typer.Argument(metavar="GROUP", show_default=False)]
_SHOWN_BYTES = 60


@app.command("list", cls=Command)
def list_queues(
    server: Server = DEFAULT_SERVER, client: ClientSettings = None, output: Output = OutputFormat.text
) -> None:
    """List the groups that share topics, and how many records each has to settle.

    [bold]Examples[/bold]

    \b
    headrace queue list
    headrace queue list -o json
    """
    cluster = Cluster(server, name_values(client, "-X"))
    by_group: dict[str, list[Shared]] = {}
    for one in shared_by(cluster):
        by_group.setdefault(one.group, []).append(one)
    rows = [
        {
            "group": group,
            "topics": sorted({one.topic for one in parts}),
            "lag": sum(one.lag for one in parts),
            "to_retry": sum(one.retried for one in parts),
            "dead_letters_waiting": sum(one.waiting_dead for one in parts),
        }
        for group, parts in by_group.items()
    ]
    if output is OutputFormat.json:
        print_json(rows)
        return
    cells = [[row["group"], " ".join(_texts(row["topics"])), *list(row.values())[2:]] for row in rows]
    print_table(["group", "topics", "lag", "to retry", "dead letters waiting"], cells)


@app.command(cls=Command)
def describe(
    name: Name, server: Server = DEFAULT_SERVER, client: ClientSettings = None, output: Output = OutputFormat.text
) -> None:
    """Show where a group is in each partition that it shares, and its settings.

    START is the first record that is not settled; LAG counts the records from there on that are not; TO RETRY those of
    them that were tried before. Records that consumers hold at the moment are part of the lag.

    [bold]Examples[/bold]

    \b
    headrace queue describe billing
    headrace queue describe billing -o json
    """
    cluster = Cluster(server, name_values(client, "-X"))
    parts = _existing(cluster, name)
    settings = group_settings(cluster, name)
    rows = [
        {
            "topic": one.topic,
            "partition": one.partition,
            "start": one.start,
            "end": one.end,
            "lag": one.lag,
            "to_retry": one.retried,
            "dead_letters_waiting": one.waiting_dead,
        }
        for one in parts
    ]
    if output is OutputFormat.json:
        print_json({"group": name, "settings": settings, "partitions": rows})
        return
    print_line(f"group {name}, {sum(one.lag for one in parts)} records to settle")
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
    server: Server = DEFAULT_SERVER,
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
    cluster = Cluster(server, name_values(client, "-X"))
    parts = {(one.topic, one.partition): one for one in _existing(cluster, name) if topic in (None, one.topic)}
    rows: list[dict[str, Any]] = []
    for message in messages_in(cluster, {place: (one.start, one.end) for place, one in parts.items()}):
        state, attempts = parts[message.topic(), message.partition()].state_of(message.offset())
        if state == "available" or everything:
            rows.append({"state": state, "attempts": attempts, **_record(message)})
        if len(rows) == limit:
            break
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
    server: Server = DEFAULT_SERVER,
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
    cluster = Cluster(server, name_values(client, "-X"))
    (asked,) = cluster.admin.incremental_alter_configs([resource], request_timeout=REQUEST_TIMEOUT_S).values()
    cluster.answer(asked, f"the settings of group {name!r} were not changed")
    if output is OutputFormat.json:
        print_json({"group": name, "set": config, "unset": unset or []})
    else:
        print_line(f"Altered group {name}")


def group_settings(cluster: Cluster, name: str) -> dict[str, str]:
    """What was set on a group itself."""
    from confluent_kafka.admin import ConfigResource, ConfigSource

    resource = ConfigResource(ConfigResource.Type.GROUP, name)
    (asked,) = cluster.admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S).values()
    found = cluster.answer(asked, f"the settings of group {name!r} could not be read")
    default = ConfigSource.DEFAULT_CONFIG.value
    return {
        key: str(entry.value)
        for key, entry in sorted(found.items())
        if entry.source not in (default, ConfigSource.STATIC_BROKER_CONFIG.value) and entry.value is not None
    }


def _existing(cluster: Cluster, name: str) -> list[Shared]:
    parts = shared_by(cluster, name)
    if not parts:
        raise CommandFailed(
            f"no group {name!r} shares a topic.",
            hint="`headrace queue list` shows those that do; a group begins to with its first consumer",
        )
    return parts


def _record(message: Any) -> dict[str, Any]:
    return record_json(
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        message.headers() or [],
    )


def _short(row: dict[str, Any], name: str) -> str | None:
    text = row.get(name, row.get(f"{name}_base64"))
    return None if text is None else text if len(text) <= _SHOWN_BYTES else f"{text[: _SHOWN_BYTES - 3]}..."


def _texts(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []
