"""``headrace quota list|set|remove``: how many bytes a second clients may send and receive."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.command import Command
from headrace.cli.failures import CommandFailed
from headrace.cli.options import ClientSettings, Log, Output
from headrace.cli.output import OutputFormat, print_json, print_line, print_table, size
from headrace.cli.pairs import client_settings
from headrace.cli.start import bootstrap_of
from headrace.operations.cluster import DEFAULT_SERVER, Cluster

if TYPE_CHECKING:
    from headrace.move.connection import Connection

__all__ = ["app"]

app = typer.Typer(
    name="quota",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="List, set and remove how many bytes a second clients may send and receive.",
)

_DESCRIBE, _ALTER, _VERSION = 48, 49, 1
_NAMES = {"produce": "producer_byte_rate", "consume": "consumer_byte_rate"}
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMG]i?B?|B)?(?:/s)?")
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3}

Client = Annotated[
    str | None, typer.Argument(metavar="CLIENT", show_default=False, help="A client id (client.id of the client).")
]
Default = Annotated[bool, typer.Option("--default", help="For every client id that has none of its own.")]


@app.command("list", cls=Command)
def list_(log: Log = DEFAULT_SERVER, client: ClientSettings = None, output: Output = OutputFormat.text) -> None:
    """List the quotas of client ids.

    [bold]Examples[/bold]

    \b
    headrace quota list
    """
    with _connected(log, client) as connection:
        any_client = {"entity_type": "client-id", "match_type": 2, "match": None}
        told = connection.call(_DESCRIBE, _VERSION, {"components": [any_client], "strict": True})
    _ensure(told.error_code, told.error_message, "the quotas could not be listed")
    found = [(one.entity[0].entity_name, {value.key: value.value for value in one.values}) for one in told.entries]
    found.sort(key=lambda one: (one[0] is not None, one[0]))
    if output is OutputFormat.json:
        print_json(
            [{"client": name, **{short: rates.get(key) for short, key in _NAMES.items()}} for name, rates in found]
        )
        return
    rows = [(name or "(default)", *(_shown(rates.get(key)) for key in _NAMES.values())) for name, rates in found]
    print_table(("CLIENT", "PRODUCE", "CONSUME"), rows)


@app.command("set", cls=Command)
def set_(
    client_id: Client = None,
    default: Default = False,
    produce: Annotated[
        str | None, typer.Option(metavar="RATE", help="Bytes a second that it may send, like 500kB or 10MiB.")
    ] = None,
    consume: Annotated[str | None, typer.Option(metavar="RATE", help="Bytes a second that it may receive.")] = None,
    log: Log = DEFAULT_SERVER,
    client: ClientSettings = None,
) -> None:
    """Limit a client id, or all that have no limit of their own: each may so much for itself.

    [bold]Examples[/bold]

    \b
    headrace quota set nightly-export --consume 5MB
    headrace quota set --default --produce 10MiB --consume 10MiB

    Rates are measured over ten seconds. A client that is over is told to wait, and is not read meanwhile; what it has
    sent is taken.
    """
    rates = {name: _parsed(text) for name, text in zip(_NAMES, (produce, consume), strict=True) if text is not None}
    if not rates:
        raise CommandFailed("say what is limited: --produce RATE, --consume RATE, or both.")
    name = _named(client_id, default=default)
    _alter(log, client, name, rates)
    limits = ", ".join(f"{one} {_shown(rate)}" for one, rate in rates.items())
    print_line(f"{_called(name)} {limits}")


@app.command(cls=Command)
def remove(
    client_id: Client = None,
    default: Default = False,
    produce: Annotated[bool, typer.Option("--produce", help="Only the limit on sending.")] = False,
    consume: Annotated[bool, typer.Option("--consume", help="Only the limit on receiving.")] = False,
    log: Log = DEFAULT_SERVER,
    client: ClientSettings = None,
) -> None:
    """Remove the limits of a client id, or those that hold for all others.

    [bold]Examples[/bold]

    \b
    headrace quota remove nightly-export
    headrace quota remove --default --produce
    """
    asked = {"produce": produce, "consume": consume}
    gone = [name for name in _NAMES if asked[name] or not any(asked.values())]
    name = _named(client_id, default=default)
    _alter(log, client, name, dict.fromkeys(gone))
    print_line(f"{_called(name)} no limit on {' and '.join(gone)}")


def _alter(log: str, client: list[str] | None, name: str | None, rates: Mapping[str, float | None]) -> None:
    ops = [{"key": _NAMES[one], "value": rate or 0.0, "remove": rate is None} for one, rate in rates.items()]
    entity = [{"entity_type": "client-id", "entity_name": name}]
    request = {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}
    with _connected(log, client) as connection:
        [told] = connection.call(_ALTER, _VERSION, request).entries
    _ensure(told.error_code, told.error_message, f"the quota of {_called(name)[:-1]} was not changed")


@contextmanager
def _connected(log: str, client: list[str] | None) -> Iterator[Connection]:
    """The client library has no words for quotas: this is the protocol itself."""
    from headrace.move.connection import Brokers

    settings = client_settings(client)
    Cluster(log, settings)  # which says so if nobody answers
    brokers = Brokers(bootstrap_of(log), settings)
    try:
        yield brokers.any()
    finally:
        brokers.close()


def _ensure(code: int, told: str | None, doing: str) -> None:
    if code:
        raise CommandFailed(f"{doing}: {told or f'error {code}'}.")


def _named(client_id: str | None, *, default: bool) -> str | None:
    if (client_id is None) != default:
        raise CommandFailed("name a client id, or say --default; one of the two.")
    return client_id


def _called(name: str | None) -> str:
    return "all other clients:" if name is None else f"{name}:"


def _parsed(text: str) -> float:
    found = _RATE.fullmatch(text.strip())
    if found is None or not float(found[1]):
        raise CommandFailed(f"{text!r} is not a rate.", hint="write it like 1000000, 500kB or 10MiB: bytes a second")
    unit = (found[2] or "").removesuffix("B")
    base = 1024 if unit.endswith("i") else 1000
    return float(round(float(found[1]) * base ** _POWERS[unit.removesuffix("i").lower()]))


def _shown(rate: Any) -> str:
    return "-" if rate is None else f"{size(int(rate))}/s"
