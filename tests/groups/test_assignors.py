"""Whatever members subscribe to and had before: who gets what is fair, complete, and moves no more than it must."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import NamedTuple
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.broker.groups.assignors import Assignment, Assignor, assign_range, assign_simple, assign_uniform
from headrace.broker.groups.modern_records import Partitions

TOPICS = [UUID(int=number) for number in range(1, 5)]


class Case(NamedTuple):
    members: dict[str, frozenset[UUID]]
    counts: dict[UUID, int]
    before: dict[str, Partitions]


def case_of(seed: int, alike: bool | None) -> Case:
    random = Random(seed)
    counts = {topic: random.randint(0, 7) for topic in TOPICS}
    names = [f"m{number}" for number in range(random.randint(1, 6))]

    def wanted() -> frozenset[UUID]:
        return frozenset(topic for topic in TOPICS if random.random() < 0.6)

    same = wanted()
    alike = random.random() < 0.5 if alike is None else alike
    members = {name: same if alike else wanted() for name in names}
    before: dict[str, dict[UUID, frozenset[int]]] = {}
    owners = random.choices([*names, "gone", None], [random.random() for _ in range(len(names) + 2)], k=36)
    for place, owner in enumerate(owners):
        if owner is not None:
            topic, number = TOPICS[place // 9], place % 9
            had = before.setdefault(owner, {})
            had[topic] = had.get(topic, frozenset()) | {number}
    return Case(members, counts, dict(before))


def cases(*, alike: bool | None = None) -> st.SearchStrategy[Case]:
    return st.integers(0, 2**32).map(lambda seed: case_of(seed, alike))


def flat(partitions: Partitions) -> set[tuple[UUID, int]]:
    return {(topic, number) for topic, numbers in partitions.items() for number in numbers}


def wanted_places(case: Case) -> set[tuple[UUID, int]]:
    topics = frozenset().union(*case.members.values())
    return {(topic, number) for topic in topics for number in range(case.counts[topic])}


def moved(case: Case, after: Assignment) -> int:
    """Partitions that a member had, that still are to be had, and that it has no more."""
    places = wanted_places(case)
    return sum(
        len({place for place in flat(case.before.get(member, {})) if place[0] in topics} & places - flat(after[member]))
        for member, topics in case.members.items()
    )


@pytest.mark.parametrize("assign", [assign_uniform, assign_range])
@settings(max_examples=30)
@given(cases())
def test_every_partition_goes_to_one_member_that_wants_it(assign: Assignor, case: Case) -> None:
    after = assign(*case)
    assert after.keys() == case.members.keys()
    given_out = Counter(place for partitions in after.values() for place in flat(partitions))
    assert given_out == Counter(wanted_places(case))
    for member, partitions in after.items():
        assert partitions.keys() <= case.members[member]
        assert all(partitions.values())


@pytest.mark.parametrize("assign", [assign_uniform, assign_range, assign_simple])
@settings(max_examples=30)
@given(cases())
def test_who_is_asked_again_says_the_same(assign: Assignor, case: Case) -> None:
    after = assign(*case)
    assert assign(case.members, case.counts, after) == after


@settings(max_examples=30)
@given(cases(alike=True))
def test_uniform_is_even_among_members_that_want_the_same(case: Case) -> None:
    sizes = [len(flat(partitions)) for partitions in assign_uniform(*case).values()]
    assert max(sizes) - min(sizes) <= 1


@settings(max_examples=30)
@given(cases(alike=True))
def test_uniform_moves_only_what_is_too_much(case: Case) -> None:
    places = wanted_places(case)
    least = len(places) // len(case.members)
    most = -(-len(places) // len(case.members))
    had = [len(flat(case.before.get(member, {})) & places) for member in case.members]
    allowed = sum(max(size - least, 0) for size in had)
    needed = sum(max(size - most, 0) for size in had)
    assert needed <= moved(case, assign_uniform(*case)) <= allowed


@settings(max_examples=30)
@given(cases(alike=False))
def test_uniform_leaves_nobody_with_two_more_than_another_who_would_take_one(case: Case) -> None:
    after = assign_uniform(*case)
    sizes = {member: len(flat(partitions)) for member, partitions in after.items()}
    for member, partitions in after.items():
        for other, topics in case.members.items():
            if partitions.keys() & topics:
                assert sizes[member] - sizes[other] <= 1


@settings(max_examples=30)
@given(cases())
def test_range_is_even_in_every_topic(case: Case) -> None:
    after = assign_range(*case)
    for topic in TOPICS:
        sizes = [len(after[member].get(topic, ())) for member, topics in case.members.items() if topic in topics]
        assert not sizes or max(sizes) - min(sizes) <= 1


@settings(max_examples=30)
@given(st.integers(1, 6), st.integers(0, 9))
def test_range_begins_with_neighbours_and_cuts_topics_of_one_size_alike(members: int, partitions: int) -> None:
    names = dict.fromkeys((f"m{number}" for number in range(members)), frozenset(TOPICS))
    after = assign_range(names, dict.fromkeys(TOPICS, partitions), {})
    at = 0
    for name in names:
        mine = sorted(after[name].get(TOPICS[0], ()))
        assert mine == list(range(at, at + len(mine)))
        at += len(mine)
        assert {frozenset(after[name].get(topic, ())) for topic in TOPICS} == {frozenset(mine)}


@settings(max_examples=30)
@given(cases())
def test_in_a_share_group_everybody_and_every_partition_has_something_to_do(case: Case) -> None:
    after = assign_simple(*case)
    held = Counter(place for partitions in after.values() for place in flat(partitions))
    assert held.keys() == wanted_places(case)
    for member, topics in case.members.items():
        assert after[member].keys() <= topics
        assert flat(after[member]) or not any(case.counts[topic] for topic in topics)


@settings(max_examples=30)
@given(cases(alike=True))
def test_in_a_share_group_a_partition_has_no_more_members_than_it_takes(case: Case) -> None:
    after = assign_simple(*case)
    places = wanted_places(case)
    held = Counter(place for partitions in after.values() for place in flat(partitions))
    if places:
        assert max(held.values()) <= -(-len(case.members) // len(places))
        sizes = [len(flat(partitions)) for partitions in after.values()]
        assert max(sizes) <= -(-max(len(places), len(case.members)) // len(case.members)) + 1


def test_a_thousand_members_are_served_quickly_enough_to_join_one_by_one() -> None:
    members = {f"m{number}": frozenset(TOPICS[:1]) for number in range(1000)}
    counts: Mapping[UUID, int] = {TOPICS[0]: 2000}
    before: Assignment = {}
    for assign in (assign_uniform, assign_range, assign_simple):
        before = assign(members, counts, before)
        assert {len(flat(partitions)) for partitions in before.values()} == {2}
