"""``headrace group list|describe|lag|seek|delete``."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.cluster import DEFAULT_SERVER, REQUEST_TIMEOUT_S, Cluster, Partition
from headrace.cli.command import Command
from headrace.cli.failures import CommandFailed
from headrace.cli.options import ClientSettings, Output, Server
from headrace.cli.output import OutputFormat, age, print_json, print_line, print_table
from headrace.cli.pairs import name_values
from headrace.cli.positions import parse_position
from headrace.cli.share_groups import ShareGroup, share_groups, share_offsets

if TYPE_CHECKING:
    from confluent_kafka.admin import ConsumerGroupDescription

__all__ = ["app"]

app = typer.Typer(
    name="group",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Look at groups: members, lag; move and delete them.",
)

Name = Annotated[str, typer.Argument(metavar="GROUP", show_default=False)]
Topics = Annotated[list[str] | None, typer.Option("--topic", "-t", help="Only this topic. Repeatable.")]

AGE_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a group is behind in a partition: in records, and by the age of the oldest record it has not read."""

    group: str
    topic: str
    partition: int
    committed: int
    end: int
    lag: int
    lag_seconds: float | None


@app.command("list", cls=Command)
def list_groups(
    server: Server = DEFAULT_SERVER, client: ClientSettings = None, output: Output = OutputFormat.text
) -> None:
    """List groups of all types (classic, consumer, share) and their state.

    A group is damaged when the node cannot read a record of it; the node's log and [bold]headrace log verify[/bold] say
    which.
    """
    cluster = Cluster(server, name_values(client, "-X"))
    rows = _rows(cluster, _group_names(cluster))
    rows += [
        {"group": one.name, "type": "share", "state": one.state, "members": len(one.members)}
        for one in share_groups(cluster)
    ]
    rows.sort(key=lambda row: str(row["group"]))
    if output is OutputFormat.json:
        print_json(rows)
    else:
        print_table(["group", "type", "state", "members"], [list(row.values()) for row in rows])


@app.command(cls=Command)
def describe(
    name: Name, server: Server = DEFAULT_SERVER, client: ClientSettings = None, output: Output = OutputFormat.text
) -> None:
    """Show a group's state, its members with their partitions, and its offsets.

    A share group's offsets are those before which it has settled everything.
    """
    cluster = Cluster(server, name_values(client, "-X"))
    found = _existing(cluster, name)
    if isinstance(found, ShareGroup):
        lags = _lags(cluster, name, None, share_offsets(cluster, name))
        _print_described(_about(found), found.members, lags, output)
        return
    members = [
        {
            "member": member.member_id,
            "client": member.client_id,
            "host": member.host,
            "partitions": [f"{p.topic}[{p.partition}]" for p in sorted(member.assignment.topic_partitions)],
        }
        for member in found.members
    ]
    lags = _lags(cluster, name, None)
    _print_described(_about(found), members, lags, output)


