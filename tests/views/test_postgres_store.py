"""The PostgreSQL store keeps the laws of stores, with rows put one by one and copied; and what is its own."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import InvalidConfig, ViewNotKept
from headrace.views.postgres.address import PostgresAddress
from headrace.views.postgres.store import PostgresStores
from tests.capture.databases import Postgres
from tests.views.reader_laws import ReaderLaws
from tests.views.schemas import emptied, opened_at
from tests.views.store_laws import TOPIC_ID, Opened, StoreLaws, batch, sale, spec

pytestmark = pytest.mark.system

SECRET = "s3cret-word"


class TestRowsCopied(StoreLaws):
    """Every row goes through a copy."""

    copy_from = 1

    @pytest.fixture(autouse=True)
    def _server(self, postgres: Postgres) -> None:
        self.server = postgres

    @pytest.fixture
    def place(self, postgres: Postgres) -> str:
        return emptied(postgres)

    def open(self, place: Any) -> Opened:
        return opened_at(place, self.copy_from)

    def fresh_place(self, factory: pytest.TempPathFactory) -> str:
        return emptied(self.server)


class TestRowsPutOneByOne(TestRowsCopied, ReaderLaws):
    copy_from = 100


def test_a_row_is_found_by_its_key_through_the_index(postgres: Postgres, opened: Opened) -> None:
    build = opened.store.begin(spec(key=["region", "orders"]), TOPIC_ID)
    opened.store.apply(build, 0, batch(*(sale(f"r{n}", 1.0, n) for n in range(3000))), 3000)
    postgres.execute('analyze shop."sales~1"', "views")
    for key in ("region = 'r7' and orders = 7", "region is null and orders = 7"):
        plan = str(postgres.execute(f"explain select * from shop.sales where {key}", "views"))
        assert "Index Scan using" in plan, plan


def test_columns_have_types_and_the_view_has_its_name(postgres: Postgres, opened: Opened) -> None:
    opened.store.begin(spec(), TOPIC_ID)
    found = postgres.execute(
        "select column_name, data_type from information_schema.columns where table_schema = 'shop'"
        " and table_name = 'sales' order by ordinal_position",
        "views",
    )
    assert found == [("region", "text"), ("day", "date"), ("revenue", "double precision"), ("orders", "bigint")]


def test_who_may_read_a_view_and_what_was_made_of_it_survives_a_rebuild(postgres: Postgres, opened: Opened) -> None:
    opened.store.begin(spec(), TOPIC_ID)
    postgres.execute("create or replace view public.mine as select region from shop.sales", "views")
    new = opened.store.begin(spec(fingerprint="2"), TOPIC_ID)
    opened.store.apply(new, 0, batch(sale("EU")), 1)
    opened.store.swap(new)
    assert postgres.execute("select * from public.mine", "views") == [("EU",)]
    other = opened.store.begin(spec({"region": "bigint"}, fingerprint="3"), TOPIC_ID)
    with pytest.raises(ViewNotKept, match="others have made something of it") as told:
        opened.store.swap(other)
    assert "public.mine" in (told.value.detail or "")
    assert postgres.execute("select * from public.mine", "views") == [("EU",)]
    postgres.execute("drop view public.mine", "views")
    opened.store.swap(other)
    assert opened.rows() == []


def test_names_that_postgres_would_cut_do_not_become_one(opened: Opened) -> None:
    long = "v" * 63
    for name in (long, long[:-1] + "w"):
        build = opened.store.begin(spec(name=name), TOPIC_ID)
        opened.store.apply(build, 0, batch(sale(name)), 1)
    assert opened.rows(long)[0][0] == long
    with pytest.raises(ViewNotKept, match="63 bytes"):
        opened.store.begin(spec(name=long + "x"), TOPIC_ID)
    with pytest.raises(ViewNotKept, match="63 bytes"):
        opened.store.begin(spec({"c" * 64: "bigint"}, ["c" * 64], name="short"), TOPIC_ID)


def test_an_address_says_nothing_of_its_password() -> None:
    address = PostgresAddress(f"postgresql://alice:{SECRET}@db.example:5433/views?sslmode=require")
    assert str(address) == "postgresql://alice@db.example:5433/views"
    assert SECRET not in repr(address) + repr(vars(PostgresStores(address)))
    with pytest.raises(InvalidConfig):
        PostgresAddress("postgresql://a%zz@b/c")
