"""Places in a log as people type them."""

from __future__ import annotations

import pytest

from headrace.errors import InvalidRequest
from headrace.operations.positions import Position, Relative, parse_position

NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("beginning", Position(Relative.BEGINNING)),
        ("Earliest", Position(Relative.BEGINNING)),
        ("end", Position(Relative.END)),
        ("0", Position(Relative.OFFSET, 0)),
        ("1200", Position(Relative.OFFSET, 1200)),
        ("-10", Position(Relative.LAST, 10)),
        ("@now", Position(Relative.TIME, NOW)),
        ("@-15m", Position(Relative.TIME, NOW - 15 * 60_000)),
        ("@-250ms", Position(Relative.TIME, NOW - 250)),
        ("@-2w", Position(Relative.TIME, NOW - 14 * 86_400_000)),
        ("@1769860800", Position(Relative.TIME, 1_769_860_800_000)),
        ("@1769860800123", Position(Relative.TIME, 1_769_860_800_123)),
        ("@2026-01-31T12:00:00Z", Position(Relative.TIME, 1_769_860_800_000)),
        ("@2026-01-31T12:00", Position(Relative.TIME, 1_769_860_800_000)),
        ("@2026-01-31T13:00+01:00", Position(Relative.TIME, 1_769_860_800_000)),
        ("@2026-01-31", Position(Relative.TIME, 1_769_817_600_000)),
    ],
)
def test_a_position_is_a_word_an_offset_a_count_or_a_time(text: str, position: Position) -> None:
    assert parse_position(text, NOW) == position


@pytest.mark.parametrize(
    "text", ["", "soon", "1.5", "@", "@yesterday", "@-5y", "@0001-01-01", "0x10", "@2026-13-01", "1" * 30]
)
def test_anything_else_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(InvalidRequest) as failed:
        parse_position(text, NOW)
    assert failed.value.hint
