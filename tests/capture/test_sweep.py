"""What is gone after a snapshot that was repeated."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from headrace.capture.sweep import LiveKeys


def value(op: str, lsn: int, snapshot: str = "true") -> bytes:
    return json.dumps({"op": op, "source": {"lsn": lsn, "snapshot": snapshot}}, separators=(",", ":")).encode()


@given(
    st.lists(st.sets(st.integers(0, 9), max_size=10), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=10),
)
def test_live_keys_that_the_last_attempt_did_not_see_are_gone(
    attempts: list[set[int]], later: list[tuple[int, bool]]
) -> None:
    live, offset = LiveKeys(), 0
    table: set[int] = set()
    for number, seen in enumerate(attempts):
        table |= seen
        for key in sorted(seen):
            live.read(offset, b"%d" % key, value("r", 100 + number))
            offset += 1
    gone = table - attempts[-1]
    for key, is_deleted in later:
        live.read(offset, b"%d" % key, None if is_deleted else value("u", 999, "false"))
        offset += 1
        gone.discard(key)
    found = live.gone(nothing_read=not attempts[-1])
    assert sorted(found) == sorted(b"%d" % key for key in gone)


def test_rows_of_an_incremental_snapshot_are_no_attempt() -> None:
    live = LiveKeys()
    live.read(0, b"1", value("r", 5))
    live.read(1, b"2", value("r", 9, "incremental"))
    assert live.gone() == []
