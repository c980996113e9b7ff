"""What a settings file means for the options of commands: nothing here knows an option by its name.

A key is an option's long name. Above all tables it stands for every command whose option has an environment variable;
in the table of a command (``[up]``, ``[topic.create]``) for any option of that command. Flags win over the environment,
that over the file, and that over defaults.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from headrace.cli.settings_file import Keys, SettingsFile
from headrace.settings import DEFINITIONS

__all__ = [
    "BROKER",
    "CLIENT",
    "defaults_of",
    "ensure_known",
    "environment_names",
    "is_setting",
    "long_names",
    "settable",
    "table_of",
    "variable_of",
    "walk",
]

CLIENT, BROKER = "client", "broker"
_NUMBERS = {"integer": int, "integer range": int, "float": float, "float range": float}
_WORDS = {"true": True, "false": False}


def long_names(param: Any) -> list[str]:
    """The names that an option has in a settings file, the present one first."""
    return [name[2:] for name in param.opts if name.startswith("--") and name != "--help"]


def settable(params: Sequence[Any]) -> list[Any]:
    """The options among a command's parameters that a file may set."""
    return [param for param in params if param.param_type_name == "option" and long_names(param)]


def is_setting(param: Any) -> bool:
    """Whether an option may stand above all tables: those that have an environment variable."""
    return bool(param.envvar)


def defaults_of(file: SettingsFile, path: Keys, params: Sequence[Any]) -> dict[str, tuple[Any, Keys]]:
    """For a command's parameters, by name: the value that the file gives, and the key that says so."""
    found: dict[str, tuple[Any, Keys]] = {}
    own = file.table(*path)
    for param in settable(params):
        for name in long_names(param):
            keys: Keys | None = None
            if name in own and not isinstance(own[name], Mapping):
                keys = (*path, name)
            elif is_setting(param) and name in file.values:
                keys = (name,)
            if keys is not None:
                value = own[name] if keys != (name,) or not path else file.values[name]
                found[param.name] = (_checked(file, keys, param, value), keys)
                break
    return found


def table_of(path: Keys, param: Any, params: Sequence[Any]) -> str:
    """The table whose NAME=VALUE pairs lie beneath those of an option: [client] or [broker]; "" for other options.

    The client's go along with the address of the log: where there is no such option, -X is for something else.
    """
    to_the_log = any({"HEADRACE_LOG", "HEADRACE_SERVER"} & set(environment_names(other)) for other in params)
    if "-X" in param.opts and to_the_log:
        return CLIENT
    return BROKER if path == ("up",) and "--set" in param.opts else ""


def ensure_known(file: SettingsFile, root: Any) -> None:
    """Raise if a key is no option, or its value does not fit."""
    commands = dict(walk(root))
    shared = {
        name: param
        for params in commands.values()
        for param in params
        if is_setting(param)
        for name in long_names(param)
    }
    for key, value in file.values.items():
        if key in (CLIENT, BROKER):
            _ensure_pairs(file, key, value)
        elif isinstance(value, Mapping):
            _ensure_table(file, (key,), value, commands)
        elif key not in shared:
            raise _unknown(file, (key,), shared, commands)
    for path, params in commands.items():
        defaults_of(file, path, params)


def walk(command: Any, path: Keys = ()) -> Iterator[tuple[Keys, list[Any]]]:
    """Every command with its settable options."""
    names = command.list_commands(None) if hasattr(command, "list_commands") else []
    yield path, settable(command.params)
    for name in names:
        yield from walk(command.get_command(None, name), (*path, name))


def variable_of(param: Any) -> str | None:
    """The variable of the environment that sets an option now, if one does."""
    return next((name for name in environment_names(param) if os.environ.get(name)), None)


def environment_names(param: Any) -> list[str]:
    """The variables of the environment that an option may be set by."""
    names = param.envvar or []
    return [names] if isinstance(names, str) else list(names)


def _ensure_pairs(file: SettingsFile, table: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise file.wrong((table,), "it must be a table.", hint=f"write [{table}] on a line of its own")
    if table == BROKER:
        for name in file.pairs(table):
            if name not in DEFINITIONS:
                raise file.wrong((table, name), "the broker has no such setting.", hint=_nearest(name, DEFINITIONS))


def _ensure_table(file: SettingsFile, path: Keys, table: Mapping[str, Any], commands: Mapping[Keys, list[Any]]) -> None:
    if path not in commands:
        siblings = [known[-1] for known in commands if known[:-1] == path[:-1] and known]
        more = [CLIENT, BROKER] if len(path) == 1 else []
        raise file.wrong(path, "there is no such command.", hint=_nearest(path[-1], [*siblings, *more]))
    names = {name: param for param in commands[path] for name in long_names(param)}
    for key, value in table.items():
        if isinstance(value, Mapping):
            _ensure_table(file, (*path, key), value, commands)
        elif key not in names:
            raise file.wrong(
                (*path, key), f"`headrace {' '.join(path)}` has no such option.", hint=_nearest(key, names)
            )


def _unknown(file: SettingsFile, keys: Keys, shared: Iterable[str], commands: Mapping[Keys, list[Any]]) -> Exception:
    owners = [path for path, params in commands.items() if any(keys[0] in long_names(param) for param in params)]
    if owners:
        return file.wrong(
            keys, "this option belongs to a command.", hint=f"put it below a line [{'.'.join(owners[0])}]"
        )
    return file.wrong(keys, "there is no such setting.", hint=_nearest(keys[0], shared))


def _nearest(name: str, known: Iterable[str]) -> str:
    names = sorted(set(known))
    close = difflib.get_close_matches(name, names, 1)
    return f"did you mean {close[0]}?" if close else f"there are: {', '.join(names[:40])}"


def _checked(file: SettingsFile, keys: Keys, param: Any, value: Any) -> Any:
    if getattr(param, "is_flag", False):
        value = _WORDS.get(value, value) if isinstance(value, str) else value
        if not isinstance(value, bool):
            raise file.wrong(keys, f"it must be true or false, not {value!r}.")
        return value
    if param.multiple:
        value = [value] if isinstance(value, str) else value
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise file.wrong(keys, f"it must be a list of texts, not {value!r}.", hint='write it like ["a", "b"]')
        return value
    kind, choices = _kind(param)
    if kind in (int, float):
        return _number(file, keys, kind, value)
    if not isinstance(value, str):
        raise file.wrong(keys, f"it must be text, not {value!r}.", hint=f'write it like "{value}"')
    if choices and value not in choices:
        raise file.wrong(keys, f"it cannot be {value!r}.", hint=f"it can be: {', '.join(choices)}")
    return value


def _kind(param: Any) -> tuple[Any, list[str]]:
    """The Python type of an option, and what it can be if it is one of few words; libraries keep it in two ways."""
    declared = getattr(param, "type_descriptor", None)
    if declared is None:
        return _NUMBERS.get(param.type.name, str), [str(choice) for choice in getattr(param.type, "choices", ())]
    annotation = declared.annotation
    is_enum = isinstance(annotation, type) and issubclass(annotation, Enum)
    return annotation, [str(member.value) for member in annotation] if is_enum else []


def _number(file: SettingsFile, keys: Keys, kind: Any, value: Any) -> Any:
    if not isinstance(value, bool) and isinstance(value, int | float | str):
        try:
            return kind(value)
        except ValueError:
            pass
    raise file.wrong(keys, f"it must be a number, not {value!r}.")
