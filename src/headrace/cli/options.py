"""Options that many commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.output import OutputFormat
from headrace.cli.start import bootstrap_of
from headrace.logs import VARIABLE, LogForm

__all__ = [
    "Checkpoints",
    "ClientSettings",
    "Data",
    "Http",
    "Log",
    "Logs",
    "MaybeLog",
    "Output",
    "SparkSettings",
    "Views",
]


def _say_as(form: LogForm) -> LogForm:
    """From now on, also in processes that this one starts."""
    if form is not LogForm.text or VARIABLE in os.environ:
        os.environ[VARIABLE] = form
    return form


def _bootstrap(address: str | None) -> str | None:
    """``kafka://host:9092,host2:9092`` as clients want it."""
    return bootstrap_of(address) if address else None


_NAMES, _VARIABLES = ("--log", "--server", "-s"), ["HEADRACE_LOG", "HEADRACE_SERVER"]
_ADDRESS = "kafka://HOST:PORT[,...]"

Log = Annotated[
    str,
    typer.Option(
        *_NAMES,
        envvar=_VARIABLES,
        metavar=_ADDRESS,
        callback=_bootstrap,
        help="The log: a node, or an Apache Kafka cluster. Plain HOST:PORT will do.",
    ),
]
MaybeLog = Annotated[
    str | None,
    typer.Option(
        *_NAMES,
        envvar=_VARIABLES,
        metavar=_ADDRESS,
        callback=_bootstrap,
        help="The log: a node, or an Apache Kafka cluster. Without it 127.0.0.1:9092; a node is started if none is.",
    ),
]
ClientSettings = Annotated[
    list[str] | None,
    typer.Option(
        "-X",
        metavar="NAME=VALUE",
        help="A setting of the Kafka client (librdkafka), say security.protocol=ssl; @FILE reads them, one a line;"
        " so does the variable HEADRACE_CLIENT. Repeatable.",
    ),
]
Http = Annotated[
    str,
    typer.Option(
        "--http",
        metavar="HOST:PORT",
        envvar="HEADRACE_HTTP",
        help="Where views and the page are served; 'none' serves none.",
    ),
]
Data = Annotated[Path, typer.Option("--data", "-d", metavar="DIR", envvar="HEADRACE_DATA", help="The data folder.")]
Checkpoints = Annotated[
    str | None,
    typer.Option(
        "--checkpoints",
        envvar="HEADRACE_CHECKPOINTS",
        metavar="URL",
        help="Where queries keep their state: a folder, s3a://bucket/folder, hdfs://host/folder. [DIR/checkpoints]",
        show_default=False,
    ),
]
SparkSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--spark-conf",
        metavar="NAME=VALUE|@FILE",
        help="A setting of Spark, say spark.executor.memory=4g; @FILE reads them, one a line, and no command line "
        "shows them. Repeatable.",
    ),
]
Output = Annotated[
    OutputFormat, typer.Option("--output", "-o", envvar="HEADRACE_OUTPUT", help="Text for people or JSON for programs.")
]
Views = Annotated[
    str | None,
    typer.Option(
        "--views",
        envvar="HEADRACE_VIEWS",
        metavar="URL",
        help="Keep views in PostgreSQL: postgresql://user@host/database. Without it: SQLite files in the data folder.",
    ),
]
Logs = Annotated[
    LogForm,
    typer.Option(
        "--logs", envvar=VARIABLE, callback=_say_as, help="What it says as it runs: text, or a JSON object per line."
    ),
]
