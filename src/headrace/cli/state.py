"""``headrace state show``."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.command import Command
from headrace.cli.failures import CommandFailed
from headrace.cli.options import Checkpoints, Output, SparkSettings
from headrace.cli.output import OutputFormat, print_json, print_line, print_table
from headrace.cli.pairs import spark_settings
from headrace.cli.start import DEFAULT_DATA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipelines.folders import Folder
    from headrace.pipelines.state.inspect import Shown

__all__ = ["app", "checkpoint_of"]

app = typer.Typer(
    name="state",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Look at what the operators of a query keep.",
)


@app.callback()
def state() -> None:
    """Look at what the operators of a query keep."""


@app.command(cls=Command)
def show(
    name: Annotated[str, typer.Argument(metavar="APP.QUERY", show_default=False)],
    key: Annotated[
        str | None, typer.Argument(metavar="[KEY]", show_default=False, help="Only the rows of this key.")
    ] = None,
    data: Annotated[
        Path,
        typer.Option("--data", "-d", metavar="DIR", envvar="HEADRACE_DATA", help="Where `headrace run` keeps it."),
    ] = Path(DEFAULT_DATA),
    checkpoints: Checkpoints = None,
    spark_conf: SparkSettings = None,
    limit: Annotated[int, typer.Option(metavar="N", help="Show so many rows of each table at most.")] = 20,
    output: Output = OutputFormat.text,
) -> None:
    """Show the state of a query's operators as of its last batch; the query may be running. Starts Spark to read it.

    [bold]Examples[/bold]

    \b
    headrace state show shop.sessions
    headrace state show shop.sessions 4711
    headrace state show shop.sessions 4711,EU      where the key has two columns
    """
    from headrace.pipelines.spark import start_spark
    from headrace.pipelines.state.inspect import shown

    in_spark, hidden = spark_settings(spark_conf)
    with tempfile.TemporaryDirectory() as folder:

        def spark() -> SparkSession:
            return start_spark("state", Path(folder), "local[1]", in_spark, hidden=hidden)

        checkpoint = checkpoint_of(checkpoints or str(data / "checkpoints"), name, spark)
        tables = shown(spark(), checkpoint.where, limit, key)
    if not tables:
        raise CommandFailed(f"{name} keeps no state of its own.", hint="operators such as hr.session keep state")
    for one in tables:
        _print(one, output)


def _print(found: Shown, output: OutputFormat) -> None:
    one = found.table
    if output is OutputFormat.json:
        about = {"operator": one.operator, "table": one.table, "by": one.by, "rows": found.count}
        print_json({**about, "shown": found.rows})
        return
    number = "?" if one.operator is None else one.operator
    print_line(f"operator {number}, table {one.table}, by {', '.join(one.by or one.key)}: {found.count} rows")
    print_table(one.rows.columns, [[_cell(row[name]) for name in one.rows.columns] for row in found.rows])
    print_line()


def _cell(value: Any) -> Any:
    return value if value is None or isinstance(value, int | float | str) else json.dumps(value)


def checkpoint_of(place: str, name: str, spark: Callable[[], SparkSession]) -> Folder:
    """The checkpoint folder of a query's newest build, below a folder or URL."""
    from headrace.pipelines.folders import open_folder

    root, app = open_folder(spark, place), name.partition(".")[0]
    found = [
        root.below(f"{cluster}/{app}/{one}")
        for cluster in root.names()
        for one in root.names(f"{cluster}/{app}")
        if one == name or one.startswith(f"{name}.g")
    ]
    if not found:
        raise CommandFailed(
            f"there is no checkpoint of {name!r} below {place}.",
            hint="say --data or --checkpoints as to `headrace run`; `headrace query list` shows the queries",
        )
    return max(found, key=lambda folder: folder.changed_ms())
