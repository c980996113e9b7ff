"""``headrace pack``: the environment that runs now, for Spark's executors on other machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.command import Command
from headrace.cli.output import print_line

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode="rich")


@app.command(cls=Command)
def pack(
    to: Annotated[
        Path, typer.Option("--to", "-o", metavar="FILE", help="The archive, with a name that ends with .tar.gz.")
    ] = Path("env.tar.gz"),
    package: Annotated[
        list[str] | None,
        typer.Option(
            "--package",
            "-p",
            metavar="NAME",
            help="Only Headrace and this package, with what they need, not all that is installed. Repeatable.",
        ),
    ] = None,
    compression: Annotated[
        int, typer.Option(metavar="0-9", min=0, max=9, help="More is smaller and takes longer.")
    ] = 1,
) -> None:
    """Pack this Python with its packages, so that Spark's executors have them: nothing is installed on their machines.

    [bold]Examples[/bold]

    \b
    headrace pack -o env.tar.gz
    headrace pack -o env.tar.gz -p scikit-learn
    headrace run shop.py --spark spark://spark.example:7077 --spark-conf spark.archives=env.tar.gz#environment ...

    What follows the # must be `environment`: executors then run the Python in it. They need the same kind of Linux as
    this machine, and no Python of their own. Spark's jars are not in it. Pack again when packages have changed.
    """
    from headrace.pipelines.environment import pack as write
    from headrace.pipelines.environment import with_dependencies

    names = None if package is None else sorted(with_dependencies(["headrace[pipelines]", *package]))
    count = write(to, names, compression)
    size = to.stat().st_size / (1 << 20)
    print_line(f"{to}: {count} packages, {size:,.0f} MB. Use it with --spark-conf spark.archives={to}#environment")
