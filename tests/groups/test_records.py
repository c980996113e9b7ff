"""The records of ``__consumer_offsets`` are Kafka's, byte for byte, and survive the way there and back."""

from __future__ import annotations

import contextlib
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.groups.records import (
    Change,
    CommittedOffset,
    GroupChange,
    GroupMetadata,
    MemberMetadata,
    OffsetChange,
    decode,
    encode,
)
from headrace.errors import CorruptMessage, InvalidRequest

i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=40)
uuids = st.integers(0, 2**128 - 1).map(lambda number: UUID(int=number))
committed = st.one_of(
    st.builds(CommittedOffset, i64, i32, names, i64, st.just(-1), uuids),
    st.builds(CommittedOffset, i64, i32, names, i64, st.integers(0, 2**62), uuids).map(CommittedOffset.as_stored),
)
members = st.builds(
    MemberMetadata, names, st.none() | names, names, names, st.integers(0, 2**31 - 1), i32, st.binary(), st.binary()
)
metadata = st.builds(
    GroupMetadata, names, i32, st.none() | names, st.none() | names, i64, st.lists(members, max_size=4).map(tuple)
)
changes = st.one_of(
    st.builds(OffsetChange, names, names, i32, st.none() | committed),
    st.builds(GroupChange, names, st.none() | metadata),
)


@given(changes)
def test_what_is_encoded_is_decoded_to_the_same(change: Change) -> None:
    assert decode(*encode(change)) == change


@given(changes, st.data())
def test_a_record_cut_anywhere_is_corrupt_and_nothing_worse(change: Change, data: st.DataObject) -> None:
    key, value = encode(change)
    if value is None:
        with pytest.raises(CorruptMessage):
            decode(key[: data.draw(st.integers(0, len(key) - 1))], value)
        return
    with pytest.raises(CorruptMessage):
        decode(key, value[: data.draw(st.integers(0, len(value) - 1))])


@given(st.binary(max_size=80), st.none() | st.binary(max_size=200))
def test_any_bytes_are_a_change_or_another_kind_or_corrupt(key: bytes, value: bytes | None) -> None:
    with contextlib.suppress(CorruptMessage):
        decode(key, value)


def test_an_offset_has_kafkas_bytes() -> None:
    topic_id = UUID(int=0x0102030405060708090A0B0C0D0E0F10)
    change = OffsetChange("grp", "top", 7, CommittedOffset(258, 3, "hi", 5, topic_id=topic_id))
    key, value = encode(change)
    assert key == b"\x00\x01" + b"\x00\x03grp" + b"\x00\x03top" + b"\x00\x00\x00\x07"
    assert value == (
        b"\x00\x04"
        + (258).to_bytes(8, "big")
        + b"\x00\x00\x00\x03"
        + b"\x03hi"
        + (5).to_bytes(8, "big")
        + b"\x01\x00\x10"
        + topic_id.bytes
    )


def test_an_offset_with_its_own_retention_has_kafkas_older_bytes() -> None:
    _, value = encode(OffsetChange("g", "t", 0, CommittedOffset(1, -1, "m", 2, expire_ms=3)))
    numbers = [number.to_bytes(8, "big") for number in (1, 2, 3)]
    assert value == b"\x00\x01" + numbers[0] + b"\x00\x01m" + numbers[1] + numbers[2]


def test_a_group_has_kafkas_bytes() -> None:
    member = MemberMetadata("m-1", None, "c", "/h", 60_000, 10_000, b"sub", b"ass")
    change = GroupChange("grp", GroupMetadata("consumer", 4, "range", "m-1", 9, (member,)))
    key, value = encode(change)
    assert key == b"\x00\x02\x00\x03grp"
    assert value == (
        b"\x00\x03\x00\x08consumer\x00\x00\x00\x04\x00\x05range\x00\x03m-1"
        + (9).to_bytes(8, "big")
        + b"\x00\x00\x00\x01\x00\x03m-1\xff\xff\x00\x01c\x00\x02/h"
        + (60_000).to_bytes(4, "big")
        + (10_000).to_bytes(4, "big")
        + b"\x00\x00\x00\x03sub\x00\x00\x00\x03ass"
    )


def test_older_versions_of_values_are_read() -> None:
    key, _ = encode(OffsetChange("g", "t", 0, None))
    number = (6).to_bytes(8, "big")
    for version, expected in (
        (b"\x00\x00" + number + b"\x00\x00" + number, CommittedOffset(6, -1, "", 6)),
        (b"\x00\x02" + number + b"\x00\x00" + number, CommittedOffset(6, -1, "", 6)),
        (b"\x00\x03" + number + b"\x00\x00\x00\x02\x00\x00" + number, CommittedOffset(6, 2, "", 6)),
    ):
        assert decode(key, version) == OffsetChange("g", "t", 0, expected)


def test_records_of_streams_groups_are_left_alone() -> None:
    assert decode(b"\x00\x11\x00\x01g", b"\x00\x00") is None


def test_a_name_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        encode(GroupChange("é" * 20_000, None))
