"""``headrace log verify|dump``: data folders, read from outside; they may be in use, and nothing is changed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.command import Command
from headrace.cli.failures import CommandFailed
from headrace.cli.options import Output
from headrace.cli.output import OutputFormat, print_json, print_line, progress, size

if TYPE_CHECKING:
    from headrace.log.findings import DataReport, Finding

__all__ = ["app"]

app = typer.Typer(
    name="log",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Check and print the files of a data folder.",
)

Place = Annotated[
    Path,
    typer.Argument(metavar="DIR", show_default=False, help="A data folder, a partition's folder or one .log file."),
]


@app.command(cls=Command)
def verify(place: Place, output: Output = OutputFormat.text) -> None:
    """Check every checksum, record and index of a data folder. Exits with 1 if anything is damaged.

    It changes nothing, and the folder may be in use. A note is what the next start repairs without loss, or what does
    no harm; damage is lost or wrong bytes. Each is told with its file, byte and offset.

    [bold]Examples[/bold]

    \b
    headrace log verify headrace-data
    headrace log verify headrace-data/topics/orders/0 -o json
    """
    from headrace.broker.state_check import check_state
    from headrace.log import verify as checking

    _ensure_exists(place)
    with progress("Verifying", sum(_size(path) for path in _log_files(place))) as tell:
        report = checking.verify(place, tell, check_state)
    if not report.partitions and not report.findings:
        raise _no_log(place)
    if output is OutputFormat.json:
        print_json(_verdict(report))
    else:
        for finding in report.findings:
            print_line(_sentence(finding))
        print_line(_summary(report))
    if report.findings.damages:
        raise typer.Exit(1)


@app.command(cls=Command)
def dump(
    place: Place,
    records: Annotated[bool, typer.Option("--records", "-r", help="Also every record of every batch.")] = False,
    start: Annotated[
        int, typer.Option("--from", metavar="OFFSET", min=0, help="Begin with the batch of this offset.")
    ] = 0,
    limit: Annotated[int | None, typer.Option("--max", "-n", metavar="N", min=0, help="Stop after N batches.")] = None,
    output: Output = OutputFormat.text,
) -> None:
    """Print the batches in a folder's files of batches, as kafka-dump-log does. Reads Apache Kafka's folders too.

    [bold]Examples[/bold]

    \b
    headrace log dump headrace-data/topics/orders/0
    headrace log dump headrace-data/topics/orders/0/00000000000000000000.log --records
    headrace log dump headrace-data -o json | jq 'select(.type == "damage")'
    """
    from headrace.cli.batch_lines import batch_json, batch_line, damage_json, damage_line, record_lines
    from headrace.log.log_file import DamagedBytes, read_log

    _ensure_exists(place)
    left = limit
    found_any = False
    for path in _log_files(place):
        found_any = True
        if output is OutputFormat.text:
            print_line(f"Dumping {path}\nLog starting offset: {int(path.stem)}")
        for found in read_log(path):
            if left == 0:
                return
            if isinstance(found, DamagedBytes):
                _write(damage_json(path, found) if output is OutputFormat.json else damage_line(found))
                continue
            if found.header.last_offset < start:
                continue
            _write(batch_json(path, found) if output is OutputFormat.json else batch_line(found))
            if records:
                for line in record_lines(found, as_json=output is OutputFormat.json):
                    _write(line)
            left = None if left is None else left - 1
    if not found_any:
        raise _no_log(place)
    sys.stdout.flush()


def _write(line: str | dict[str, Any]) -> None:
    sys.stdout.write((line if isinstance(line, str) else json.dumps(line, ensure_ascii=False)) + "\n")


def _ensure_exists(place: Path) -> None:
    if not place.exists():
        raise CommandFailed(f"there is no {place}.", hint="`headrace up` prints where its data folder is")


def _no_log(place: Path) -> CommandFailed:
    return CommandFailed(
        f"no log was found in {place}.", hint="name a data folder, a partition's folder or a .log file"
    )


def _log_files(place: Path) -> Iterator[Path]:
    """Every file of batches in or under a place, partition by partition, in the order of offsets."""
    if place.is_file():
        yield place
        return
    for folder, folders, names in os.walk(place):
        folders.sort(key=lambda name: (not name.isdigit(), int(name) if name.isdigit() else 0, name))
        yield from (Path(folder) / name for name in sorted(names) if name.endswith(".log") and name[:-4].isdigit())


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _sentence(finding: Finding) -> str:
    where = f" at byte {finding.position}" if finding.position is not None else ""
    offset = f", offset {finding.offset}" if finding.offset is not None else ""
    word = typer.style(finding.severity.value, fg="red" if finding.severity.value == "damage" else "yellow", bold=True)
    return f"{word}: {finding.path}{where}{offset}: {finding.reason}"


def _totals(report: DataReport) -> dict[str, int]:
    parts = report.partitions
    return {
        "partitions": len(parts),
        "segments": sum(part.segments for part in parts),
        "batches": sum(part.batches for part in parts),
        "records": sum(part.records for part in parts),
        "bytes": sum(part.bytes for part in parts),
    }


def _summary(report: DataReport) -> str:
    totals = _totals(report)
    damages = report.findings.damages
    verdict = typer.style("All good", fg="green") if not damages else typer.style(f"{damages} damaged", fg="red")
    counted = ", ".join(f"{totals[name]} {name}" for name in ("records", "batches", "segments", "partitions"))
    return f"{verdict}: {counted}, {size(totals['bytes'])}"


def _verdict(report: DataReport) -> dict[str, Any]:
    findings = [
        {
            "severity": finding.severity.value,
            "file": str(finding.path),
            "position": finding.position,
            "offset": finding.offset,
            "reason": finding.reason,
        }
        for finding in report.findings
    ]
    return {"ok": not report.findings.damages, **_totals(report), "findings": findings}
