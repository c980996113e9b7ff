"""``headrace produce``: lines in, records out."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from headrace import tracing
from headrace.cli.command import Command
from headrace.cli.failures import CommandFailed
from headrace.cli.lines import LineFormat, Outgoing, parse_lines, unescape
from headrace.cli.names import topic_names
from headrace.cli.options import ClientSettings, Log, Output
from headrace.cli.output import OutputFormat, print_json, print_line, progress, size
from headrace.cli.pairs import client_settings, name_values
from headrace.errors import HeadraceError
from headrace.operations.cluster import DEFAULT_SERVER, Cluster, failure

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode="rich")

PATIENCE_S = 30.0
POLL_EVERY_S = 0.02


class Codec(StrEnum):
    """Compression of batches."""

    none = "none"
    gzip = "gzip"
    snappy = "snappy"
    lz4 = "lz4"
    zstd = "zstd"


class Acks(StrEnum):
    """When a record counts as written."""

    all = "all"
    one = "1"
    zero = "0"


@app.command(cls=Command)
def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, autocompletion=topic_names)],
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", metavar="FILE", help="NDJSON: each line is a JSON value and becomes a record. - is stdin."
        ),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="One key for all records.")] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", metavar="SEP", help="Lines are KEY SEP VALUE. tab or '\\t' is a tab."),
    ] = None,
    key_field: Annotated[
        str | None, typer.Option(metavar="FIELD", help="The key is this field of the JSON; a.b for nested ones.")
    ] = None,
    envelope: Annotated[
        bool, typer.Option("--envelope", help="Lines are records as `headrace consume -o json` prints them.")
    ] = False,
    empty_as_null: Annotated[
        bool, typer.Option("--empty-as-null", "-Z", help="An empty value is a null: it deletes the key.")
    ] = False,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="For all records. Repeatable.")
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Default: by key, or any.")] = None,
    codec: Annotated[Codec, typer.Option("--codec", "-z", help="Compression.")] = Codec.none,
    acks: Annotated[Acks, typer.Option(help="all: on disk; 1: with the server; 0: sent.")] = Acks.all,
    log: Log = DEFAULT_SERVER,
    client: ClientSettings = None,
    output: Output = OutputFormat.text,
) -> None:
    """Write records to a topic, one per line of standard input or of a file.

    [bold]Examples[/bold]

    \b
    echo hello | headrace produce greetings
    printf '42\\tpaid\\n' | headrace produce orders --key-separator tab
    headrace produce orders --file orders.ndjson --key-field customer.id --codec zstd
    headrace consume orders --exit-at-end -o json | headrace produce copy --envelope
    """
    if sum(option is not None for option in (key, key_separator, key_field)) + envelope > 1:
        raise CommandFailed("only one of --key, --key-separator, --key-field and --envelope can be.")
    form = LineFormat(
        key=None if key is None else key.encode(),
        separator=None if key_separator is None else unescape(key_separator),
        key_field=key_field,
        json_values=file is not None,
        envelope=envelope,
        empty_is_null=empty_as_null,
    )
    headers: list[tuple[str, bytes | None]] = [(n, v.encode()) for n, v in name_values(header, "--header").items()]
    with _input(file) as lines, tracing.sending(topic, headers, os.environ.get("TRACEPARENT")):
        cluster = Cluster(log, client_settings(client))
        delivery = _Delivery(cluster, topic, codec, acks, partition, headers)
        name = "standard input" if file is None or str(file) == "-" else str(file)
        total = os.fstat(lines.fileno()).st_size
        with progress(f"Producing to {topic}", total) as tell:
            delivery.send(parse_lines(lines, form, name), tell)
    _summarise(delivery, output)


@contextmanager
def _input(file: Path | None) -> Iterator[IO[bytes]]:
    if file is not None and str(file) != "-":
        with file.open("rb") as opened:
            yield opened
        return
    if sys.stdin.isatty():
        typer.echo("Type records, one per line; Ctrl-D ends.", err=True)
    yield sys.stdin.buffer


class _Delivery:
    """Sends records and keeps count of what the server has acknowledged."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        codec: Codec,
        acks: Acks,
        partition: int | None,
        headers: list[tuple[str, bytes | None]],
    ) -> None:
        self.topic = topic
        self.headers = headers
        self._extra: dict[str, Any] = {} if partition is None else {"partition": partition}
        if headers:
            self._extra["headers"] = headers
        self.records = self.bytes = 0
        self.offsets: dict[int, list[int]] = {}
        self.error: KafkaError | None = None
        self.started = time.monotonic()
        self._server = cluster.server
        self._producer = cluster.producer(
            acks=acks.value,
            enable_idempotence=acks is Acks.all,
            compression_type=codec.value,
            linger_ms=5,
            message_timeout_ms=int(PATIENCE_S * 1000),
            topic_metadata_propagation_max_ms=5000,
        )

    def send(self, records: Iterator[tuple[int, Outgoing]], tell: Callable[[int], None]) -> None:
        """Send every record and wait until each is acknowledged. The first failure, of a line or of the server, ends it
        after what came before; so does Ctrl-C."""
        failed: HeadraceError | None = None
        try:
            self._queue_all(records, tell)
        except CommandFailed as error:
            failed = error
        except KeyboardInterrupt:
            pass
        self._producer.flush(PATIENCE_S + 5)
        if self.error is not None:
            failed = failure(self.error, f"a record was not written to topic {self.topic!r}", self._server)
        if failed is not None:
            failed.detail = f"{self.records} records were written."
            raise failed

    def _queue_all(self, records: Iterator[tuple[int, Outgoing]], tell: Callable[[int], None]) -> None:
        read, polled = 0, 0.0
        for length, record in records:
            self._queue(record)
            read += length
            if (now := time.monotonic()) - polled > POLL_EVERY_S:
                polled = now
                self._producer.poll(0)
                tell(read)
            if self.error is not None:
                return

    def _queue(self, record: Outgoing) -> None:
        extra = self._extra
        if record.timestamp_ms is not None:
            extra = {**extra, "timestamp": record.timestamp_ms}
        if record.headers:
            own = any(name == tracing.HEADER for name, _ in record.headers)
            all_ = [one for one in self.headers if one[0] != tracing.HEADER] if own else self.headers
            extra = {**extra, "headers": all_ + record.headers}
        while True:
            try:
                self._producer.produce(self.topic, record.value, record.key, on_delivery=self._delivered, **extra)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.error = self.error or error
            return
        self.records += 1
        self.bytes += len(message)
        offset, index = message.offset(), message.partition()
        if offset is not None and index is not None:
            self.offsets.setdefault(index, [offset, offset])[1] = offset


def _summarise(delivery: _Delivery, output: OutputFormat) -> None:
    seconds = time.monotonic() - delivery.started
    known = dict(sorted(delivery.offsets.items()))
    if output is OutputFormat.json:
        print_json(
            {
                "topic": delivery.topic,
                "records": delivery.records,
                "bytes": delivery.bytes,
                "seconds": round(seconds, 3),
                "partitions": [{"partition": i, "first": first, "last": last} for i, (first, last) in known.items()],
            }
        )
        return
    places = ", ".join(
        f"{index}:{first}-{last}" if last > first else f"{index}:{first}" for index, (first, last) in known.items()
    )
    line = f"{delivery.records} record{'s' * (delivery.records != 1)} to {delivery.topic}"
    if delivery.records > 1000:
        line += f" ({size(delivery.bytes)} in {seconds:.1f} s, {delivery.records / seconds:,.0f}/s)"
    print_line(f"{line}{f' at {places}' if places and len(known) <= 8 else ''}")
