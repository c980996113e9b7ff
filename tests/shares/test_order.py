"""Key-ordered mode and back-off: settings that a plain client need not know."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import _kernel
from tests.shares.member import ACCEPT, REJECT, RELEASE, Bench, until


def keyed(bench: Bench, *keys: bytes | None, codec: int = 0) -> None:
    bench.write([(1, key, b"v", ()) for key in keys], codec=codec)


def test_a_keys_next_record_waits_until_the_one_before_is_settled(bench: Bench) -> None:
    bench.set(headrace_key_ordered="true")
    keyed(bench, b"a", b"b", b"a", b"a", None, None)
    keyed(bench, b"b", b"c", codec=4)
    one, two = bench.member("one"), bench.member("two")
    assert one.opened() == [(0, 1, 1), (4, 5, 1), (7, 7, 1)]
    assert two.got() == []
    assert two.got() == []
    assert one.settle((0, 0, RELEASE), (1, 1, ACCEPT)) == 0
    assert two.got() == [(0, 0, 2), (6, 6, 1)], "the released one first, not the one behind it"
    assert two.settle((0, 0, REJECT)) == 0
    assert one.got() == [(2, 2, 1)]
    assert one.got((2, 2, ACCEPT)) == [(3, 3, 1)]


def test_order_holds_when_records_come_later_and_after_much_was_settled(bench: Bench) -> None:
    bench.set(headrace_key_ordered="true", share_partition_max_record_locks="4000")
    one = bench.member("one")
    for round_number in range(6):
        keyed(bench, *[b"%d" % n for n in range(1000)], b"0")
        first = round_number * 1001
        assert one.got(wait=5000, records=2000, max_bytes=1 << 24) == [(first, first + 999, 1)]
        assert one.got((first, first + 999, ACCEPT), records=2000) == [(first + 1000, first + 1000, 1)]
        one.settle((first + 1000, first + 1000, ACCEPT))


def test_a_released_record_is_offered_after_its_back_off(bench: Bench) -> None:
    bench.set(headrace_backoff_ms="300")
    bench.fill(b"x")
    one = bench.member("one")
    one.opened()
    assert one.got((0, 0, RELEASE)) == []
    assert one.got(wait=10_000) == [(0, 0, 2)], "the wait ends by itself"


def test_a_record_in_its_back_off_holds_back_its_key(bench: Bench) -> None:
    bench.set(headrace_backoff_ms="400", headrace_key_ordered="true")
    keyed(bench, b"a", b"a", b"b")
    one = bench.member("one")
    assert one.opened() == [(0, 0, 1), (2, 2, 1)]
    assert one.got((0, 0, RELEASE)) == []
    assert until(lambda: one.got(wait=5000)) == [(0, 0, 2)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([0, 1, 2, 3]), max_size=30),
    st.lists(st.sampled_from(["settled", "held", "free"]), min_size=30, max_size=30),
    st.integers(0, 12),
)
def test_the_kernel_picks_the_first_of_each_key(keys: list[int], states: list[str], limit: int) -> None:
    names = [None if key == 0 else b"%d" % key for key in keys]
    hashes = bytearray()
    if names:
        batch = _kernel.build_batch([(0, name, b"", ()) for name in names], base_offset=50, codec=random.choice((0, 4)))
        hashes = _kernel.key_hashes(batch, 50, 50 + len(names))
    unsettled = [(50 + at, 50 + at, states[at] == "free") for at in range(len(names)) if states[at] != "settled"]
    expected: list[int] = []
    seen: set[bytes] = set()
    for at, name in enumerate(names):
        if states[at] == "settled" or len(expected) == limit:
            continue
        if states[at] == "free" and (name is None or name not in seen):
            expected.append(50 + at)
        if name is not None:
            seen.add(name)
    runs = _kernel.first_of_keys(hashes, 50, unsettled, limit)
    assert [offset for first, last in runs for offset in range(first, last + 1)] == expected
