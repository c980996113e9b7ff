"""``headrace topic create|list|describe|alter|delete``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from headrace.cli.command import Command
from headrace.cli.embedded_only import ensure_known
from headrace.cli.failures import CommandFailed
from headrace.cli.names import topic_names
from headrace.cli.options import ClientSettings, Log, Output
from headrace.cli.output import OutputFormat, print_json, print_line, print_table
from headrace.cli.pairs import client_settings, name_values
from headrace.errors import HeadraceError
from headrace.operations.cluster import DEFAULT_SERVER, REQUEST_TIMEOUT_S, Cluster
from headrace.operations.topics import all_topics, described_topic, settings_of

__all__ = ["app"]

app = typer.Typer(
    name="topic",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Create, list, describe, alter and delete topics.",
)

Names = Annotated[list[str], typer.Argument(metavar="TOPIC...", show_default=False, autocompletion=topic_names)]
Name = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, autocompletion=topic_names)]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", "-c", metavar="NAME=VALUE", help="A topic setting, with Kafka's name. Repeatable."),
]

_DROPPED = "headrace.overflow.dropped"


@app.command(cls=Command)
def create(
    names: Names,
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", min=1, help="Default: the server's.")] = None,
    settings: Settings = None,
    replication: Annotated[
        int | None, typer.Option(min=1, help="Copies of each partition. Default: the cluster's, or 3 if nobody set it.")
    ] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="A topic that exists is fine.")] = False,
    log: Log = DEFAULT_SERVER,
    client: ClientSettings = None,
    output: Output = OutputFormat.text,
) -> None:
    """Create topics.

    [bold]Examples[/bold]

    \b
    headrace topic create orders --partitions 4
    headrace topic create customers --set cleanup.policy=compact
    headrace topic create clicks views --set retention.ms=86400000 --if-not-exists
    """
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic

    cluster = Cluster(log, client_settings(client))
    config = name_values(settings, "--set")
    ensure_known(cluster, config)
    copies, with_copies = cluster.asked().brokers.copies(replication)
    wanted = [
        NewTopic(name, partitions or -1, copies, config={**with_copies, **config}) for name in dict.fromkeys(names)
    ]
    made = cluster.admin.create_topics(wanted, operation_timeout=REQUEST_TIMEOUT_S, request_timeout=REQUEST_TIMEOUT_S)
    results, failed = [], None
    for name, future in made.items():
        error = future.exception(REQUEST_TIMEOUT_S + 5)
        exists = isinstance(error, KafkaException) and error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
        try:
            if not (if_not_exists and exists):
                cluster.answer(future, f"topic {name!r} was not created")
            results.append({"name": name, "created": not exists})
        except HeadraceError as failure:
            failed = failed or failure
    if output is OutputFormat.json:
        print_json(results)
    else:
        for result in results:
            print_line(f"{'Created' if result['created'] else 'Already there:'} topic {result['name']}")
    if failed is not None:
        raise failed


@app.command("list", cls=Command)
def list_topics(
    internal: Annotated[
        bool, typer.Option("--internal", "-i", help="Also the topics that the server keeps for itself.")
    ] = False,
    log: Log = DEFAULT_SERVER,
    client: ClientSettings = None,
    output: Output = OutputFormat.text,
) -> None:
    """List topics, with their partitions and how many offsets they hold."""
    cluster = Cluster(log, client_settings(client))
    rows = [row for row in all_topics(cluster) if internal or not row["internal"]]
    if output is OutputFormat.json:
        print_json(rows)
    else:
        print_table(
            ["topic", "partitions", "records"], [[row["name"], row["partitions"], row["records"]] for row in rows]
        )


@app.command(cls=Command)
def describe(
    name: Name,
    all_settings: Annotated[
        bool, typer.Option("--all", "-a", help="Also the settings that have their default.")
    ] = False,
    log: Log = DEFAULT_SERVER,
    client: ClientSettings = None,
    output: Output = OutputFormat.text,
) -> None:
    """Show a topic's id, its settings, where each partition begins and ends, and how many records a topic with
    headrace.overflow=drop has dropped."""
    cluster = Cluster(log, client_settings(client))
    about, partitions = described_topic(cluster, name)
    settings = settings_of(cluster, name)
    dropped = next((int(setting["value"]) for setting in settings if setting["name"] == _DROPPED), None)
    settings = [setting for setting in settings if setting["name"] != _DROPPED]
    shown = settings if all_settings else [setting for setting in settings if setting["source"] != "default"]
    if output is OutputFormat.json:
        print_json({**about, "partitions": partitions, "dropped": dropped, "settings": shown})
        return
    lost = f", {dropped} record{'s' * (dropped != 1)} dropped" if dropped is not None else ""
    print_line(f"topic {name}, id {about['id']}, {len(partitions)} partition{'s' * (len(partitions) != 1)}{lost}")
    print_line()
    print_table(list(partitions[0]) if partitions else ["partition"], [list(row.values()) for row in partitions])
    print_line()
    if shown:
        print_table(["setting", "value", "source"], [list(row.values()) for row in shown])
    else:
        print_line("All settings have their default (--all shows them).")


@app.command(cls=Command)
def alter(
    name: Name,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="The new number; only more.")
    ] = None,
    settings: Settings = None,
    unset: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Back to the default. Repeatable.")] = None,
    log: Log = DEFAULT_SERVER,
    client: ClientSettings = None,
    output: Output = OutputFormat.text,
) -> None:
    """Change a topic's settings or add partitions. What is not named stays as it is.

    [bold]Examples[/bold]

    \b
    headrace topic alter orders --set retention.ms=604800000
    headrace topic alter orders --unset retention.ms --partitions 8

    More partitions send old keys to new places: readers that rely on order by key should know.
    """
    config = name_values(settings, "--set")
    if partitions is None and not config and not unset:
        raise CommandFailed("nothing to change.", hint="say --set NAME=VALUE, --unset NAME or --partitions N")
    cluster = Cluster(log, client_settings(client))
    ensure_known(cluster, config)
    if config or unset:
        _alter_settings(cluster, name, config, unset or [])
    if partitions is not None:
        from confluent_kafka.admin import NewPartitions

        asked = cluster.admin.create_partitions([NewPartitions(name, partitions)], request_timeout=REQUEST_TIMEOUT_S)
        cluster.answer(asked[name], f"topic {name!r} did not get {partitions} partitions")
    if output is OutputFormat.json:
        print_json({"name": name, "partitions": partitions, "set": config, "unset": unset or []})
    else:
        print_line(f"Altered topic {name}")


@app.command(cls=Command)
def delete(
    names: Names,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    log: Log = DEFAULT_SERVER,
    client: ClientSettings = None,
    output: Output = OutputFormat.text,
) -> None:
    """Delete topics and all they hold. Asks first when you are at a terminal."""
    cluster = Cluster(log, client_settings(client))
    wanted = list(dict.fromkeys(names))
    if not yes and sys.stdin.isatty() and output is OutputFormat.text:
        typer.confirm(f"Delete {', '.join(wanted)} and all records in them?", abort=True)
    gone = cluster.admin.delete_topics(wanted, operation_timeout=REQUEST_TIMEOUT_S, request_timeout=REQUEST_TIMEOUT_S)
    for name in wanted:
        cluster.answer(gone[name], f"topic {name!r} was not deleted")
    if output is OutputFormat.json:
        print_json([{"name": name, "deleted": True} for name in wanted])
    else:
        for name in wanted:
            print_line(f"Deleted topic {name}")


def _alter_settings(cluster: Cluster, name: str, config: dict[str, str], unset: list[str]) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    changes = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()
    ] + [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in unset]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=changes)
    asked = cluster.admin.incremental_alter_configs([resource], request_timeout=REQUEST_TIMEOUT_S)
    cluster.answer(asked[resource], f"the settings of topic {name!r} were not changed")
