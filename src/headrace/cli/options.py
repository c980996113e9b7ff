"""Options that many commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.output import OutputFormat

__all__ = ["ClientSettings", "Output", "Server"]

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
