"""``headrace consume``: records out, as they are or as they come."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.command import Command
from headrace.cli.failures import CommandFailed
from headrace.cli.formats import Writer, writer_for
from headrace.cli.names import topic_names
from headrace.cli.options import ClientSettings, Log, Output
from headrace.cli.output import OutputFormat
from headrace.cli.pairs import client_settings
from headrace.operations.cluster import DEFAULT_SERVER, Cluster, Partition, failure
from headrace.operations.positions import Relative, parse_position

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode="rich")

WAIT_S = 0.2
AT_ONCE = 1000


@app.command(cls=Command)
def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, autocompletion=topic_names)],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="beginning, end, an OFFSET, -N for the last N, or @TIME (@2026-01-31T12:00, @-15m).",
        ),
    ] = "beginning",
    limit: Annotated[int | None, typer.Option("--max", "-n", min=0, metavar="N", help="Stop after N records.")] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit-at-end", "-e", help="Stop at the end as it is now. Without it, follow.")
    ] = False,
    form: Annotated[
        str,
        typer.Option("--format", metavar="FORMAT", help="value, key-value, json, or a string like '%k: %s at %T\\n'."),
    ] = "value",
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this one. Repeatable.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group", "-g", help="Read as a member of this group: go on where it stopped, commit what was printed."
        ),
    ] = None,
    log: Log = DEFAULT_SERVER,
    client: ClientSettings = None,
    output: Output = OutputFormat.text,
) -> None:
    """Print the records of a topic, and follow it until Ctrl-C.

    [bold]Examples[/bold]

    \b
    headrace consume orders --exit-at-end
    headrace consume orders --from @-15m --format json
    headrace consume orders --from -10 --format '%p:%o %k %s\\n'
    headrace consume orders --group billing --max 100

    Formats know %k key, %s value, %h headers, %t topic, %p partition, %o offset, %T timestamp in milliseconds,
    %I the same as ISO 8601, %K and %S lengths (-1 is null).
    JSON shows bytes that are not UTF-8 as key_base64 and value_base64.
    """
    writer = writer_for("json" if output is OutputFormat.json else form)
    if group is not None and partition:
        raise CommandFailed(
            "--group and --partition exclude each other.", hint="a group's members share out the partitions themselves"
        )
    cluster = Cluster(log, client_settings(client))
    reader = _Reader(cluster, topic, writer, limit, exit_at_end)
    with _stoppable(reader.stop):
        if group is None:
            reader.read_assigned(start, partition)
        else:
            reader.read_as_member(start, group)


@contextmanager
def _stoppable(stop: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the reading, not the program: offsets are committed, the group is left."""
    before = {number: signal.signal(number, lambda *_: stop()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Reader:
    """Reads until told to stop, the limit is reached, or, if asked, every partition is at the end it had at first."""

    def __init__(self, cluster: Cluster, topic: str, writer: Writer, limit: int | None, exit_at_end: bool) -> None:
        self._cluster = cluster
        self._topic = topic
        self._writer = writer
        self._left = limit
        self._exit_at_end = exit_at_end
        self._ends: dict[Partition, int] | None = None
        self._member = False
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True

    def read_assigned(self, start: str, partition: list[int] | None) -> None:
        """Read given partitions, or all, from a position; no group is involved."""
        from confluent_kafka import TopicPartition

        partitions = self._chosen(partition)
        starts = self._cluster.resolve(parse_position(start, time.time_ns() // 1_000_000), partitions)
        self._note_ends(partitions, starts)
        consumer = self._consumer(None, "earliest")
        try:
            consumer.assign([TopicPartition(topic, index, offset) for (topic, index), offset in starts.items()])
            self._read(consumer)
        finally:
            consumer.close()

    def read_as_member(self, start: str, group: str) -> None:
        """Read what the group gives us, from where it stopped; ``start`` is for partitions it never read."""
        position = parse_position(start, time.time_ns() // 1_000_000)
        if position.relative not in (Relative.BEGINNING, Relative.END):
            raise CommandFailed(
                "with --group, --from can only be beginning or end, and is for partitions the group never read.",
                hint=f"`headrace group seek {group} --to {start}` moves a group",
            )
        self._cluster.describe([self._topic])
        reset = "earliest" if position.relative is Relative.BEGINNING else "latest"
        consumer = self._consumer(group, reset)
        self._member = True

        def assigned(_: Consumer, given: list[TopicPartition]) -> None:
            self._note_ends([(partition.topic, partition.partition) for partition in given], {})

        try:
            consumer.subscribe([self._topic], on_assign=assigned)
            self._read(consumer)
        finally:
            consumer.close()

    def _chosen(self, wanted: list[int] | None) -> list[Partition]:
        partitions = self._cluster.partitions(self._topic)
        missing = [index for index in wanted or [] if (self._topic, index) not in partitions]
        if missing:
            count = len(partitions)
            raise CommandFailed(
                f"topic {self._topic!r} has no partition {missing[0]}.", hint=f"it has {count}: 0 to {count - 1}"
            )
        return [partition for partition in partitions if not wanted or partition[1] in wanted]

    def _note_ends(self, partitions: list[Partition], starts: dict[Partition, int]) -> None:
        if self._exit_at_end:
            bounds = self._cluster.offsets(partitions)
            self._ends = {p: b.end for p, b in bounds.items() if b.end > max(starts.get(p, 0), b.start)}

    def _consumer(self, group: str | None, reset: str) -> Consumer:
        return self._cluster.consumer(
            group,
            auto_offset_reset=reset,
            enable_auto_commit=group is not None,
            enable_auto_offset_store=False,
            enable_partition_eof=True,
            allow_auto_create_topics=False,
            fetch_wait_max_ms=100,
        )

    def _read(self, consumer: Consumer) -> None:
        out = sys.stdout.buffer
        while not self._stopped and self._left != 0 and self._ends != {}:
            first = consumer.poll(WAIT_S)
            if first is None:
                continue
            for message in (first, *consumer.consume(AT_ONCE, 0)):
                if self._left != 0 and self._take(message, out.write) and self._member:
                    consumer.store_offsets(message)
            out.flush()

    def _take(self, message: Message, write: Callable[[bytes], object]) -> bool:
        """Print a record if it is wanted; true if it was."""
        partition = (message.topic() or "", message.partition() or 0)
        error = message.error()
        if error is not None:
            if error.name() != "_PARTITION_EOF":
                raise failure(error, f"topic {self._topic!r} could not be read", self._cluster.server)
            self._reached(partition)
            return False
        offset = message.offset() or 0
        if self._ends is not None and offset >= self._ends.get(partition, 0):
            self._reached(partition)
            return False
        write(self._writer(message))
        if self._left is not None:
            self._left -= 1
        if self._ends is not None and offset + 1 >= self._ends[partition]:
            self._reached(partition)
        return True

    def _reached(self, partition: Partition) -> None:
        if self._ends is not None:
            self._ends.pop(partition, None)
