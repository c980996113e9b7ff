"""The settings file: ``headrace.toml`` in the working directory, or what ``--settings`` or HEADRACE_SETTINGS names.

::

    log = "kafka.example:9092"          # an option that has an environment variable: for every command that has it
    views = "postgresql://headrace:${DB_PASSWORD}@db.example/views"

    [up]                                # any option of one command
    listen = "0.0.0.0:9092"

    [topic.create]
    partitions = 4

    [client]                            # the Kafka client's settings, as -X gives them
    "security.protocol" = "sasl_ssl"

    [broker]                            # the broker's settings, as `headrace up --set` gives them
    "num.partitions" = 4

``${NAME}`` is a variable of the environment, ``${NAME:-text}`` one that may be missing, ``$${`` is ``${`` itself.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.cli.start import DEFAULT_SETTINGS
from headrace.errors import InvalidConfig

__all__ = ["Keys", "SettingsFile", "find_settings", "read_settings"]

_VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}|\$\{")
_TABLE = re.compile(r"\s*\[([^\[\]]+)\]\s*(#.*)?$")
_KEY = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+))*)\s*=""")
_WORD = re.compile(r""""([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+)""")

Keys = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """What a file says: tables in tables, variables put in. ``lines`` is where each key stands."""

    path: Path
    values: Mapping[str, Any]
    lines: Mapping[str, int] = field(default_factory=dict)

    def place(self, keys: Keys) -> str:
        """File and line of a key."""
        line = self.lines.get(".".join(keys))
        return f"{self.path}:{line}" if line else str(self.path)

    def wrong(self, keys: Keys, why: str, hint: str | None = None) -> InvalidConfig:
        """The error for a key."""
        return InvalidConfig(f"{self.place(keys)}: {'.'.join(keys)}: {why}", hint=hint)

    def table(self, *keys: str) -> Mapping[str, Any]:
        """A table, empty if there is none."""
        found: Any = self.values
        for key in keys:
            found = found.get(key, {}) if isinstance(found, Mapping) else {}
        return found if isinstance(found, Mapping) else {}

    def leaves(self) -> Iterator[tuple[Keys, Any]]:
        """Every key of every table, with its value."""
        return _leaves(self.values, ())

    def pairs(self, table: str) -> dict[str, str]:
        """A table of settings that have names of their own, as text; dotted keys may be written without quotes."""
        return {".".join(keys): _text(value) for keys, value in _leaves(self.table(table), ())}


def find_settings(given: Path | None) -> Path | None:
    """Which file holds; None if there is none. One that was named must be there."""
    if given is not None:
        if not given.is_file():
            raise InvalidConfig(f"there is no settings file {given}.", hint="see --settings and HEADRACE_SETTINGS")
        return given
    return Path(DEFAULT_SETTINGS) if Path(DEFAULT_SETTINGS).is_file() else None


def read_settings(path: Path, environment: Mapping[str, str] = os.environ) -> SettingsFile:
    """Read a file; raises with file, line and key if something is wrong with it."""
    try:
        text = path.read_text()
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{path} is no TOML: {error}.") from None
    except OSError as error:
        raise InvalidConfig(f"{path} cannot be read: {error.strerror}.") from None
    raw = SettingsFile(path, values, dict(_lines(text)))
    return SettingsFile(path, _filled(raw, values, (), environment), raw.lines)


def _filled(file: SettingsFile, value: Any, keys: Keys, environment: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _filled(file, inner, (*keys, key), environment) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(file, inner, keys, environment) for inner in value]
    if not isinstance(value, str):
        return value

    def variable(match: re.Match[str]) -> str:
        name, has_default, default = match.groups()
        if match[0] == "$${":
            return "${"
        if name is None:
            raise file.wrong(keys, "'${' begins no ${NAME}.", hint="write $${ for '${' itself")
        found = environment.get(name)
        if found is not None and not (has_default and not found):
            return found
        if has_default:
            return str(default)
        raise file.wrong(
            keys, f"the environment has no {name}.", hint=f"set it, or write ${{{name}:-what to use without it}}"
        )

    return _VARIABLE.sub(variable, value)


def _lines(text: str) -> Iterator[tuple[str, int]]:
    table: Keys = ()
    for number, line in enumerate(text.splitlines(), 1):
        if (found := _TABLE.match(line)) is not None:
            table = _words(found[1])
            yield ".".join(table), number
        elif (found := _KEY.match(line)) is not None:
            yield ".".join((*table, *_words(found[1]))), number


def _words(text: str) -> Keys:
    return tuple(next(word for word in found if word) for found in _WORD.findall(text) if any(found))


def _leaves(table: Mapping[str, Any], keys: Keys) -> Iterator[tuple[Keys, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*keys, key))
        else:
            yield (*keys, key), value


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
