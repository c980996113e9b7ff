"""``headrace move``: the embedded log to an Apache Kafka cluster."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.command import Command
from headrace.cli.failures import CommandFailed
from headrace.cli.options import Log, Output
from headrace.cli.output import OutputFormat, print_json, print_line, print_table
from headrace.cli.pairs import own_client_settings
from headrace.cli.start import DEFAULT_DATA
from headrace.errors import HeadraceError
from headrace.operations.cluster import DEFAULT_SERVER, Cluster

if TYPE_CHECKING:
    from headrace.move import Move
    from headrace.move.local import LocalState
    from headrace.move.plan import Plan

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode="rich")

_SCHEME = "kafka://"


@app.command(cls=Command)
def move(
    to: Annotated[
        str, typer.Option("--to", metavar="kafka://HOST:PORT[,...]", show_default=False, help="The cluster to move to.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be moved, and change nothing.")] = False,
    accept_losses: Annotated[
        bool, typer.Option("--accept-losses", help="Leave settings behind that only the embedded log knows.")
    ] = False,
    replication: Annotated[
        int, typer.Option(metavar="N", help="Copies of each partition; -1: three, or what the cluster says.")
    ] = -1,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data",
            "-d",
            metavar="DIR",
            envvar="HEADRACE_DATA",
            help=f"Where checkpoints and views are (what `run` and `up` were given). Repeatable. [{DEFAULT_DATA}]",
        ),
    ] = None,
    views: Annotated[
        str | None,
        typer.Option(
            "--views",
            envvar="HEADRACE_VIEWS",
            metavar="URL",
            help="The database of views, if `up` was given one: they go on with the target.",
        ),
    ] = None,
    log: Log = DEFAULT_SERVER,
    client: Annotated[
        list[str] | None,
        typer.Option(
            "-X", metavar="NAME=VALUE", help="A setting of the client for the target, say security.protocol=sasl_ssl."
        ),
    ] = None,
    output: Output = OutputFormat.text,
) -> None:
    """Move the log to an Apache Kafka cluster: every record at the same offset, every group where it was.

    Topics are copied with their settings, keys, values, headers and times. Offsets stay the same, so consumer groups,
    share groups, checkpoints of queries, views and all that remembers a position go on where they were.

    The log must be quiet: stop apps, captures, producers and consumers first; the node itself stays up. A move that was
    interrupted goes on when it is started again. Nothing is deleted here.

    [bold]Examples[/bold]

    \b
    headrace move --to kafka://kafka1:9092,kafka2:9092 --dry-run
    headrace move --to kafka://kafka1:9092,kafka2:9092
    headrace move --to kafka://kafka1:9092,kafka2:9092 --views postgresql://headrace@db.example/views
    headrace move --to kafka://kafka1:9093 -X security.protocol=sasl_ssl -X sasl.mechanism=SCRAM-SHA-512 \\
                  -X sasl.username=me -X sasl.password=secret --replication 3
    """
    from headrace.move.copying import Address
    from headrace.move.moving import Move

    settings = own_client_settings(client)
    source, target = Cluster(log, {}), Cluster(_address(to), settings)
    folders = data or [Path(DEFAULT_DATA)]
    moving = Move(Address(source.server, {}), Address(target.server, settings), folders, replication, views)
    plan = moving.plan()
    if dry_run:
        _show(plan, _obstacles(moving, plan), moving.local(plan), moving.apps_in_database(plan), output)
        return
    moving.ensure_possible(plan, accept_losses=accept_losses)
    _run(moving, plan, to, output)


def _address(to: str) -> str:
    address = to.removeprefix(_SCHEME).rstrip("/")
    if not address or "://" in address:
        raise CommandFailed(f"{to!r} is no Kafka cluster.", hint="say it like --to kafka://host:9092,host2:9092")
    return address


def _run(moving: Move, plan: Plan, to: str, output: OutputFormat) -> None:
    try:
        done = moving.run(plan, _Told(quiet=output is OutputFormat.json))
    except KeyboardInterrupt:
        raise CommandFailed("the move was stopped.", hint="start it again, and it goes on from where it is") from None
    if output is OutputFormat.json:
        names = ("topics", "offsets", "groups", "views", "checkpoints", "was_done")
        print_json({name: getattr(done, name) for name in names})
        return
    if done.was_done:
        print_line("This log was moved there before, and nothing has changed since.")
    else:
        print_line(f"Moved {done.topics} topics and {done.groups} groups.")
    address = _address(to)
    print_line(f"From now on use --log kafka://{address} (or HEADRACE_LOG=kafka://{address}) instead of this node:")
    print_line(f"  headrace run app.py --log kafka://{address}")
    print_line("This node's data is as it was; stop the node, and delete the data when you no longer want it.")


def _obstacles(moving: Move, plan: Plan) -> list[str]:
    try:
        return moving.obstacles(plan)
    except HeadraceError as error:
        return [error.message.rstrip(".")]


def _show(plan: Plan, target: list[str], local: list[LocalState], in_database: list[str], output: OutputFormat) -> None:
    if output is OutputFormat.json:
        print_json({**_as_json(plan, local), "database": in_database, "target": target})
        return
    topics = [
        [topic.name, len(topic.parts), topic.offsets, " ".join(f"{k}={v}" for k, v in sorted(topic.config.items()))]
        for topic in plan.topics
    ]
    print_table(["topic", "partitions", "offsets", "settings"], topics)
    print_line()
    groups = [[group.name, group.kind, group.state.lower(), len(group.offsets)] for group in plan.groups]
    print_table(["group", "type", "state", "partitions"], groups)
    for state in local:
        print_line()
        views = ", ".join(path.stem for path in state.stores) or "none"
        print_line(f"{state.folder}: checkpoints of {', '.join(state.apps) or 'no app'}; views of {views}")
    if in_database:
        print_line()
        print_line(f"The database: views of {', '.join(in_database)}")
    for label, found in (
        ("In the way", plan.busy),
        ("In the way on the target", target),
        ("Lost on the target", plan.losses),
    ):
        if found:
            print_line()
            print_line(f"{label}:")
            for one in found:
                print_line(f"  {one}")


def _as_json(plan: Plan, local: list[LocalState]) -> dict[str, Any]:
    return {
        "cluster": plan.cluster_id,
        "topics": [
            {
                "name": topic.name,
                "partitions": {str(part.partition): [part.start, part.end] for part in topic.parts},
                "settings": dict(topic.config),
            }
            for topic in plan.topics
        ],
        "groups": [
            {
                "group": group.name,
                "type": group.kind,
                "state": group.state.lower(),
                "offsets": {f"{topic}[{index}]": offset for (topic, index), (offset, _) in group.offsets.items()},
            }
            for group in plan.groups
        ],
        "folders": [
            {"folder": str(state.folder), "checkpoints": state.apps, "views": [path.stem for path in state.stores]}
            for state in local
        ],
        "busy": list(plan.busy),
        "losses": list(plan.losses),
    }


class _Told:
    """Says what is done on stdout, and shows a bar on stderr to whoever looks."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def say(self, sentence: str) -> None:
        if not self._quiet:
            print_line(sentence)

    @contextlib.contextmanager
    def progress(self, label: str, total: int) -> Iterator[Callable[[int], None]]:
        if not sys.stderr.isatty():
            yield lambda more: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        lock = threading.Lock()
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(f"{label} (offsets)", total=total)

            def more(count: int) -> None:
                with lock:
                    bar.update(task, advance=count)

            yield more
