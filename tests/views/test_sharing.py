"""Views that several processes keep in one store: each is kept by one, and changes hands without a restart."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ServerAway
from headrace.feed.membership import PARTS
from headrace.views.places import stores_at
from headrace.views.sharing import Sharing
from tests.capture.databases import Postgres
from tests.views.memory_feed import MemoryFeed
from tests.views.places import Place
from tests.views.schemas import emptied, place_at
from tests.views.test_materialiser import Bench

names = st.text(st.sampled_from("abcdef"), min_size=1, max_size=4)
views = st.sets(st.tuples(names, names), max_size=60)


class Told:
    """A member that is told its parts by the test."""

    def __init__(self, *parts: int) -> None:
        self.parts = frozenset(parts)
        self.trouble: str | None = None

    def poll(self) -> None: ...

    def close(self) -> None: ...


def joined(member: Told) -> Sharing:
    sharing = Sharing(lambda: member)
    sharing.poll(0.0)
    return sharing


@given(views, st.integers(1, 9))
def test_every_view_has_one_keeper_and_nobody_has_two_more_than_another(found: set[Any], nodes: int) -> None:
    sharing = [joined(Told(*range(node, PARTS, nodes))) for node in range(nodes)]
    kept = [one.kept(found) for one in sharing]
    assert Counter(view for some in kept for view in some) == Counter(found)
    if nodes in (1, 2, 3, 4, 6, 8) or len(found) <= PARTS:  # what divides PARTS evenly
        assert max(map(len, kept)) - min(map(len, kept)) <= 1
    for view in found:
        assert sum(one.clears(view) for one in sharing) == 1


def test_until_it_has_joined_a_process_keeps_nothing_and_says_why() -> None:
    answers: list[Any] = [ServerAway("the broker is away."), Told(*range(PARTS))]

    def join() -> Told:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Told)
        return answer

    sharing = Sharing(join)
    sharing.poll(0.0)
    assert (sharing.kept([("shop", "sales")]), sharing.trouble) == (set(), "the broker is away.")
    sharing.poll(0.5)
    assert len(answers) == 1, "it is not asked all the time"
    sharing.poll(1.0)
    assert (sharing.kept([("shop", "sales")]), sharing.trouble) == ({("shop", "sales")}, None)


class Shared(Bench):
    """A materialiser that is told what is its own."""

    def __init__(self, place: Place, member: Told, feed: MemoryFeed | None = None) -> None:
        self.member = member
        super().__init__(place, feed)

    def sharing(self) -> Sharing:
        return Sharing(lambda: self.member)


def test_a_view_that_nobody_keeps_says_what_the_group_has_against_this_process(tmp_path: Path) -> None:
    bench = Shared(Place(lambda: stores_at(None, tmp_path), lambda: None), Told())
    bench.declare()
    bench.member.trouble = "group 'views' does not take this process: Group authorization failed"
    bench.settle()
    assert bench.state().trouble == bench.materialiser.shared_trouble == bench.member.trouble
    bench.member.parts, bench.member.trouble = frozenset(range(PARTS)), None
    bench.settle()
    assert (bench.state().trouble, bench.materialiser.shared_trouble) == (None, None)
    bench.close()


@pytest.mark.system
def test_a_view_changes_hands_and_comes_back_without_a_restart(postgres: Postgres) -> None:
    place = place_at(emptied(postgres))
    one = Shared(place, Told(0))
    one.declare("sales")
    one.declare("targets")
    two = Shared(place, Told(1), one.feed)
    both = (one, two)
    one.put("EU", 1.0)
    one.put("EU", 10.0, "shop.targets")
    for number in range(4):
        for bench in (*both, *both):
            bench.settle()
        for bench in both:
            assert (bench.rows("sales"), bench.rows("targets")) == ({"EU": 1.0 + number}, {"EU": 10.0 + number})
            for name in ("sales", "targets"):
                assert (bench.state(name).trouble, bench.state(name).behind) == (None, 0)
        one.put("EU", 2.0 + number)
        one.put("EU", 11.0 + number, "shop.targets")
        one.member.parts, two.member.parts = two.member.parts, one.member.parts
    for bench in both:
        bench.close()


@pytest.mark.system
def test_who_is_fenced_although_the_view_is_its_own_takes_it_again(postgres: Postgres) -> None:
    """Whoever took it last may have done so late, and be gone."""
    place = place_at(emptied(postgres))
    right = Shared(place, Told(0))
    right.declare()
    right.put("EU", 1.0)
    right.settle()
    late = Shared(place, Told(0), right.feed)
    late.settle()
    late.close()
    right.put("EU", 2.0)
    right.materialiser.step()
    assert "kept by another process" in (right.state().trouble or "")
    for _ in range(10):  # of its clock's seconds
        right.settle()
    assert (right.rows(), right.state().trouble) == ({"EU": 2.0}, None)
    right.close()


@pytest.mark.system
def test_a_view_that_is_no_more_is_taken_out_by_one_of_them(postgres: Postgres) -> None:
    place = place_at(emptied(postgres))
    one = Shared(place, Told(*range(0, PARTS, 2)))
    two = Shared(place, Told(*range(1, PARTS, 2)), one.feed)
    for name in ("sales", "targets"):
        one.declare(name)
    for bench in (one, two, one):
        bench.settle()
    one.feed.append("headrace.catalog", b"view/shop/sales", None)
    for bench in (one, two, one, two):
        bench.settle()
        bench.materialiser.step()
    assert postgres.execute("select distinct view from shop.headrace_builds", "views") == [("targets",)]
    assert set(two.materialiser.states) == {("shop", "targets")}
    for bench in (one, two):
        bench.close()
