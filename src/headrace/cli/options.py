"""Options that many commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.failures import CommandFailed
from headrace.cli.output import OutputFormat

__all__ = ["DEFAULT_SERVER", "ClientSettings", "Output", "Server", "name_values"]

DEFAULT_SERVER = "127.0.0.1:9092"

Server = Annotated[
    str,
    typer.Option(
        "--server", "-s", envvar="HEADRACE_SERVER", metavar="HOST:PORT", help="The node, or any Apache Kafka broker."
    ),
]
ClientSettings = Annotated[
    list[str] | None,
    typer.Option(
        "-X",
        metavar="NAME=VALUE",
        help="A setting of the Kafka client (librdkafka), say security.protocol=ssl. Repeatable.",
    ),
]
Output = Annotated[
    OutputFormat, typer.Option("--output", "-o", envvar="HEADRACE_OUTPUT", help="Text for people or JSON for programs.")
]


def name_values(pairs: list[str] | None, option: str) -> dict[str, str]:
    """``["a=1", "b=2"]`` as a dict."""
    found: dict[str, str] = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise CommandFailed(
                f"{option} {pair!r} is not NAME=VALUE.", hint=f"say it like {option} retention.ms=3600000"
            )
        found[name.strip()] = value
    return found
