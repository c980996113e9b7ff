"""Records of consumer groups and share groups survive the way there and back, and nothing that is cut gets through."""

from __future__ import annotations

import contextlib
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.broker.groups.modern_records import (
    ClassicSide,
    CurrentAssignment,
    CurrentChange,
    EpochChange,
    GroupEpoch,
    GroupType,
    MemberState,
    ModernChange,
    RegexChange,
    ResolvedRegex,
    Subscription,
    SubscriptionChange,
    TargetChange,
    TargetEpoch,
    TargetEpochChange,
)
from headrace.broker.groups.records import decode, encode, group_of
from headrace.errors import CorruptMessage

i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=20)
uuids = st.integers(0, 2**128 - 1).map(lambda number: UUID(int=number))
partitions = st.dictionaries(uuids, st.frozensets(st.integers(0, 2**31 - 1), min_size=1, max_size=4), max_size=3)
assigned = st.dictionaries(
    uuids, st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 99), min_size=1, max_size=4), max_size=3
)
shared = partitions.map(lambda found: {topic: dict.fromkeys(numbers, 0) for topic, numbers in found.items()})
topics = st.lists(names, max_size=3).map(tuple)
maybe = st.none() | names
classic = st.builds(ClassicSide, i32, st.lists(st.tuples(names, st.binary()), max_size=2).map(tuple))
consumer, share = st.just(GroupType.CONSUMER), st.just(GroupType.SHARE)
both = st.sampled_from([GroupType.CONSUMER, GroupType.SHARE])
states = st.sampled_from(MemberState)


shared_subscriptions = st.tuples(names, names, maybe, topics).map(lambda fields: Subscription(*fields))


def or_none(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


changes: st.SearchStrategy[ModernChange] = st.one_of(
    st.builds(EpochChange, both, names, or_none(st.builds(GroupEpoch, i32, i64))),
    st.builds(TargetEpochChange, both, names, or_none(st.builds(TargetEpoch, i32, i64))),
    st.builds(TargetChange, both, names, names, or_none(partitions)),
    st.builds(
        SubscriptionChange,
        consumer,
        names,
        names,
        or_none(st.builds(Subscription, names, names, maybe, topics, maybe, maybe, i32, maybe, st.none() | classic)),
    ),
    st.builds(SubscriptionChange, share, names, names, or_none(shared_subscriptions)),
    st.builds(
        CurrentChange,
        consumer,
        names,
        names,
        or_none(st.builds(CurrentAssignment, i32, i32, states, assigned, assigned)),
    ),
    st.builds(
        CurrentChange,
        share,
        names,
        names,
        or_none(st.builds(CurrentAssignment, i32, i32, states, shared, st.just({}))),
    ),
    st.builds(RegexChange, consumer, names, names, or_none(st.builds(ResolvedRegex, topics, i64, i64))),
)


@settings(max_examples=30)
@given(changes)
def test_what_is_encoded_is_decoded_to_the_same(change: ModernChange) -> None:
    key, value = encode(change)
    assert decode(key, value) == change
    assert group_of(key) == change.group


@settings(max_examples=30)
@given(changes, st.data())
def test_a_record_cut_anywhere_is_corrupt_and_nothing_worse(change: ModernChange, data: st.DataObject) -> None:
    key, value = encode(change)
    if value is None:
        with pytest.raises(CorruptMessage):
            decode(key[: data.draw(st.integers(0, len(key) - 1))], value)
        return
    with pytest.raises(CorruptMessage):
        decode(key, value[: data.draw(st.integers(0, len(value) - 1))])


@settings(max_examples=30)
@given(st.integers(0, 22), st.binary(max_size=40), st.none() | st.binary(max_size=80))
def test_any_bytes_are_a_record_or_corrupt(kind: int, key: bytes, value: bytes | None) -> None:
    with contextlib.suppress(CorruptMessage):
        decode(kind.to_bytes(2, "big") + key, value)
