"""What one setting is: its name, type, default, the values it takes, and what it means.

Topic settings (``log/topic_config.py``) and node settings (``settings.py``) are tables of these. Values travel as
strings, as in the Kafka protocol; ``Definition.parse`` turns one into a typed value or raises ``InvalidConfig``, and
``Definition.render`` gives back the text that a client is shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from headrace.errors import InvalidConfig

__all__ = ["ConfigType", "Definition", "Value", "at_least", "between", "list_of", "one_of"]

Value = bool | int | float | str | tuple[str, ...] | None
Check = Callable[[Value], str | None]
"""Says what is wrong with a parsed value, or None."""

_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?")


class ConfigType(IntEnum):
    """The type of a setting, numbered as DescribeConfigs numbers them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_BITS = {ConfigType.SHORT: 15, ConfigType.INT: 31, ConfigType.LONG: 63}


@dataclass(frozen=True, slots=True)
class Definition:
    """One setting. ``synonyms`` are the node-level settings that give its default, the strongest first, each with the
    factor that turns its value into this one's (hours into milliseconds, say)."""

    name: str
    type: ConfigType
    default: str | None
    documentation: str
    check: Check | None = None
    synonyms: tuple[tuple[str, int], ...] = ()
    internal: bool = False
    read_only: bool = False

    def parse(self, text: str | None) -> Value:
        """The typed value, or InvalidConfig with a sentence that names the setting and the value."""
        if text is None:
            if self.default is None:
                return None
            raise InvalidConfig(f"setting '{self.name}' has no value")
        value = _parse(self.name, self.type, text.strip())
        wrong = self.check(value) if self.check is not None else None
        if wrong is not None:
            raise InvalidConfig(f"setting '{self.name}' cannot be '{text}': {wrong}")
        return value

    def render(self, value: Value) -> str | None:
        """The value as text, in the form in which it is always shown."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)


def at_least(minimum: int) -> Check:
    """No smaller than this."""

    def check(value: Value) -> str | None:
        assert isinstance(value, int | float)
        return None if value >= minimum else f"it must be at least {minimum}"

    return check


def between(minimum: int, maximum: int, *also: int) -> Check:
    """In this range, both ends included, or one of the other values."""

    def check(value: Value) -> str | None:
        assert isinstance(value, int | float)
        if minimum <= value <= maximum or value in also:
            return None
        return f"it must be between {minimum} and {maximum}" + "".join(f", or {other}" for other in also)

    return check


def one_of(*names: str) -> Check:
    """One of these words."""

    def check(value: Value) -> str | None:
        return None if value in names else f"it must be one of {', '.join(names)}"

    return check


def list_of(*names: str) -> Check:
    """A list of these words; it may be empty."""

    def check(value: Value) -> str | None:
        assert isinstance(value, tuple)
        return None if set(value) <= set(names) else f"it may only list {', '.join(names)}"

    return check


def _parse(name: str, kind: ConfigType, text: str) -> Value:
    if kind is ConfigType.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise InvalidConfig(f"setting '{name}' is true or false, not '{text}'")
        return text.lower() == "true"
    if kind in _BITS:
        bound = 1 << _BITS[kind]
        if len(text) > 40 or _INTEGER.fullmatch(text) is None or not -bound <= int(text) < bound:
            raise InvalidConfig(f"setting '{name}' is a whole number of {_BITS[kind] + 1} bits, not '{text[:100]}'")
        return int(text)
    if kind is ConfigType.DOUBLE:
        if len(text) > 100 or _DECIMAL.fullmatch(text) is None:
            raise InvalidConfig(f"setting '{name}' is a number, not '{text[:100]}'")
        return float(text.rstrip("dDfF"))
    if kind is ConfigType.LIST:
        return tuple(dict.fromkeys(part.strip() for part in text.split(","))) if text else ()
    return text
