"""``headrace restore``: a data folder made of a backup."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.command import Command
from headrace.cli.failures import CommandFailed
from headrace.cli.options import Output
from headrace.cli.output import OutputFormat, print_json, print_line, progress, size

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode="rich")


@app.command(cls=Command)
def restore(
    backup: Annotated[
        Path, typer.Argument(metavar="BACKUP", show_default=False, help="What `headrace backup` has made.")
    ],
    data: Annotated[
        Path | None, typer.Option("--data", "-d", metavar="DIR", help="The data folder to make; new or empty.")
    ] = None,
    same_cluster: Annotated[
        bool, typer.Option("--same-cluster", help="Nothing was written after the backup: keep the cluster's id.")
    ] = False,
    only_check: Annotated[bool, typer.Option("--check", help="Only check the backup; nothing is written.")] = False,
    output: Output = OutputFormat.text,
) -> None:
    """Make a data folder of a backup. Every byte is checked, and no node starts on the folder until it is whole.

    The restored log goes on from an earlier moment, as a cluster of its own: apps that have read more than the backup
    holds do not go on from their checkpoints (headrace run --rebuild). With --same-cluster they do.

    [bold]Examples[/bold]

    \b
    headrace restore /backups/tuesday --check
    headrace restore /backups/tuesday --data /var/lib/headrace
    """
    from headrace.backup import restoring

    if data is None and not only_check:
        raise CommandFailed("where is it to go?", hint="say --data DIR, a new folder; or --check")
    if only_check or data is None:
        manifest = restoring.check(backup, progress)
    else:
        manifest = restoring.restore(backup, data, progress, same_cluster=same_cluster)
    if output is OutputFormat.json:
        told = {"backup": str(backup), "data": None if only_check else str(data), "taken_ms": manifest.taken_ms}
        print_json({**told, "cluster_id": manifest.cluster_id, "bytes": manifest.size})
        return
    taken = datetime.fromtimestamp(manifest.taken_ms / 1000, UTC).isoformat(timespec="seconds")
    if only_check:
        print_line(f"All good: {size(manifest.size)} in {len(manifest.files)} files, as saved at {taken}")
    else:
        print_line(
            f"{data} is the log as it was at {taken}: {size(manifest.size)}. Start it: headrace up --data {data}"
        )
