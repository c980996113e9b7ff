"""The reference of the command line, from the commands' own help: what ``--help`` says, on one page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Any

from typer.main import get_command

from headrace.cli.app import app

__all__ = ["commands_page"]

HEAD = """# Commands

Made from the commands' own help. Every command takes `--help`; those that print take `-o json`; all exit with 1 when
they fail, and say why and what to do. `headrace --install-completion` teaches them to your shell.
"""
_TEXT_BREAK = "\b"
"""Before lines that are to stay as they are, as in click."""


def commands_page() -> str:
    """The page in Markdown."""
    root: Any = get_command(app)
    context = root.make_context("headrace", [], resilient_parsing=True)
    parts = [HEAD]
    for name in root.list_commands(context):
        command = root.get_command(context, name)
        parts += _described(f"headrace {name}", command, 2)
        for below, inner in getattr(command, "commands", {}).items():
            parts += _described(f"headrace {name} {below}", inner, 3)
    return "\n\n".join(parts) + "\n"


def _described(name: str, command: Any, level: int) -> Iterator[str]:
    yield f"{'#' * level} {name}"
    first, *rest = _paragraphs(command.help or "")
    yield first
    if not hasattr(command, "commands"):
        shown = [one for one in command.params if not getattr(one, "hidden", False) and one.name != "help"]
        yield _fence(" ".join([name, *_usage(shown)]))
        yield from rest
        if shown:
            yield "\n".join(["| | |", "|---|---|", *(_row(one) for one in shown)])


def _paragraphs(text: str) -> Iterator[str]:
    """The help in Markdown: examples as they are, the rest as text."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        if paragraph.lstrip("\n ").startswith(_TEXT_BREAK):
            lines = paragraph.replace(_TEXT_BREAK, "").strip("\n").splitlines()
            yield _fence("\n".join(line.strip() for line in lines))
        else:
            bold = re.sub(r"\[/?bold\]", "**", paragraph)
            yield " ".join(_plain(line.strip()) for line in bold.splitlines())


def _fence(text: str) -> str:
    return f"```text\n{text}\n```"


def _usage(parameters: list[Any]) -> Iterator[str]:
    for one in parameters:
        if one.param_type_name == "argument":
            name = (one.metavar or one.name.upper()).strip("[]")
            yield name if one.required else f"[{name}]"
    if any(one.param_type_name == "option" for one in parameters):
        yield "[OPTIONS]"


def _row(one: Any) -> str:
    if one.param_type_name == "argument":
        names = f"`{one.metavar or one.name.upper()}`"
    else:
        *short, last = sorted([*one.opts, *one.secondary_opts], key=len)
        value = "" if one.is_flag else f" {one.metavar or _kind(one)}"
        names = ", ".join([*(f"`{option}`" for option in short), f"`{last}{value}`"])
    said = [_plain(one.help or "")]
    if isinstance(one.default, Enum):
        said.append(f"One of {', '.join(f'`{choice.value}`' for choice in type(one.default))}.")
    default = one.default.value if isinstance(one.default, Enum) else one.default
    if one.show_default and not one.required and default not in (None, False, (), []):
        said.append(f"Default: {one.show_default if isinstance(one.show_default, str) else f'`{default}`'}.")
    if one.envvar:
        said.append(f"Or `{one.envvar}`.")
    return f"| {names} | {' '.join(filter(None, said))} |"


def _kind(one: Any) -> str:
    if isinstance(one.default, Enum):
        return "WHICH"
    kind = getattr(getattr(one, "type_descriptor", None), "annotation", type(one.default))
    return "NUMBER" if kind in (int, float) else "VALUE"


def _plain(text: str) -> str:
    """Text as Markdown shows it: no tag, no emphasis, no cell that is not meant."""
    return re.sub(r"(`[^`]*`|\*\*Examples\*\*)|([<>*_|\[\]])", lambda found: found[1] or f"\\{found[2]}", text)
