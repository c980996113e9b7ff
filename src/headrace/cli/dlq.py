"""``headrace dlq list|show|redrive``: dead letters, and how they get back to where they came from."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from headrace.cli.command import Command
from headrace.cli.failures import CommandFailed
from headrace.cli.names import topic_names
from headrace.cli.options import ClientSettings, Log, Output
from headrace.cli.output import OutputFormat, print_json, print_line, print_table
from headrace.cli.pairs import client_settings
from headrace.operations.cluster import DEFAULT_SERVER, Cluster
from headrace.operations.dead_letters import Redrive, dead_letter_topics, letter_json, letters_in, place_of

__all__ = ["app"]

app = typer.Typer(
    name="dlq",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Look at dead letters: records that queues gave up; and send them back.",
)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, autocompletion=topic_names)]


@app.command("list", cls=Command)
def list_topics(log: Log = DEFAULT_SERVER, client: ClientSettings = None, output: Output = OutputFormat.text) -> None:
    """List the dead-letter topics of all queues, and how many records lie there.

    WAITING counts records that could not be copied yet. A group gets a dead-letter topic by its setting
    headrace.dead.letter.topic.

    [bold]Examples[/bold]

    \b
    headrace dlq list
    headrace dlq list -o json
    """
    cluster = Cluster(log, client_settings(client))
    rows = dead_letter_topics(cluster)
    if output is OutputFormat.json:
        print_json(rows)
    else:
        cells = [[row["topic"], " ".join(row["groups"]), row["letters"], row["waiting"]] for row in rows]
        print_table(["topic", "groups", "letters", "waiting"], cells)


@app.command(cls=Command)
def show(
    topic: Topic,
    limit: Annotated[int, typer.Option("--max", "-n", min=1, help="At most so many records.")] = 20,
    log: Log = DEFAULT_SERVER,
    client: ClientSettings = None,
    output: Output = OutputFormat.text,
) -> None:
    """Show dead letters that were not redriven: where they came from, why, and what they are.

    [bold]Examples[/bold]

    \b
    headrace dlq show dlq.billing
    headrace dlq show dlq.billing --max 100 -o json
    """
    cluster = Cluster(log, client_settings(client))
    letters = letters_in(cluster, topic)[:limit]
    if output is OutputFormat.json:
        print_json([letter_json(topic, letter) for letter in letters])
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
    log: Log = DEFAULT_SERVER,
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
    wanted = {place_of(text) for text in letters or ()}
    cluster = Cluster(log, client_settings(client))
    if everything and not yes and sys.stdin.isatty() and output is OutputFormat.text:
        typer.confirm(f"Redrive all dead letters of {topic}?", abort=True)
    done, homeless = Redrive(cluster, topic).run(wanted)
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


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    text = data.decode(errors="replace")
    return text if len(text) <= 60 else f"{text[:57]}..."
