"""A consumer group by itself: no two members read one partition, and all of them get where they are to be."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.broker.groups.codes import Code
from headrace.broker.groups.modern_group import ModernSettings, phase_of
from headrace.broker.groups.modern_messages import HeartbeatRequest, ModernPhase
from headrace.broker.groups.modern_records import GroupType, MemberState, partitions_of
from tests.groups.modern_lab import Lab, Reader, Topics

NAMES = ("a", "b", "ab")
SUBSCRIPTIONS = st.one_of(
    st.lists(st.sampled_from(NAMES), unique=True).map(lambda names: (tuple(names), "")),
    st.sampled_from(["a.*", "b", "x", "."]).map(lambda regex: ((), regex)),
)
READERS = st.integers(0, 4)
STEPS = st.one_of(
    st.tuples(st.just("beat"), READERS),
    st.tuples(st.just("beat"), READERS),
    st.tuples(st.just("lost"), READERS),
    st.tuples(st.just("leave"), READERS),
    st.tuples(st.just("subscribe"), READERS, SUBSCRIPTIONS),
    st.tuples(st.just("topic"), st.sampled_from(NAMES), st.integers(0, 5)),
)


def wanted(lab: Lab, reader: Reader) -> set[Any]:
    names = set(reader.topics)
    if reader.regex:
        names.update(lab.state.regexes[reader.regex].topics)
    return lab.topics.places(names)


def check_alone(readers: list[Reader]) -> None:
    """No partition is read by two."""
    counts = Counter(place for reader in readers for place in reader.places)
    assert not counts or max(counts.values()) == 1, counts


@settings(max_examples=50)
@given(st.lists(STEPS, max_size=60))
def test_no_two_members_read_one_partition_and_in_the_end_all_are_read(steps: list[tuple[Any, ...]]) -> None:
    lab = Lab(Topics(a=3, b=2))
    readers = [Reader(lab, f"m{number}", ("a", "b")) for number in range(5)]
    for name, *arguments in steps:
        if name == "topic":
            lab.topics.set(*arguments)
        else:
            reader = readers[arguments[0]]
            if name == "subscribe":
                reader.topics, reader.regex = arguments[1]
            elif name == "leave":
                reader.leave()
            else:
                reader.beat(lost=name == "lost")
        check_alone(readers)
        assert lab.replayed() == lab.state
        assert lab.state.epoch.epoch >= lab.state.target_epoch.epoch
    for _ in range(6):
        for reader in readers:
            reader.beat()
            check_alone(readers)
    assert phase_of(lab.state) is ModernPhase.STABLE
    everything = set().union(*(wanted(lab, reader) for reader in readers))
    assert set().union(*(reader.places for reader in readers)) == everything
    for reader in readers:
        current = lab.state.current_of(reader.member_id)
        assert partitions_of(current.assigned) == reader.owned == lab.state.target_of(reader.member_id)
        assert reader.places <= wanted(lab, reader)


def settled(lab: Lab, count: int, topics: tuple[str, ...] = ("a",)) -> list[Reader]:
    readers = [Reader(lab, f"m{number}", topics) for number in range(count)]
    for _ in range(count + 2):
        for reader in readers:
            reader.beat()
    return readers


def test_a_second_member_gets_its_half_when_the_first_has_let_go() -> None:
    lab = Lab(Topics(a=4))
    one, two = Reader(lab, "m1", ("a",)), Reader(lab, "m2", ("a",))
    one.beat()
    assert len(one.places) == 4
    two.beat()
    assert (two.places, lab.state.current_of("m2").state) == (set(), MemberState.UNRELEASED)
    told = one.beat(lost=True)
    assert told.assignment is not None
    assert lab.state.current_of("m1").state is MemberState.UNREVOKED
    two.beat()
    assert two.places == set()
    one.beat()
    one.beat()
    two.beat()
    assert (len(one.places), len(two.places)) == (2, 2)
    assert phase_of(lab.state) is ModernPhase.STABLE


def test_a_member_that_says_nothing_has_let_go_of_nothing() -> None:
    lab = Lab(Topics(a=2))
    one, two = settled(lab, 1)[0], Reader(lab, "m9", ("a",))
    two.beat()
    for _ in range(3):
        lab.heartbeat(HeartbeatRequest("m0", one.epoch, "c", "/h"))
        two.beat()
    assert two.places == set()


def test_a_steady_group_writes_nothing() -> None:
    lab = Lab(Topics(a=6, b=6))
    readers = settled(lab, 3, ("a", "b"))
    before = len(lab.log)
    for reader in readers * 3:
        reader.beat()
    assert len(lab.log) == before


def test_members_that_stay_keep_what_they_have_when_others_come_and_go() -> None:
    lab = Lab(Topics(a=12))
    readers = settled(lab, 3)
    kept = [set(reader.places) for reader in readers]
    guest = Reader(lab, "guest", ("a",))
    for _ in range(3):
        for reader in (guest, *readers):
            reader.beat()
    assert [len(reader.places) for reader in (guest, *readers)] == [3, 3, 3, 3]
    assert all(reader.places < before for reader, before in zip(readers, kept, strict=True))
    guest.leave()
    for _ in range(2):
        for reader in readers:
            reader.beat()
    assert [len(reader.places) for reader in readers] == [4, 4, 4]


def test_targets_are_not_made_more_often_than_the_pause_allows() -> None:
    lab = Lab(Topics(a=4), settings=ModernSettings(assignment_interval_ms=1000))
    one, two = Reader(lab, "m1", ("a",)), Reader(lab, "m2", ("a",))
    one.beat()
    two.beat()
    assert phase_of(lab.state) is ModernPhase.ASSIGNING
    assert two.epoch == one.epoch
    lab.now_ms += 1000
    two.beat()
    assert phase_of(lab.state) is ModernPhase.RECONCILING


def test_most_members_choose_the_assignor() -> None:
    lab = Lab(Topics(a=4))
    for number, assignor in enumerate((None, "range", "range", "uniform")):
        request = HeartbeatRequest(f"m{number}", 0, "c", "/h", None, None, 1000, ("a",), None, assignor, {})
        assert lab.heartbeat(request).code is Code.NONE
    assert lab.work().assignor().__name__ == "assign_range"


def test_one_member_too_many_is_refused() -> None:
    lab = Lab(Topics(a=4), settings=ModernSettings(max_size=2))
    readers = [Reader(lab, f"m{number}", ("a",)) for number in range(3)]
    assert [reader.beat().code for reader in readers] == [Code.NONE, Code.NONE, Code.GROUP_MAX_SIZE_REACHED]
    assert readers[0].beat().code is Code.NONE
    readers[1].leave()
    assert readers[2].beat().code is Code.NONE


@pytest.mark.system
def test_a_thousand_members_join_at_once_and_all_get_their_share() -> None:
    lab = Lab(Topics(a=1000), settings=ModernSettings(assignment_interval_ms=1000))
    readers = [Reader(lab, f"m{number}", ("a",)) for number in range(1000)]
    for reader in readers:
        assert reader.beat().code is Code.NONE
    for _ in range(4):
        lab.now_ms += 1000
        for reader in readers:
            reader.beat()
    check_alone(readers)
    assert {len(reader.places) for reader in readers} == {1}


@settings(max_examples=40)
@given(st.lists(STEPS.filter(lambda step: step[0] != "subscribe"), max_size=40))
def test_a_share_groups_members_all_have_something_to_do(steps: list[tuple[Any, ...]]) -> None:
    lab = Lab(Topics(a=3, b=2), GroupType.SHARE)
    readers = [Reader(lab, f"m{number}", ("a", "b")) for number in range(5)]
    for name, *arguments in steps:
        if name == "topic":
            lab.topics.set(*arguments)
        elif name == "leave":
            readers[arguments[0]].leave()
        else:
            readers[arguments[0]].beat(lost=name == "lost")
        assert lab.replayed() == lab.state
    for _ in range(2):
        for reader in readers:
            reader.beat()
    everything = lab.topics.places(("a", "b"))
    assert set().union(*(reader.places for reader in readers)) == everything
    assert all(reader.places for reader in readers) or not everything
