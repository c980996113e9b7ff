"""``headrace dlq list|show|redrive``: dead letters, and how they get back to where they came from.

A redriven record is written to its old topic and partition with its own key, value and headers; in the same
transaction the dead-letter topic gets a note (a record without key and value, whose header ``__dlq.redriven`` lists the
offsets of its partition), so a record is redriven once, whoever asks how often. A second redrive at the same time
fences the first.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from headrace.cli.cluster import DEFAULT_SERVER, Cluster, failure
from headrace.cli.command import Command
from headrace.cli.failures import CommandFailed
from headrace.cli.formats import record_json
from headrace.cli.options import ClientSettings, Output, Server
from headrace.cli.output import OutputFormat, print_json, print_line, print_table
from headrace.cli.pairs import name_values
from headrace.cli.queue import group_settings
from headrace.cli.ranges import messages_in
from headrace.cli.share_states import shared_by

__all__ = ["app"]

app = typer.Typer(
    name="dlq",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Look at dead letters: records that queues gave up; and send them back.",
)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]

_PREFIX = "__dlq.errors."
_REDRIVEN = "__dlq.redriven"
_SETTING = "headrace.dead.letter.topic"
_CHUNK = 500
_PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter: where it lies, where it came from and why, and what it is."""

    partition: int
    offset: int
    topic: str
    came_from: int
    came_at: int
    group: str
    reason: str
    attempts: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@app.command("list", cls=Command)
def list_topics(
    server: Server = DEFAULT_SERVER, client: ClientSettings = None, output: Output = OutputFormat.text
) -> None:
    """List the dead-letter topics of all queues, and how many records lie there.

    WAITING counts records that could not be copied yet. A group gets a dead-letter topic by its setting
    headrace.dead.letter.topic.

    [bold]Examples[/bold]

    \b
    headrace dlq list
    headrace dlq list -o json
    """
    cluster = Cluster(server, name_values(client, "-X"))
    waiting: dict[str, int] = {}
    for one in shared_by(cluster):
        waiting[one.group] = waiting.get(one.group, 0) + one.waiting_dead
    topics: dict[str, list[str]] = {}
    for group in waiting:
        topic = group_settings(cluster, group).get(_SETTING)
        if topic:
            topics.setdefault(topic, []).append(group)
    existing = set(cluster.topic_names())
    rows = [
        {
            "topic": topic,
            "groups": groups,
            "letters": len(_letters(cluster, topic)) if topic in existing else 0,
            "waiting": sum(waiting[group] for group in groups),
        }
        for topic, groups in sorted(topics.items())
    ]
    if output is OutputFormat.json:
        print_json(rows)
    else:
        cells = [[row["topic"], " ".join(topics[str(row["topic"])]), row["letters"], row["waiting"]] for row in rows]
        print_table(["topic", "groups", "letters", "waiting"], cells)


@app.command(cls=Command)
def show(
    topic: Topic,
    limit: Annotated[int, typer.Option("--max", "-n", min=1, help="At most so many records.")] = 20,
    server: Server = DEFAULT_SERVER,
    client: ClientSettings = None,
    output: Output = OutputFormat.text,
) -> None:
    """Show dead letters that were not redriven: where they came from, why, and what they are.

    [bold]Examples[/bold]

    \b
    headrace dlq show dlq.billing
    headrace dlq show dlq.billing --max 100 -o json
    """
    cluster = Cluster(server, name_values(client, "-X"))
    letters = _letters(cluster, topic)[:limit]
    if output is OutputFormat.json:
        print_json([_as_json(topic, letter) for letter in letters])
        return
    rows = [
        [
            f"{one.partition}:{one.offset}",
            f"{one.topic}[{one.came_from}]@{one.came_at}",
            one.group,
            one.attempts,
            one.reason,
            _text(one.key),
            _text(one.value),
        ]
        for one in letters
    ]
    print_table(["letter", "from", "group", "attempts", "reason", "key", "value"], rows)


@app.command(cls=Command)
def redrive(
    topic: Topic,
    letters: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PARTITION:OFFSET...]", show_default=False, help="Which; as `dlq show` names them."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that were not redriven yet.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    server: Server = DEFAULT_SERVER,
    client: ClientSettings = None,
    output: Output = OutputFormat.text,
) -> None:
    """Send dead letters back to the topic and partition that they came from, each once.

    Key, value and headers are the original ones. They stay in the dead-letter topic, marked as redriven.

    [bold]Examples[/bold]

    \b
    headrace dlq redrive dlq.billing 0:17 0:18
    headrace dlq redrive dlq.billing --all
    """
    if bool(letters) == everything:
        raise CommandFailed("say which dead letters to redrive.", hint="PARTITION:OFFSET as `dlq show` says, or --all")
    wanted = {_place(text) for text in letters or ()}
    cluster = Cluster(server, name_values(client, "-X"))
    if everything and not yes and sys.stdin.isatty() and output is OutputFormat.text:
        typer.confirm(f"Redrive all dead letters of {topic}?", abort=True)
    done, homeless = _Redrive(cluster, topic).run(wanted)
    if output is OutputFormat.json:
        print_json({"topic": topic, "redriven": done, "without_topic": homeless})
    else:
        print_line(f"Redrove {done} record{'s' * (done != 1)} of {topic}")
        if homeless:
            print_line(f"{homeless} stay, because the topic or partition that they came from is gone")
    if wanted and done + homeless < len(wanted):
        missing = len(wanted) - done - homeless
        raise CommandFailed(
            f"{missing} of these {'is' if missing == 1 else 'are'} no dead letter of {topic}, or redriven already."
        )


