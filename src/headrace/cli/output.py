"""What commands print: aligned columns for people, JSON for programs, progress on stderr."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum

import typer

__all__ = ["OutputFormat", "age", "print_json", "print_line", "print_table", "progress", "size"]

SHOW_EVERY_S = 0.1


class OutputFormat(StrEnum):
    """Who reads the output."""

    text = "text"
    json = "json"


def print_line(text: str = "") -> None:
    """One line on stdout."""
    typer.echo(text)


def print_json(value: object) -> None:
    """One JSON document on one line."""
    typer.echo(json.dumps(value, ensure_ascii=False))


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns as wide as they must be, numbers to the right, never cut: good to read, to grep and to awk."""
    cells = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    numeric = [
        bool(rows) and all(row[i] is None or isinstance(row[i], int | float) for row in rows)
        for i in range(len(headers))
    ]
    widths = [max([len(header), *(len(row[i]) for row in cells)]) for i, header in enumerate(headers)]

    def line(values: Sequence[str]) -> str:
        padded = (v.rjust(w) if n else v.ljust(w) for v, w, n in zip(values, widths, numeric, strict=True))
        return "  ".join(padded).rstrip()

    typer.echo(typer.style(line([header.upper() for header in headers]), bold=True))
    for row in cells:
        typer.echo(line(row))


def size(count: int) -> str:
    """Bytes for people."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def age(seconds: float | None) -> str | None:
    """A duration for people, two units at most."""
    if seconds is None:
        return None
    if seconds < 60:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    for unit, length, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= length:
            return f"{whole // length}{unit} {whole % length // part}{smaller}"
    return None


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar of bytes on stderr while the body runs; gives the function to say how far it is. Silent if nobody looks."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        shown = 0.0

        def tell(done: int) -> None:
            nonlocal shown
            if (now := time.monotonic()) - shown > SHOW_EVERY_S:
                shown = now
                bar.update(task, completed=done)

        yield tell
