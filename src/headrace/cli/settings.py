"""``headrace settings show``: what holds, and who says so."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import typer

from headrace.cli.command import Command
from headrace.cli.defaults import (
    BROKER,
    CLIENT,
    defaults_of,
    is_setting,
    long_names,
    settable,
    table_of,
    variable_of,
    walk,
)
from headrace.cli.failures import CommandFailed
from headrace.cli.masking import masked
from headrace.cli.options import Output
from headrace.cli.output import OutputFormat, print_json, print_line, print_table
from headrace.cli.pairs import client_layers, name_values
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
    client = {} if file is None else file.pairs(CLIENT)
    return [*shown.values(), *(_in_tables(file) | _merged(CLIENT, client_layers(client, None), file)).values()]


def _in_tables(file: SettingsFile | None) -> dict[str, _Shown]:
    if file is None:
        return {}
    found = {".".join(keys): (keys, value) for keys, value in file.leaves() if len(keys) > 1}
    return {name: _line(name, value, file.place(keys)) for name, (keys, value) in found.items()}


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
    """What goes to the client and to the broker: the file's, and what the environment and flags replace of it."""
    lines: dict[str, _Shown] = {}
    for param in params:
        if param.param_type_name != "option" or not set(param.opts) & {"-X", "--set"}:
            continue
        below = table_of(tuple(context.command_path.split()[1:]), param, params)
        in_file = file.pairs(below) if file is not None and below else {}
        is_flag = context.get_parameter_source(param.name).name == "COMMANDLINE"
        given = context.params[param.name] if is_flag else []
        if "-X" in param.opts:
            table, layers = CLIENT, client_layers(in_file, given)
        else:
            table, layers = BROKER, [("file", in_file), ("flag", name_values(given, "--set"))]
        lines |= _merged(table, layers, file)
    return list(lines.values())


def _merged(table: str, layers: list[tuple[str, Mapping[str, str]]], file: SettingsFile | None) -> dict[str, _Shown]:
    """Each pair as the last of those who name it has it."""
    lines: dict[str, _Shown] = {}
    for source, layer in layers:
        for name, value in layer.items():
            where = file.place((table, name)) if source == "file" and file is not None else source
            lines[f"{table}.{name}"] = _line(f"{table}.{name}", value, where)
    return lines


def _line(name: str, value: Any, source: str) -> _Shown:
    if isinstance(value, list | tuple):
        return _Shown(name, ", ".join(masked(name, str(each)) for each in value) or None, source)
    value = getattr(value, "value", value)
    return _Shown(name, None if value is None else masked(name, str(value)), source)
