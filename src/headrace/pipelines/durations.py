"""Lengths of time as people write them: ``10 minutes``, ``1 hour 30 minutes``, ``250 ms``."""

from __future__ import annotations

import re

__all__ = ["milliseconds"]

_UNITS = {
    "ms": 1,
    "millisecond": 1,
    "s": 1000,
    "second": 1000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*,?")


def milliseconds(text: str) -> int:
    """The length in milliseconds; ValueError with the reason if it is none."""
    rest, total = text.strip().lower(), 0.0
    if not rest:
        raise ValueError("it is empty")
    while rest:
        found = _PART.match(rest)
        if found is None:
            raise ValueError(f"{rest!r} is not a number and a unit")
        name = found[2]
        unit = _UNITS.get(name) or _UNITS.get(name.removesuffix("s") if len(name) > 2 else name)
        if unit is None:
            raise ValueError(f"{name!r} is not a unit of time")
        total += float(found[1]) * unit
        rest = rest[found.end() :]
    return round(total)
