"""``headrace backup``: a data folder saved at one moment, while its node runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.command import Command
from headrace.cli.options import Data, Output
from headrace.cli.output import OutputFormat, print_json, print_line, progress, size
from headrace.cli.start import DEFAULT_DATA

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode="rich")


@app.command(cls=Command)
def backup(
    target: Annotated[Path, typer.Argument(metavar="TARGET", show_default=False, help="A new folder.")],
    data: Data = Path(DEFAULT_DATA),
    since: Annotated[
        Path | None,
        typer.Option("--since", metavar="BACKUP", help="Share files with this older backup that have not changed."),
    ] = None,
    output: Output = OutputFormat.text,
) -> None:
    """Save all topics, groups, queues, transactions and settings as they are at one moment, and check the copy.

    The node may run: it is asked for the moment, and nobody waits. Views are not saved: they are rebuilt from their
    topics. A backup is whole once it has a manifest, which is written last.

    [bold]Examples[/bold]

    \b
    headrace backup /backups/monday
    headrace backup /backups/tuesday --since /backups/monday --data /var/lib/headrace
    headrace restore /backups/tuesday --data /var/lib/headrace-restored
    """
    from headrace.backup.saving import save

    began = time.monotonic()
    saved = save(data, target, progress, since=since)
    manifest, records = saved.manifest, sum(part.records for part in saved.report.partitions)
    seconds = time.monotonic() - began
    if output is OutputFormat.json:
        told = {"backup": str(target), "taken_ms": manifest.taken_ms, "cluster_id": manifest.cluster_id}
        counts = {"partitions": len(manifest.partitions), "records": records, "bytes": manifest.size}
        print_json({**told, **counts, "linked_bytes": saved.linked, "seconds": round(seconds, 3)})
        return
    shared = f", {size(saved.linked)} of it shared with {since}" if since else ""
    print_line(
        f"Saved {records} records of {len(manifest.partitions)} partitions in {target}: {size(manifest.size)}{shared}, "
        f"checked, in {seconds:.1f} s"
    )