def _about(found: ConsumerGroupDescription | ShareGroup) -> dict[str, Any]:
    if isinstance(found, ShareGroup):
        about = {"group": found.name, "type": "share", "state": found.state, "assignor": found.assignor}
        return {**about, "coordinator": found.coordinator}
    coordinator = f"{found.coordinator.host}:{found.coordinator.port}" if found.coordinator else None
    about = {"group": found.group_id, "type": _type(found), "state": _state(found)}
    return {**about, "assignor": found.partition_assignor or None, "coordinator": coordinator}


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
    names: Annotated[list[str] | None, typer.Argument(metavar="[GROUP...]", show_default=False)] = None,
    topics: Topics = None,
    server: Server = DEFAULT_SERVER,
    client: ClientSettings = None,
    output: Output = OutputFormat.text,
) -> None:
    """Show how far groups are behind, in records and in seconds. All groups unless some are named.

    BEHIND is the age of the oldest record that the group has not committed (a share group: not settled): how stale
    its results are.
    """
    cluster = Cluster(server, name_values(client, "-X"))
    sharing = {group.name for group in share_groups(cluster)}
    for name in names or []:
        if name not in sharing:
            _existing(cluster, name)
    wanted = names or sorted({*_group_names(cluster), *sharing})
    lags = [
        lag
        for name in wanted
        for lag in _lags(cluster, name, topics, share_offsets(cluster, name) if name in sharing else None)
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
    server: Server = DEFAULT_SERVER,
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
    cluster = Cluster(server, name_values(client, "-X"))
    _ensure_idle(cluster, name)
    before = _committed(cluster, name)
    wanted = topics or sorted({topic for topic, _ in before})
    if not wanted:
        raise CommandFailed(
            f"group {name!r} has no offsets to move.", hint="name the topics to begin with: --topic TOPIC"
        )
    places = [p for topic in wanted for p in cluster.partitions(topic) if not partitions or p[1] in partitions]
    after = cluster.resolve(position, places)
    if not dry_run:
        _commit(cluster, name, after)
    rows = [
        {"topic": topic, "partition": index, "before": before.get((topic, index)), "after": after[topic, index]}
        for topic, index in sorted(after)
    ]
    if output is OutputFormat.json:
        print_json({"group": name, "moved": not dry_run, "offsets": rows})
        return
    print_table(["topic", "partition", "before", "after"], [list(row.values()) for row in rows])
    if dry_run:
        print_line("\nNothing was changed (--dry-run).")


@app.command(cls=Command)
def delete(
    names: Annotated[list[str], typer.Argument(metavar="GROUP...", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    server: Server = DEFAULT_SERVER,
    client: ClientSettings = None,
    output: Output = OutputFormat.text,
) -> None:
    """Delete groups and their offsets. Their consumers must be stopped first. Asks when you are at a terminal."""
    cluster = Cluster(server, name_values(client, "-X"))
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


def _group_names(cluster: Cluster) -> list[str]:
    asked = cluster.admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S)
    listed = cluster.answer(asked, "the groups could not be listed")
    return sorted(str(found.group_id) for found in listed.valid)


def _described(cluster: Cluster, names: Sequence[str]) -> list[ConsumerGroupDescription]:
    if not names:
        return []
    asked = cluster.admin.describe_consumer_groups(list(names), request_timeout=REQUEST_TIMEOUT_S)
    return [cluster.answer(asked[name], f"group {name!r} could not be described") for name in names]


def _existing(cluster: Cluster, name: str) -> ConsumerGroupDescription | ShareGroup:
    if name in _group_names(cluster):
        return _described(cluster, [name])[0]
    found = next((group for group in share_groups(cluster) if group.name == name), None)
    if found is None:
        raise CommandFailed(f"there is no group {name!r}.", hint="`headrace group list` shows the groups there are")
    return found


def _rows(cluster: Cluster, names: Sequence[str]) -> list[dict[str, object]]:
    if not names:
        return []
    asked = cluster.admin.describe_consumer_groups(list(names), request_timeout=REQUEST_TIMEOUT_S)
    rows: list[dict[str, object]] = []
    for name in names:
        try:
            found = cluster.answer(asked[name], f"group {name!r} could not be described")
        except CommandFailed:
            rows.append({"group": name, "type": None, "state": "damaged", "members": None})
        else:
            rows.append({"group": name, "type": _type(found), "state": _state(found), "members": len(found.members)})
    return rows


def _type(found: ConsumerGroupDescription) -> str:
    return str(found.type.name).lower()


def _state(found: ConsumerGroupDescription) -> str:
    return str(found.state.name).lower().replace("_", " ")


def _ensure_idle(cluster: Cluster, name: str) -> None:
    if name not in _group_names(cluster):
        if any(group.name == name for group in share_groups(cluster)):
            raise CommandFailed(f"group {name!r} is a share group, so it cannot be moved.")
        return
    members = _described(cluster, [name])[0].members
    if members:
        raise CommandFailed(
            f"group {name!r} has {len(members)} member{'s' * (len(members) != 1)}, so it cannot be moved now.",
            detail="Members: " + ", ".join(f"{member.client_id} at {member.host}" for member in members[:5]),
            hint="stop its consumers first; one that was killed leaves after its session timeout (45 s by default)",
        )


def _committed(cluster: Cluster, name: str) -> dict[Partition, int]:
    from confluent_kafka import ConsumerGroupTopicPartitions

    wanted = [ConsumerGroupTopicPartitions(name)]
    asked = cluster.admin.list_consumer_group_offsets(wanted, request_timeout=REQUEST_TIMEOUT_S)
    found = cluster.answer(asked[name], f"the offsets of group {name!r} could not be read")
    return {(p.topic, p.partition): p.offset for p in found.topic_partitions if p.offset >= 0}


def _commit(cluster: Cluster, name: str, offsets: dict[Partition, int]) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    places = [TopicPartition(topic, index, offset) for (topic, index), offset in offsets.items()]
    wanted = [ConsumerGroupTopicPartitions(name, places)]
    asked = cluster.admin.alter_consumer_group_offsets(wanted, request_timeout=REQUEST_TIMEOUT_S)
    done = cluster.answer(asked[name], f"group {name!r} was not moved")
    for place in done.topic_partitions:
        if place.error is not None:
            raise CommandFailed(f"{place.topic}[{place.partition}] was not moved: {place.error.str()}.")


def _lags(
    cluster: Cluster, name: str, topics: Sequence[str] | None, offsets: dict[Partition, int] | None = None
) -> list[Lag]:
    """How far a group is behind; ``offsets`` are where it stands, if that is not what it committed."""
    existing = set(cluster.topic_names())
    committed = {
        place: offset
        for place, offset in (_committed(cluster, name) if offsets is None else offsets).items()
        if place[0] in existing and (not topics or place[0] in topics)
    }
    bounds = cluster.offsets(committed)
    unread = {place: max(offset, bounds[place].start) for place, offset in committed.items()}
    behind = {place: offset for place, offset in unread.items() if bounds[place].end > offset}
    ages = _ages_s(cluster, behind)
    return [
        Lag(
            group=name,
            topic=place[0],
            partition=place[1],
            committed=committed[place],
            end=bounds[place].end,
            lag=max(0, bounds[place].end - unread[place]),
            lag_seconds=ages.get(place) if place in behind else 0.0,
        )
        for place in sorted(committed)
    ]


def _ages_s(cluster: Cluster, offsets: dict[Partition, int]) -> dict[Partition, float]:
    """How old the first record at or after each offset is. Missing where it could not be read in time."""
    if not offsets:
        return {}
    from confluent_kafka import TopicPartition

    consumer = cluster.consumer(auto_offset_reset="earliest", enable_auto_commit=False, fetch_message_max_bytes=1000)
    ages: dict[Partition, float] = {}
    try:
        consumer.assign([TopicPartition(topic, index, offset) for (topic, index), offset in offsets.items()])
        deadline = time.monotonic() + AGE_PATIENCE_S
        while len(ages) < len(offsets) and time.monotonic() < deadline:
            message: Any = consumer.poll(0.2)
            if message is None or message.error() is not None:
                continue
            place = (message.topic(), message.partition())
            if place not in ages:
                ages[place] = max(0.0, round(time.time() - message.timestamp()[1] / 1000, 3))
                consumer.pause([TopicPartition(*place)])
    finally:
        consumer.close()
    return ages


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
