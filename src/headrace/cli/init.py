"""``headrace init``: a small app with its test, to begin with."""

from __future__ import annotations

import keyword
import re
import sys
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.command import Command
from headrace.cli.failures import CommandFailed
from headrace.cli.options import Output
from headrace.cli.output import OutputFormat, print_json, print_line

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode="rich")

_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
_TAKEN = {*sys.stdlib_module_names, "headrace", "pyspark", "pytest", "app", "order"}
_FILES = {"{name}.py": "app.py.txt", "test_{name}.py": "test_app.py.txt"}


@app.command(cls=Command)
def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the app, and of its folder.", show_default=False)],
    output: Output = OutputFormat.text,
) -> None:
    """Write a small app with its test into a new folder.

    [bold]Examples[/bold]

    \b
    headrace init shop
    cd shop && pytest && headrace run shop.py
    """
    taken = (
        keyword.iskeyword(name) or name in sys.stdlib_module_names or name in ("headrace", "app", "pyspark", "order")
    )
    if not _NAME.fullmatch(name) or taken:
        raise CommandFailed(
            f"{name!r} cannot be the name of an app.", hint="use a word of small letters, digits and underscores"
        )
    folder = Path(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CommandFailed(f"{folder} exists already.", hint="choose another name; nothing was changed")
    folder.mkdir(exist_ok=True)
    written = [_write(folder, target.format(name=name), source, name) for target, source in _FILES.items()]
    if output is OutputFormat.json:
        print_json({"app": name, "files": [str(path) for path in written]})
        return
    for path in written:
        print_line(f"Wrote {path}")
    order = '{"order_id":"1","region":"EU","amount":9.5,"ordered_at":"2026-01-01T12:00:00Z"}'
    print_line("Next:")
    print_line(f"  cd {name}")
    print_line("  pytest                           the test that came with it")
    print_line(f"  headrace run {name}.py           in one terminal; it starts a node if none is up, and says where")
    print_line(f"  echo '{order}' | headrace produce orders")
    print_line("  headrace view get revenue        in another")


def _write(folder: Path, target: str, source: str, name: str) -> Path:
    text = (resources.files("headrace.cli") / "templates" / source).read_text()
    path = folder / target
    path.write_text(text.replace("{name}", name).replace("{{", "{").replace("}}", "}"))
    return path
