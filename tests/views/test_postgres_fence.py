"""A view in PostgreSQL has one owner: whoever was replaced writes nothing, and the database sees to it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headrace.errors import Fenced
from headrace.views.postgres.ownership import Owner
from tests.capture.databases import Postgres
from tests.views.schemas import blocked, emptied, opened_at, place_at, until, waiting
from tests.views.store_laws import TOPIC_ID, batch, sale, spec
from tests.views.test_materialiser import Bench

pytestmark = pytest.mark.system


def test_an_owner_that_was_replaced_writes_nothing_however_it_comes_back(dsn: str) -> None:
    old, new = Owner(), Owner()
    first = opened_at(dsn, owner=old)
    build = first.store.begin(spec(), TOPIC_ID)
    first.store.apply(build, 0, batch(sale("EU", 1.0)), 1)
    second = opened_at(dsn, owner=new)
    [taken] = second.store.take("sales")
    for write in (
        lambda: first.store.apply(build, 0, batch(sale("EU", 7.0), start=1), 2),
        lambda: first.store.begin(spec(fingerprint="2"), TOPIC_ID),
        lambda: first.store.drop(build),
        lambda: first.store.swap(build),
        lambda: first.store.take("sales"),
    ):
        with pytest.raises(Fenced, match=new.name):
            write()
    first.close()
    again = opened_at(dsn, owner=old)  # the same process, over a new connection
    with pytest.raises(Fenced):
        again.store.take("sales")
    assert again.rows() == [("EU", "2026-01-02", 1.0, 1)]
    second.store.apply(taken, 0, batch(sale("EU", 2.0), start=1), 2)
    assert again.rows() == [("EU", "2026-01-02", 2.0, 1)]
    for one in (second, again):
        one.close()


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
def test_who_takes_over_waits_for_the_commit_under_way_and_goes_on_after_it(
    postgres: Postgres, dsn: str, isolation: str
) -> None:
    """Whatever isolation the database gives to those who do not ask for one."""
    postgres.execute(f"alter database views set default_transaction_isolation = '{isolation}'")
    first = opened_at(dsn)
    build = first.store.begin(spec(), TOPIC_ID)
    second = opened_at(dsn)
    taken: list[Any] = []
    with blocked(postgres, lambda: first.store.apply(build, 0, batch(sale("EU", 1.0)), 1)):
        taker = threading.Thread(target=lambda: taken.extend(second.store.take("sales")))
        taker.start()
        until(lambda: waiting(postgres) == 2)
    taker.join(30)
    postgres.execute("alter database views reset default_transaction_isolation")
    assert [found.offsets for found in taken] == [{0: 1}]
    first.close()
    second.close()


def test_a_view_whose_owner_stands_in_a_transaction_holds_up_no_other(postgres: Postgres) -> None:
    bench = Bench(place_at(emptied(postgres)))
    for name in ("sales", "other"):
        bench.declare(name)
        bench.put("EU", 1.0, f"shop.{name}")
    bench.settle()
    store = bench.materialiser._apps["shop"]._store
    with postgres.connect("views") as stopped:
        stopped.execute("begin; select from shop.headrace_owners where view = 'sales' for no key update")
        for name in ("sales", "other"):
            bench.put("EU", 2.0, f"shop.{name}")
        bench.settle()
        assert (bench.rows("sales"), bench.rows("other")) == ({"EU": 1.0}, {"EU": 2.0})
        assert "in the middle of a transaction" in (bench.state("sales").trouble or "")
        assert bench.materialiser._apps["shop"]._store is store, "it was not closed for that"
    bench.settle()
    assert (bench.rows("sales"), bench.state("sales").trouble) == ({"EU": 2.0}, None)
    bench.close()


def test_views_of_an_app_have_owners_of_their_own(dsn: str) -> None:
    first, second = opened_at(dsn), opened_at(dsn)
    sales = first.store.begin(spec(), TOPIC_ID)
    targets = second.store.begin(spec(name="targets"), TOPIC_ID)
    first.store.apply(sales, 0, batch(sale("EU")), 1)
    second.store.apply(targets, 0, batch(sale("US")), 1)
    assert len(first.rows("sales")) == len(first.rows("targets")) == 1
    first.close()
    second.close()


def test_a_materialiser_that_was_replaced_follows_the_one_that_writes(postgres: Postgres) -> None:
    place = place_at(emptied(postgres))
    old = Bench(place)
    old.declare()
    old.put("EU", 1.0)
    old.settle()
    new = Bench(place, old.feed)
    new.settle()
    old.put("EU", 2.0)
    old.settle()
    assert old.rows() == {"EU": 1.0}
    assert "another process" in (old.state().trouble or "")
    new.settle()
    old.settle()
    assert old.rows() == {"EU": 2.0}
    assert old.state().offsets == new.state().offsets
    assert new.state().trouble is None
    old.close()
    new.close()
