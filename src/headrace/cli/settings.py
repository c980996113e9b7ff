"""``headrace settings show``: what holds, and who says so."""

from __future__ import annotations

import os
from typing import Annotated, Any, NamedTuple

import typer

from headrace.cli.command import Command
from headrace.cli.defaults import (
    BROKER,
    CLIENT,
    defaults_of,
    is_setting,
    long_names,
    pairs_of,
    settable,
    variable_of,
    walk,
)
from headrace.cli.failures import CommandFailed
from headrace.cli.masking import masked
from headrace.cli.options import Output
from headrace.cli.output import OutputFormat, print_json, print_line, print_table
from headrace.cli.pairs import name_values
from headrace.cli.settings_file import SettingsFile

__all__ = ["app"]

app = typer.Typer(
    name="settings",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="What is set, and where.",
)


class _Shown(NamedTuple):
    setting: str
    value: str | None
    source: str


@app.callback()
def settings() -> None:
    """What is set, and where."""


@app.command(cls=Command, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def show(
    ctx: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[COMMAND] [FLAGS]", show_default=False, help="Say, up, or topic create."),
    ] = None,
    output: Output = OutputFormat.text,
) -> None:
    """Show every setting, its value, and whether a flag, the environment, the settings file or nobody says so.

    Without a command: what is shared by several of them. Flags after a command are taken as if it were run with them.
    Secrets are not shown.

    [bold]Examples[/bold]

    \b
    headrace settings show
    headrace settings show up
    headrace settings show up --listen 0.0.0.0:9092
    """
    root = ctx.find_root()
    file: SettingsFile | None = root.obj
    words = [*(command or []), *ctx.args]
    shown = _of_command(root, file, words) if words else _shared(root, file)
    if output is OutputFormat.json:
        print_json({"file": None if file is None else str(file.path), "settings": [one._asdict() for one in shown]})
        return
    print_line(f"Settings file: {file.path}" if file else "Settings file: none (headrace.toml, --settings FILE)")
    print_line()
    print_table(_Shown._fields, shown)


def _of_command(root: Any, file: SettingsFile | None, words: list[str]) -> list[_Shown]:
    found: Any = root.command
    path: list[str] = []
    while words and hasattr(found, "get_command") and not words[0].startswith("-"):
        inner = found.get_command(root, words[0])
        if inner is None:
            raise CommandFailed(f"there is no command {' '.join([*path, words[0]])!r}.", hint="see headrace --help")
        found = inner
        path.append(words.pop(0))
    parent = root
    for name in path[:-1]:
        group: Any = parent.command
        parent = type(root)(group.get_command(parent, name), info_name=name, parent=parent)
    context = found.make_context(path[-1], words, parent=parent, resilient_parsing=True)
    return [
        *(_shown(context, param, file, tuple(path)) for param in settable(found.params) if "--set" not in param.opts),
        *(_pairs(context, file, found.params)),
    ]


def _shared(root: Any, file: SettingsFile | None) -> list[_Shown]:
    """Each setting once, as the first command has it that knows it."""
    shown: dict[str, _Shown] = {}
    for path, params in walk(root.command):
        for param in params if path else ():
            name = long_names(param)[0]
            if is_setting(param) and name not in shown:
                shown[name] = _without_flags(param, file)
    in_tables = [] if file is None else [(keys, value) for keys, value in file.leaves() if len(keys) > 1]
    return [*shown.values(), *(_line(".".join(keys), value, file.place(keys)) for keys, value in in_tables if file)]


def _without_flags(param: Any, file: SettingsFile | None) -> _Shown:
    name, default = long_names(param)[0], param.default() if callable(param.default) else param.default
    variable = variable_of(param)
    if variable is not None:
        return _line(name, os.environ[variable], f"environment {variable}")
    if file is not None and (found := defaults_of(file, (), [param])):
        value, keys = found[param.name]
        return _line(name, value, file.place(keys))
    return _line(name, default, "default")


def _shown(context: Any, param: Any, file: SettingsFile | None, path: tuple[str, ...]) -> _Shown:
    name, value = long_names(param)[0], context.params.get(param.name)
    source = context.get_parameter_source(param.name)
    match source.name if source is not None else "DEFAULT":
        case "COMMANDLINE":
            where = "flag"
        case "ENVIRONMENT":
            where = f"environment {variable_of(param)}"
        case "DEFAULT_MAP" if file is not None:
            where = file.place(defaults_of(file, path, [param])[param.name][1])
        case _:
            where = "default"
    return _line(name, value, where)


def _pairs(context: Any, file: SettingsFile | None, params: list[Any]) -> list[_Shown]:
    """What goes to the client and to the broker: the file's, and what flags replace of it."""
    lines: dict[str, _Shown] = {}
    for param in params:
        names = set(param.opts) & {"-X", "--set"}
        if not names or param.param_type_name != "option":
            continue
        table = CLIENT if "-X" in names else BROKER
        path = tuple(context.command_path.split()[1:])
        if file is not None:
            for name in name_values(pairs_of(file, path, param, params), table):
                lines[name] = _line(f"{table}.{name}", file.pairs(table)[name], file.place((table, name)))
        if context.get_parameter_source(param.name).name == "COMMANDLINE":
            for name, value in name_values(context.params[param.name], "").items():
                lines[name] = _line(f"{table}.{name}", value, "flag")
    return list(lines.values())


def _line(name: str, value: Any, source: str) -> _Shown:
    if isinstance(value, list | tuple):
        return _Shown(name, ", ".join(masked(name, str(each)) for each in value) or None, source)
    value = getattr(value, "value", value)
    return _Shown(name, None if value is None else masked(name, str(value)), source)
