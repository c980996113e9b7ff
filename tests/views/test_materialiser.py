"""A materialiser keeps stores equal to changelogs, whatever happens to either."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.clock import SystemClock
from headrace.errors import HeadraceError, UnknownView
from headrace.views.catalog import CATALOG_TOPIC
from headrace.views.materialiser import Materialiser, ViewState
from headrace.views.question import Question
from headrace.views.sharing import Sharing
from tests.views.memory_feed import MemoryFeed, view_entry
from tests.views.places import KINDS, Place

COLUMNS = {"region": "string", "revenue": "double"}


class Clock(SystemClock):
    """Every look at it is a second later: everything is always due."""

    now = 0.0

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now


class Bench:
    """A materialiser over a feed in memory, with stores in a place."""

    def __init__(self, place: Place, feed: MemoryFeed | None = None) -> None:
        self.place = place
        self.feed = feed or MemoryFeed()
        self.start()

    def start(self) -> None:
        self.stores = self.place.stores()
        self.reader = self.stores.reader(lambda: ["shop"])
        self.materialiser = Materialiser(self.feed, self.stores, Clock(), sharing=self.sharing())

    def sharing(self) -> Sharing | None:
        """It has all views to itself."""
        return None

    def close(self) -> None:
        self.materialiser.close()
        self.stores.close()

    def restart(self) -> None:
        self.close()
        self.start()

    def declare(self, name: str = "sales", columns: dict[str, str] = COLUMNS, **more: Any) -> None:
        entry = view_entry("shop", name, ["region"], columns, **more)
        self.feed.append(CATALOG_TOPIC, f"view/shop/{name}".encode(), entry)
        if entry["topic"] not in self.feed.topics:
            self.feed.create(entry["topic"], 2)

    def put(self, region: str, revenue: float | None, topic: str = "shop.sales") -> None:
        value = None if revenue is None else {"region": region, "revenue": revenue}
        self.feed.append(topic, {"region": region}, value, partition=len(region) % 2)

    def settle(self) -> None:
        """Steps until nothing happens any more."""
        for _ in range(200):
            if not self.materialiser.step() and not self.materialiser.step():
                return
        raise AssertionError("it never comes to rest")

    def rows(self, name: str = "sales") -> dict[str, Any]:
        return {row[0]: row[1] for row in self.reader.select(("shop", name), Question(limit=None)).rows}

    def state(self, name: str = "sales") -> ViewState:
        return self.materialiser.states["shop", name]


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest) -> Place:
    return Place.fresh(request)


@pytest.fixture
def bench(place: Place) -> Any:
    made = Bench(place)
    yield made
    made.close()


def test_a_view_appears_and_follows_its_changelog(bench: Bench) -> None:
    bench.settle()
    assert bench.materialiser.states == {}
    bench.declare()
    for number in range(10):
        bench.put("E" * number, float(number))
    bench.settle()
    assert len(bench.rows()) == 10
    bench.put("EE", None)
    bench.put("EEE", 7.5)
    bench.settle()
    assert bench.rows()["EEE"] == 7.5
    assert "EE" not in bench.rows()
    assert bench.state().behind == 0
    assert bench.state().trouble is None


def test_offsets_without_records_are_passed(bench: Bench) -> None:
    bench.declare()
    bench.put("EU", 1.0)
    bench.feed.skip("shop.sales")
    bench.feed.skip("shop.sales")
    bench.settle()
    assert bench.state().offsets == {0: 3, 1: 0}


def test_a_store_that_was_dropped_is_rebuilt(bench: Bench) -> None:
    bench.declare()
    bench.put("EU", 1.0)
    bench.settle()
    bench.close()
    bench.place.wipe()
    bench.start()
    bench.settle()
    assert bench.rows() == {"EU": 1.0}


def test_a_store_that_is_removed_under_a_running_node_is_rebuilt(bench: Bench) -> None:
    bench.declare()
    bench.put("EU", 1.0)
    bench.settle()
    bench.place.wipe()
    bench.settle()
    assert bench.rows() == {"EU": 1.0}


def test_a_restart_goes_on_where_it_was(bench: Bench) -> None:
    bench.declare()
    bench.put("EU", 1.0)
    bench.settle()
    number = bench.state().build
    bench.restart()
    bench.put("US!", 2.0)
    bench.settle()
    assert bench.rows() == {"EU": 1.0, "US!": 2.0}
    assert bench.state().build == number


def test_a_changed_view_is_built_beside_the_old_one_and_takes_its_place_when_it_is_whole(bench: Bench) -> None:
    bench.declare()
    for number in range(40):
        bench.put(f"r{number}", 1.0)
    bench.settle()
    for number in range(40):
        bench.feed.append(
            "new", {"region": f"r{number}"}, {"region": f"r{number}", "total": 2.0}
        ) if number else bench.feed.create("new")
    bench.declare(columns={"region": "string", "total": "double"}, topic="new", fingerprint="2")
    seen = set()
    for _ in range(30):
        bench.materialiser.step()
        seen.add((*sorted(set(bench.rows().values())), len(bench.rows())))
    assert seen == {(1.0, 40), (2.0, 39)}
    assert bench.state().spec.topic == "new"
    assert not bench.state().rebuilding


def test_the_old_build_goes_on_while_the_new_one_waits_for_its_topic(bench: Bench) -> None:
    bench.declare()
    bench.put("EU", 1.0)
    bench.settle()
    bench.declare(topic="later", fingerprint="2")
    bench.feed.delete("later")
    bench.settle()
    assert bench.rows() == {"EU": 1.0}
    assert "later" in (bench.state().trouble or "")


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("grown", [0, 1, 2, 5])
def test_a_changelog_that_was_made_anew_is_noticed(bench: Bench, grown: int, running: bool) -> None:
    bench.declare()
    for number in range(3):
        bench.put(f"a{number}", 1.0)
    bench.settle()
    if not running:
        bench.close()
    bench.feed.create("shop.sales", 2)
    for number in range(grown):
        bench.put(f"b{number}", 2.0)
    if not running:
        bench.start()
    bench.settle()
    assert bench.rows() == {f"b{number}": 2.0 for number in range(grown)}


def test_records_that_were_deleted_before_they_were_read_cause_a_rebuild(bench: Bench) -> None:
    bench.declare()
    bench.put("EU", 1.0)
    bench.settle()
    for number in range(5):
        bench.put(f"a{number}", 1.0)
    kept = bench.feed.topics["shop.sales"][0]
    kept.records, kept.start = kept.records[-2:], kept.records[-2][0]
    bench.settle()
    assert bench.rows() == {"a3": 1.0, "a4": 1.0}


def test_compaction_is_no_reason_to_rebuild(bench: Bench) -> None:
    bench.declare()
    for number in range(6):
        bench.put("EU", float(number))
    bench.settle()
    number = bench.state().build
    bench.put("EU", 9.0)
    bench.feed.compact("shop.sales")
    bench.restart()
    bench.settle()
    assert bench.rows() == {"EU": 9.0}
    assert bench.state().build == number


def test_a_view_that_leaves_the_catalog_leaves_the_store(bench: Bench) -> None:
    bench.declare()
    bench.put("EU", 1.0)
    bench.settle()
    bench.feed.append(CATALOG_TOPIC, b"view/shop/sales", None)
    bench.settle()
    assert bench.materialiser.states == {}
    with pytest.raises(UnknownView):
        bench.rows()


def test_a_bad_record_is_counted_and_the_view_goes_on(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.declare()
    bench.feed.append("shop.sales", {"region": "US"}, b"{")
    bench.put("EU", 1.0)
    bench.settle()
    assert bench.rows() == {"EU": 1.0}
    assert bench.state().bad == 1
    assert "offset 0" in (bench.state().last_bad or "")
    assert "a record was left out" in caplog.text


@pytest.mark.parametrize("entry", [b"{", b"[]", {"app": "shop"}, {**view_entry("shop", "x", ["nope"], COLUMNS)}])
def test_a_bad_catalog_entry_is_told_and_the_others_count(
    bench: Bench, entry: Any, caplog: pytest.LogCaptureFixture
) -> None:
    bench.feed.append(CATALOG_TOPIC, b"view/shop/x", entry)
    bench.declare()
    bench.settle()
    assert bench.materialiser.states.keys() == {("shop", "sales")}
    assert "catalog entry" in caplog.text or "cannot be kept" in caplog.text


def test_a_broker_that_is_away_changes_nothing(bench: Bench) -> None:
    bench.declare()
    bench.put("EU", 1.0)
    bench.settle()
    bench.feed.away = True
    with pytest.raises(HeadraceError):
        bench.materialiser.step()
    assert bench.rows() == {"EU": 1.0}
    bench.feed.away = False
    bench.put("EU", 2.0)
    bench.settle()
    assert bench.rows() == {"EU": 2.0}


def test_what_nobody_expected_stops_one_view_and_not_the_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench.declare()
    bench.declare("other")
    read = bench.feed.read

    def fails(topic: str, *where: Any, **how: Any) -> Any:
        if topic == "shop.sales":
            raise ValueError("damaged")
        return read(topic, *where, **how)

    bench.put("EU", 1.0)
    bench.put("EU", 2.0, topic="shop.other")
    with monkeypatch.context() as patch:
        patch.setattr(bench.feed, "read", fails)
        bench.settle()
        assert bench.rows("other") == {"EU": 2.0}
        assert bench.state().trouble == "unexpected ValueError: damaged"
    bench.settle()
    assert bench.rows() == {"EU": 1.0}
    assert "cannot be kept up to date" in caplog.text


def test_the_state_of_queries_is_known(bench: Bench) -> None:
    bench.feed.append(CATALOG_TOPIC, b"query/shop/sales", {"state": "failed", "last_error": "boom"})
    bench.settle()
    assert bench.materialiser.catalog.queries["shop", "sales"]["last_error"] == "boom"


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    events=st.lists(
        st.sampled_from(["put", "put", "gone", "step", "restart", "declare", "anew", "compact", "remove"]), max_size=25
    ),
    seed=st.randoms(use_true_random=False),
)
def test_a_view_always_ends_as_its_topic_says(
    request: pytest.FixtureRequest, kind: str, events: list[str], seed: Any
) -> None:
    # an example may end in the middle: what it opened is closed all the same
    with contextlib.closing(Bench(Place.fresh(request, kind))) as bench:
        bench.declare()
        model: dict[str, float] = {}
        fingerprint = 1
        for event in events:
            region = seed.choice(["a", "bb", "c"])
            if event == "put":
                model[region] = float(seed.randrange(10))
                bench.put(region, model[region])
            elif event == "gone":
                model.pop(region, None)
                bench.put(region, None)
            elif event == "step":
                bench.materialiser.step()
            elif event == "restart":
                bench.restart()
            elif event == "declare":
                fingerprint += 1
                bench.declare(fingerprint=str(fingerprint))
            elif event == "anew":
                # A topic made anew while a materialiser runs, and grown past its place, is seen at the next start.
                bench.close()
                bench.feed.create("shop.sales", 2)
                model.clear()
                bench.start()
            elif event == "compact":
                bench.feed.compact("shop.sales")
            else:
                bench.close()
                bench.place.wipe()
                bench.start()
        bench.settle()
        assert bench.rows() == model