class _Redrive:
    """One redrive: fence others, look what is left, send it in transactions."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._cluster.partitions(topic)
        self._producer = cluster.producer(transactional_id=f"headrace-redrive-{topic}", linger_ms=5)

    def run(self, wanted: set[tuple[int, int]]) -> tuple[int, int]:
        """How many were sent, and how many have nowhere to go."""
        from confluent_kafka import KafkaException

        try:
            self._producer.init_transactions(_PATIENCE_S)
            found = _letters(self._cluster, self._topic)
            chosen = [one for one in found if not wanted or (one.partition, one.offset) in wanted]
            homes = self._homes({one.topic for one in chosen})
            going = [one for one in chosen if (one.topic, one.came_from) in homes]
            for start in range(0, len(going), _CHUNK):
                self._send(going[start : start + _CHUNK])
        except KafkaException as error:
            raise failure(error.args[0], f"{self._topic} was not redriven to its end", self._cluster.server) from None
        return len(going), len(chosen) - len(going)

    def _homes(self, topics: set[str]) -> set[tuple[str, int]]:
        existing = set(self._cluster.topic_names())
        return {place for topic in sorted(topics & existing) for place in self._cluster.partitions(topic)}

    def _send(self, letters: Sequence[Letter]) -> None:
        producer = self._producer
        producer.begin_transaction()
        for one in letters:
            producer.produce(
                one.topic, one.value, one.key, partition=one.came_from, headers=list(one.headers), on_delivery=_ignore
            )
        for partition in sorted({one.partition for one in letters}):
            offsets = ",".join(str(one.offset) for one in letters if one.partition == partition)
            producer.produce(
                self._topic,
                None,
                None,
                partition=partition,
                headers=[(_REDRIVEN, offsets.encode())],
                on_delivery=_ignore,
            )
        producer.commit_transaction(_PATIENCE_S)


def _ignore(error: object, message: object) -> None:
    """The transaction says whether all arrived."""


def _letters(cluster: Cluster, topic: str) -> list[Letter]:
    """The dead letters that were not redriven."""
    bounds = cluster.offsets(cluster.partitions(topic))
    found: dict[tuple[int, int], Letter] = {}
    gone: set[tuple[int, int]] = set()
    for message in messages_in(cluster, {place: (bound.start, bound.end) for place, bound in bounds.items()}):
        headers = message.headers() or []
        for name, value in headers:
            if name == _REDRIVEN:
                gone.update((message.partition(), int(offset)) for offset in (value or b"").split(b",") if offset)
        letter = _letter(message, headers)
        if letter is not None:
            found[letter.partition, letter.offset] = letter
    return [letter for place, letter in sorted(found.items()) if place not in gone]


def _letter(message: Any, headers: Sequence[tuple[str, bytes | None]]) -> Letter | None:
    """A record as a dead letter; None if its headers do not say that it is one."""
    said = {name.removeprefix(_PREFIX): (value or b"").decode() for name, value in _own(headers)}
    try:
        return Letter(
            message.partition(),
            message.offset(),
            said["topic"],
            int(said["partition"]),
            int(said["offset"]),
            said["group"],
            said.get("message", ""),
            int(said.get("delivery.count", "0")),
            int(said.get("timestamp", message.timestamp()[1])),
            message.key(),
            message.value(),
            tuple((name, value) for name, value in headers if not name.startswith(_PREFIX)),
        )
    except (KeyError, ValueError):
        return None


def _own(headers: Iterable[tuple[str, bytes | None]]) -> Iterable[tuple[str, bytes | None]]:
    return ((name, value) for name, value in headers if name.startswith(_PREFIX))


def _as_json(topic: str, letter: Letter) -> dict[str, Any]:
    origin = {
        "topic": letter.topic,
        "partition": letter.came_from,
        "offset": letter.came_at,
        "timestamp_ms": letter.timestamp_ms,
    }
    record = record_json(
        topic,
        letter.partition,
        letter.offset,
        letter.timestamp_ms,
        letter.key,
        letter.value,
        list(letter.headers),
    )
    del record["timestamp_ms"]
    why = {"group": letter.group, "reason": letter.reason, "attempts": letter.attempts}
    return {"letter": f"{letter.partition}:{letter.offset}", "from": origin, **why, **record}


def _place(text: str) -> tuple[int, int]:
    partition, colon, offset = text.partition(":")
    if not (colon and partition.isdecimal() and offset.isdecimal()):
        raise CommandFailed(f"{text!r} is not PARTITION:OFFSET.", hint="`headrace dlq show` names dead letters so")
    return int(partition), int(offset)


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    text = data.decode(errors="replace")
    return text if len(text) <= 60 else f"{text[:57]}..."
