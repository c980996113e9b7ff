"""Places in a log as people type them: ``beginning``, ``end``, ``1200``, ``-10``, ``@2026-01-31T12:00``, ``@-15m``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from headrace.errors import InvalidRequest

__all__ = ["Position", "Relative", "parse_position", "parse_time"]

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SPAN = re.compile(r"-(\d{1,18})(ms|s|m|h|d|w)")


class Relative(Enum):
    """What a position's number counts from."""

    BEGINNING = "beginning"
    END = "end"
    OFFSET = "offset"
    LAST = "last"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Position:
    """A place in every partition of a topic; ``value`` is an offset, a number of records or milliseconds since 1970."""

    relative: Relative
    value: int = 0


def parse_position(text: str, now_ms: int) -> Position:
    """Read one of the forms above; a number below 0 means so many records before the end."""
    word = text.strip().lower()
    if word in ("beginning", "start", "earliest"):
        return Position(Relative.BEGINNING)
    if word in ("end", "latest"):
        return Position(Relative.END)
    if word.startswith("@"):
        return Position(Relative.TIME, parse_time(text.strip()[1:], now_ms))
    if re.fullmatch(r"-?\d{1,18}", word):
        return Position(Relative.OFFSET, int(word)) if word[0] != "-" else Position(Relative.LAST, -int(word))
    raise InvalidRequest(
        f"{text!r} is not a place in a log.",
        hint="use beginning, end, an offset (1200), -N for the last N records, or a time (@2026-01-31T12:00, @-15m)",
    )


def parse_time(text: str, now_ms: int) -> int:
    """Milliseconds since 1970 from ISO 8601 (UTC unless it says otherwise), a Unix time, or a span back from now."""
    if text.lower() == "now":
        return now_ms
    if span := _SPAN.fullmatch(text):
        return max(0, now_ms - int(span[1]) * _UNITS_MS[span[2]])
    if re.fullmatch(r"\d{1,18}", text):
        return int(text) * 1000 if int(text) < 100_000_000_000 else int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(
            f"{text!r} is not a time.",
            hint="use @2026-01-31, @2026-01-31T12:00:00+01:00 (else UTC), @1769860800 or @-15m (ms, s, m, h, d, w)",
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if moment.timestamp() < 0:
        raise InvalidRequest(f"{text!r} is before 1970, where times of records begin.", hint="use beginning")
    return int(moment.timestamp() * 1000)
