"""A schema keeps the views of one log; a log that moves takes them along, and nothing is built anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from headrace.errors import Fenced, StoreAway
from headrace.views import places
from headrace.views.postgres.store import PostgresStore
from tests.capture.databases import Postgres
from tests.views.memory_feed import MemoryFeed
from tests.views.schemas import place_at
from tests.views.store_laws import TOPIC_ID, batch, sale, spec
from tests.views.test_materialiser import Bench

pytestmark = pytest.mark.system

ELSEWHERE = {"another": "topic", TOPIC_ID: "its id there"}


@contextmanager
def opened(dsn: str, log: str | None) -> Iterator[PostgresStore]:
    with closing(places.stores_at(dsn, Path())) as stores, closing(stores.open("shop", log)) as store:
        assert isinstance(store, PostgresStore)
        yield store


def test_another_log_is_refused_and_told_what_to_do(dsn: str) -> None:
    with opened(dsn, "one") as store:
        store.begin(spec(), TOPIC_ID)
    with (
        pytest.raises(StoreAway, match="keeps the views of another log, one; this one is two") as told,
        opened(dsn, "two"),
    ):
        pass
    for way in ("headrace move --views", "another database", 'DROP SCHEMA "shop" CASCADE;'):
        assert way in (told.value.hint or "")
    with opened(dsn, "one") as store:
        assert len(store.take("sales")) == 1


def test_a_log_that_moved_takes_its_views_along_and_who_serves_the_old_one_writes_nothing(dsn: str) -> None:
    with opened(dsn, "one") as old:
        build = old.begin(spec(), TOPIC_ID)
        old.apply(build, 0, batch(sale("EU", 1.0)), 1)
        assert places.apps_at(dsn, "one", {}) == ["shop"]
        assert places.give(dsn, "one", "two", ELSEWHERE) == {"shop": 1}
        assert places.apps_at(dsn, "one", ELSEWHERE) == []

        with pytest.raises(Fenced, match="headrace move"):
            old.apply(build, 0, batch(sale("US", 1.0), start=1), 2)
        old.let_go("sales")
        for write in (lambda: old.take("sales"), lambda: old.begin(spec(name="new"), TOPIC_ID)):
            with pytest.raises(StoreAway, match="another log, two"):
                write()

        with opened(dsn, "two") as new:
            [taken] = new.take("sales")
            assert (taken.number, taken.topic_id, taken.offsets) == (build.number, "its id there", {0: 1})
            new.apply(taken, 0, batch(sale("EU", 2.0), start=1), 2)
    assert places.give(dsn, "one", "two", ELSEWHERE) == {}, "it may be asked for again"


def test_a_schema_from_before_logs_were_known_is_of_the_log_whose_topics_it_has(postgres: Postgres, dsn: str) -> None:
    def forget() -> None:
        postgres.execute("alter table shop.headrace_store drop column log", "views")
        postgres.execute("update shop.headrace_store set format = 1", "views")

    with opened(dsn, "one") as store:
        store.begin(spec(), TOPIC_ID)
    forget()
    assert places.apps_at(dsn, "one", {"no": "topic of it"}) == []
    assert places.give(dsn, "one", "two", ELSEWHERE) == {"shop": 1}
    with opened(dsn, "two") as store:
        assert [build.topic_id for build in store.take("sales")] == ["its id there"]
    forget()
    with opened(dsn, "three"):
        pass
    assert postgres.execute("select format, log from shop.headrace_store", "views") == [(2, "three")]


def test_two_logs_with_an_app_of_the_same_name_do_not_take_views_from_each_other(dsn: str) -> None:
    first, second = (Bench(place_at(dsn), MemoryFeed(log=log)) for log in ("one", "two"))
    for bench in (first, second):
        bench.declare()
        bench.put("EU", 1.0)
        bench.settle()
    assert "keeps the views of another log, one" in (second.state().trouble or "")
    first.put("US", 2.0)
    first.settle()
    assert (first.state().build, first.rows()) == (1, {"EU": 1.0, "US": 2.0})

    topic_ids = {first.feed.topic_id("shop.sales"): second.feed.topic_id("shop.sales")}
    places.give(dsn, "one", "two", topic_ids)
    second.put("US", 2.0)
    first.put("EU", 9.0)
    for bench in (first, second, first):
        bench.settle()
    assert (second.state().build, second.rows(), second.state().trouble) == (1, {"EU": 1.0, "US": 2.0}, None)
    for bench in (first, second):
        bench.close()
