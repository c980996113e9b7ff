"""What every store of views does. A kind of store is tested by a class that inherits these and says how to open it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.errors import InvalidQuery, UnknownView
from headrace.views.catalog import ViewSpec
from headrace.views.question import asked, by_key
from headrace.views.store import Reader, SqlLimits, Store, Stores
from tests.views.memory_feed import as_json, records, view_entry

SALES = {"region": "string", "day": "date", "revenue": "double", "orders": "bigint"}
EVERY_TYPE = {
    "id": "int",
    "flag": "boolean",
    "price": "decimal(20,4)",
    "at": "timestamp",
    "data": "binary",
    "tags": "array<string>",
    "place": "struct<x:int,y:double>",
    "score": "float",
}
LIMITS = SqlLimits(seconds=5.0, rows=100)
TOPIC_ID = "4dCFqGEvQgyhjc5X0ybdVA"


def spec(
    columns: dict[str, str] | None = None, key: Sequence[str] = ("region",), name: str = "sales", **more: str
) -> ViewSpec:
    return ViewSpec.from_json(view_entry("shop", name, list(key), columns or SALES, **more))


def batch(*changes: tuple[Any, Any], start: int = 0) -> Any:
    return records([(start + at, 1000 + at, as_json(key), as_json(value)) for at, (key, value) in enumerate(changes)])


def sale(region: str | None, revenue: Any = 1.5, orders: Any = 1, day: str = "2026-01-02") -> tuple[Any, Any]:
    return {"region": region}, {"region": region, "day": day, "revenue": revenue, "orders": orders}


@dataclass
class Opened:
    """A store of the app ``shop``, and a reader beside it."""

    store: Store
    reader: Reader
    stores: Stores

    def close(self) -> None:
        self.store.close()
        self.stores.close()

    def rows(self, name: str = "sales") -> list[tuple[Any, ...]]:
        view = next(build.spec for build in self.store.builds() if build.live and build.spec.name == name)
        return sorted(self.reader.select(("shop", name), asked(view, limit="all")).rows, key=repr)


class StoreLaws:
    """Inherit, and define ``open`` to open the store of a place and ``place`` as a fixture."""

    def open(self, place: Any) -> Opened:
        raise NotImplementedError

    @pytest.fixture
    def opened(self, place: Any) -> Any:
        opened = self.open(place)
        yield opened
        opened.close()

    def test_rows_are_put_replaced_and_deleted(self, opened: Opened) -> None:
        build = opened.store.begin(spec(), TOPIC_ID)
        opened.store.apply(build, 0, batch(sale("EU", 1.0), sale("US", 2.0), sale("AS", 3.0)), 3)
        applied = opened.store.apply(build, 0, batch(sale("EU", 9.25), ({"region": "US"}, None), start=3), 5)
        assert (applied.upserts, applied.deletes, list(applied.bad)) == (1, 1, [])
        assert opened.rows() == [("AS", "2026-01-02", 3.0, 1), ("EU", "2026-01-02", 9.25, 1)]

    def test_the_last_record_of_a_key_wins_within_a_batch(self, opened: Opened) -> None:
        build = opened.store.begin(spec(), TOPIC_ID)
        gone, back = ({"region": "US"}, None), sale("US", 7.0)
        opened.store.apply(build, 0, batch(sale("EU", 1.0), sale("US"), sale("EU", 2.0), gone), 4)
        assert opened.rows() == [("EU", "2026-01-02", 2.0, 1)]
        opened.store.apply(build, 0, batch(({"region": "EU"}, None), gone, back, start=4), 7)
        assert opened.rows() == [("US", "2026-01-02", 7.0, 1)]

    def test_null_equals_null_in_a_key(self, opened: Opened) -> None:
        build = opened.store.begin(spec(key=["region", "orders"]), TOPIC_ID)
        key, row = {"region": None, "orders": 1}, {"region": None, "day": None, "revenue": 1.0, "orders": 1}
        opened.store.apply(build, 0, batch((key, row)), 1)
        opened.store.apply(build, 0, batch((key, row | {"revenue": 2.0}), start=1), 2)
        assert opened.rows() == [(None, None, 2.0, 1)]
        found = opened.reader.select(("shop", "sales"), by_key(build.spec, [None, 1]))
        assert found.rows == [(None, None, 2.0, 1)]
        opened.store.apply(build, 0, batch((key, None), start=2), 3)
        assert opened.rows() == []

    def test_numbers_are_exact(self, opened: Opened) -> None:
        build = opened.store.begin(spec(), TOPIC_ID)
        hard = [0.1 + 0.2, 1e-320, 1.7976931348623157e308, 123456789.12345679, 2**53 + 1.0]
        opened.store.apply(build, 0, batch(*(sale(str(at), value, 2**63 - 1) for at, value in enumerate(hard))), 5)
        assert [row[2] for row in opened.rows()] == hard
        assert {row[3] for row in opened.rows()} == {2**63 - 1}

    def test_every_type_comes_back_as_it_was(self, opened: Opened) -> None:
        row = {
            "id": 7,
            "flag": True,
            "price": "12345678901234.5678",
            "at": "2026-01-02T03:04:05.000006Z",
            "data": "AAE=",
            "tags": ["a", "ü"],
            "place": {"x": 1, "y": 0.5},
            "score": 0.25,
        }
        build = opened.store.begin(spec(EVERY_TYPE, ["id"]), TOPIC_ID)
        nothing = dict.fromkeys(row) | {"id": 8}
        opened.store.apply(build, 0, batch(({"id": 7}, row), ({"id": 8}, nothing)), 2)
        assert opened.rows() == [tuple(row.values()), tuple(nothing.values())]

    @pytest.mark.parametrize(
        ("key", "value", "reason"),
        [
            ({"region": "X"}, b"{nonsense", "not JSON"),
            ({"region": "X"}, b"", "not JSON"),
            ({"region": "X"}, b"[1]", "not a JSON object"),
            ({"region": "X"}, b"\xff\xfe", "not JSON"),
            ({"region": "X"}, {"day": "2026-01-01"}, "lacks the key column 'region'"),
            (b"half", None, "not JSON"),
            (None, {"region": "X"}, "no key"),
            ({"region": "X"}, {"region": "X", "revenue": "much"}, "does not fit"),
            ({"region": "X"}, {"region": "X", "orders": 2**70}, "does not fit"),
            ({"region": "X"}, {"region": "X", "orders": [1]}, "does not fit"),
            ({"region": "X"}, {"region": "X", "revenue": {"a": 1}}, "does not fit"),
            ({"region": ["X"]}, {"region": ["X"]}, "does not fit"),
            ({"region": "X"}, b'{"region": "\\ud800"}', "does not fit"),
        ],
    )
    def test_a_bad_record_is_told_and_the_others_are_taken_in(
        self, opened: Opened, key: Any, value: Any, reason: str
    ) -> None:
        build = opened.store.begin(spec(), TOPIC_ID)
        applied = opened.store.apply(build, 0, batch(sale("EU", 1.0), (key, value), sale("US", 2.0), start=40), 43)
        assert [(bad.offset, reason in bad.reason) for bad in applied.bad] == [(41, True)], applied.bad
        assert [row[0] for row in opened.rows()] == ["EU", "US"]
        assert build.offsets == {0: 43}
        [kept] = opened.store.builds()
        assert kept.bad == 1
        assert "offset 41" in (kept.last_bad or "")

    def test_a_bad_record_does_not_undo_an_earlier_one_of_its_key(self, opened: Opened) -> None:
        build = opened.store.begin(spec(), TOPIC_ID)
        opened.store.apply(build, 0, batch(sale("EU", 1.0), ({"region": "EU"}, b"?")), 2)
        assert [row[2] for row in opened.rows()] == [1.0]

    def test_many_rows_at_once_are_as_good_as_few(self, opened: Opened) -> None:
        """Rows, and keys with and without nulls, by the hundred, with bad records among them."""
        build = opened.store.begin(spec(key=["region", "orders"]), TOPIC_ID)

        def change(number: int, revenue: float | None) -> tuple[Any, Any]:
            key = {"region": None if number % 7 == 0 else f"r{number:03}", "orders": number}
            return key, None if revenue is None else {**key, "day": None, "revenue": revenue}

        opened.store.apply(build, 0, batch(*(change(number, 1.0) for number in range(600))), 600)
        news = [change(number, 2.0 if number % 2 else None) for number in range(500)]
        applied = opened.store.apply(build, 0, batch(*news, start=600), 1100)
        assert (applied.upserts, applied.deletes, list(applied.bad)) == (250, 250, [])
        model = {number: 2.0 for number in range(500) if number % 2} | dict.fromkeys(range(500, 600), 1.0)
        assert {row[3]: row[2] for row in opened.rows()} == model
        wrong = ({"region": "X", "orders": 9}, {"region": "X", "orders": 9, "revenue": "much"})
        news = [change(number, 3.0) for number in range(600)]
        applied = opened.store.apply(build, 0, batch(*news[:200], wrong, *news[200:], wrong, start=1100), 1702)
        assert [bad.offset for bad in applied.bad] == [1300, 1701]
        assert {row[3]: row[2] for row in opened.rows()} == dict.fromkeys(range(600), 3.0)

    def test_a_key_that_is_written_in_two_ways_is_one_key(self, opened: Opened) -> None:
        build = opened.store.begin(spec(), TOPIC_ID)
        row = {"region": "EU", "revenue": 1.0}
        twice = [(b'{"region":"EU"}', row), (b'{ "region" : "EU" }', row | {"revenue": 2.0})]
        opened.store.apply(build, 0, batch(*twice), 2)
        assert opened.rows() == [("EU", None, 2.0, None)]

    def test_names_are_only_names(self, opened: Opened) -> None:
        """Of views and columns, whatever is in them."""
        odd = 'sa"les; %s $1 {}'
        columns = {'"; DROP': "string", "%s": "double", "select": "bigint", "to_char": "timestamp", "T": "decimal(5,1)"}
        build = opened.store.begin(spec(columns, ['"; DROP'], name=odd), TOPIC_ID)
        row = {'"; DROP': "k", "%s": 1.0, "select": 2, "to_char": "2026-01-02T03:04:05.000000Z", "T": "10.0"}
        other = row | {'"; DROP': "l", "T": "9.5"}
        opened.store.apply(build, 0, batch(({'"; DROP': "k"}, row), ({'"; DROP': "l"}, other)), 2)
        found = opened.reader.select(("shop", odd), asked(build.spec, order="T", where=["to_char>2020-01-01", "%s=1"]))
        assert found.rows == [tuple(other.values()), tuple(row.values())]
        opened.store.apply(build, 0, batch(({'"; DROP': "k"}, None), start=2), 3)
        assert opened.rows(odd) == [tuple(other.values())]

    def test_a_column_that_a_record_lacks_is_null(self, opened: Opened) -> None:
        build = opened.store.begin(spec(), TOPIC_ID)
        opened.store.apply(build, 0, batch(({"region": "EU"}, {"region": "EU", "extra": 1})), 1)
        assert opened.rows() == [("EU", None, None, None)]

    def test_rows_and_offsets_are_found_again(self, place: Any) -> None:
        first = self.open(place)
        build = first.store.begin(spec(), TOPIC_ID)
        first.store.apply(build, 0, batch(sale("EU")), 10)
        first.store.apply(build, 1, None, 4)
        first.close()
        again = self.open(place)
        [found] = again.store.take("sales")
        assert (found.spec, found.topic_id, found.live, found.offsets) == (spec(), TOPIC_ID, True, {0: 10, 1: 4})
        assert len(again.rows()) == 1
        again.close()

    def test_a_transaction_that_fails_leaves_rows_and_offsets_as_they_were(self, opened: Opened) -> None:
        build = opened.store.begin(spec(), TOPIC_ID)
        opened.store.apply(build, 0, batch(sale("EU", 1.0)), 1)
        with pytest.raises(Exception, match=r"large|range"):
            opened.store.apply(build, 0, batch(sale("EU", 2.0)), 1 << 70)
        assert build.offsets == {0: 1}
        assert opened.store.builds()[0].offsets == {0: 1}
        assert [row[2] for row in opened.rows()] == [1.0]

    def test_a_build_beside_the_live_one_is_not_seen_until_it_takes_its_place(self, opened: Opened) -> None:
        old = opened.store.begin(spec(), TOPIC_ID)
        opened.store.apply(old, 0, batch(sale("EU", 1.0)), 1)
        new = opened.store.begin(spec({"region": "string", "total": "double"}, fingerprint="2"), TOPIC_ID)
        assert (old.live, new.live) == (True, False)
        opened.store.apply(new, 0, batch(({"region": "EU"}, {"region": "EU", "total": 5.0})), 1)
        assert opened.rows() == [("EU", "2026-01-02", 1.0, 1)]
        opened.store.swap(new)
        assert opened.rows() == [("EU", 5.0)]
        assert [build.number for build in opened.store.builds()] == [new.number]
        answer = opened.reader.sql("SELECT * FROM sales", (), LIMITS)
        assert answer.rows == [("EU", 5.0)]

    def test_what_is_dropped_is_gone(self, opened: Opened) -> None:
        for build in (opened.store.begin(spec(), TOPIC_ID), opened.store.begin(spec(name="other"), TOPIC_ID)):
            opened.store.apply(build, 0, batch(sale("EU")), 1)
        opened.store.drop(opened.store.builds()[0])
        assert [build.spec.name for build in opened.store.builds()] == ["other"]
        with pytest.raises(UnknownView):
            opened.reader.select(("shop", "sales"), asked(spec()))
        with pytest.raises(InvalidQuery):
            opened.reader.sql("SELECT * FROM sales", (), LIMITS)
        again = opened.store.begin(spec(), TOPIC_ID)
        assert (again.live, again.offsets, opened.rows()) == (True, {}, [])

    @settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
    @given(data=st.data())
    def test_a_store_holds_what_its_records_say(
        self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
    ) -> None:
        """Any batches, with the store closed and opened between them, leave what a dictionary would hold."""
        place = self.fresh_place(tmp_path_factory)
        regions = st.sampled_from(["a", "b", "c", None])
        good = st.tuples(regions, st.integers(0, 9)).map(lambda pair: sale(pair[0], float(pair[1]), pair[1]))
        gone = regions.map(lambda region: ({"region": region}, None))
        bad = regions.map(lambda region: ({"region": region}, b"{"))
        batches = data.draw(st.lists(st.tuples(st.lists(good | gone | bad, max_size=6), st.booleans()), max_size=5))
        opened = self.open(place)
        build = opened.store.begin(spec(), TOPIC_ID)
        model: dict[Any, Any] = {}
        start = 0
        for changes, reopened in batches:
            opened.store.apply(build, 0, batch(*changes, start=start) if changes else None, start + len(changes))
            start += len(changes)
            for key, value in changes:
                if value is None:
                    model.pop(key["region"], None)
                elif value != b"{":
                    model[key["region"]] = tuple(value.values())
            if reopened:
                opened.close()
                opened = self.open(place)
                [build] = opened.store.take("sales")
        assert opened.rows() == sorted(model.values(), key=repr)
        opened.close()

    def fresh_place(self, factory: pytest.TempPathFactory) -> Any:
        raise NotImplementedError
