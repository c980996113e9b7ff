"""What every reader of views does. A kind of store is tested by a class that inherits these and says how to open it."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import InvalidQuery
from headrace.views.question import asked
from headrace.views.store import SqlLimits
from tests.views.store_laws import EVERY_TYPE, LIMITS, TOPIC_ID, Opened, batch, sale, spec


class ReaderLaws:
    """Inherit beside StoreLaws, which opens what is read here."""

    def test_text_is_ordered_by_its_bytes_and_null_is_the_smallest(self, opened: Opened) -> None:
        build = opened.store.begin(spec(), TOPIC_ID)
        words = ["a", "B", "ä", "Z", "_", None, "b", "é", "10", "9"]
        opened.store.apply(build, 0, batch(*(sale(word) for word in words)), len(words))
        ordered = [None, "10", "9", "B", "Z", "_", "a", "b", "ä", "é"]
        for order, expected in (("region", ordered), ("-region", ordered[::-1])):
            found = opened.reader.select(("shop", "sales"), asked(spec(), order=order, select="region"))
            assert [row[0] for row in found.rows] == expected
        found = opened.reader.select(("shop", "sales"), asked(spec(), where=["region>Z"], order="region"))
        assert [row[0] for row in found.rows] == ["_", "a", "b", "ä", "é"]

    def test_a_number_that_no_column_can_hold_is_no_question(self, opened: Opened) -> None:
        opened.store.begin(spec(), TOPIC_ID)
        with pytest.raises(InvalidQuery):
            opened.reader.select(("shop", "sales"), asked(spec(), where=[f"orders={1 << 70}"]))

    def test_answers_say_which_offsets_they_reflect(self, opened: Opened) -> None:
        build = opened.store.begin(spec(), TOPIC_ID)
        opened.store.apply(build, 0, batch(sale("EU")), 5)
        opened.store.apply(build, 2, None, 7)
        assert opened.reader.select(("shop", "sales"), asked(spec())).versions == {"shop.sales": {0: 5, 2: 7}}
        assert opened.reader.sql("SELECT count(*) FROM sales", (), LIMITS).versions == {"shop.sales": {0: 5, 2: 7}}
        assert opened.reader.sql("SELECT 1", (), LIMITS).versions == {}
        assert opened.reader.count(("shop", "sales")) == 1

    def test_questions_filter_order_and_cut(self, opened: Opened) -> None:
        build = opened.store.begin(spec(), TOPIC_ID)
        some = [sale("EU", 1.0, 3), sale("US", 9.5, 2), sale("AS", 10.0, 2, "2026-01-03"), sale(None, None, None)]
        opened.store.apply(build, 0, batch(*some), 4)

        def regions(**how: Any) -> list[Any]:
            return [row[0] for row in opened.reader.select(("shop", "sales"), asked(spec(), **how)).rows]

        assert regions(where=["region=EU"]) == ["EU"]
        assert sorted(regions(where=["region!=EU"])) == ["AS", "US"]
        assert regions(where=["revenue>1", "revenue<=9.5"]) == ["US"]
        assert regions(where=["day>=2026-01-03"]) == ["AS"]
        assert regions(where=["region is null"]) == [None]
        assert regions(where=["orders is not null"], order="-orders,-revenue") == ["EU", "AS", "US"]
        assert regions(order="-revenue", limit="2") == ["AS", "US"]
        assert regions(order="-revenue", limit="2", offset="1") == ["US", "EU"]
        chosen = opened.reader.select(("shop", "sales"), asked(spec(), select="orders,region", where=["region=EU"]))
        assert chosen.rows == [(3, "EU")]
        assert [column.name for column in chosen.columns] == ["orders", "region"]

    def test_who_does_not_say_how_many_is_told_of_more(self, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("headrace.views.question.DEFAULT_LIMIT", 2)
        build = opened.store.begin(spec(), TOPIC_ID)
        for start, counts in ((0, (1, False)), (1, (2, False)), (2, (2, True))):
            opened.store.apply(build, 0, batch(sale(f"region {start}"), start=start), start + 1)
            answer = opened.reader.select(("shop", "sales"), asked(spec()))
            assert (len(answer.rows), answer.truncated) == counts
        for limit, count in (("2", 2), ("3", 3), ("all", 3), ("5000000", 3), ("0", 0)):
            answer = opened.reader.select(("shop", "sales"), asked(spec(), limit=limit))
            assert (len(answer.rows), answer.truncated) == (count, False)

    def test_an_answer_that_is_too_large_is_refused_and_smaller_ones_are_not(
        self, opened: Opened, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("headrace.views.statement.ANSWER_BYTES", 1 << 20)
        build = opened.store.begin(spec(), TOPIC_ID)
        opened.store.apply(build, 0, batch(*(sale(f"{at} {'x' * 1000}") for at in range(1500))), 1500)
        for limit in ("all", "1500", "2000000"):
            with pytest.raises(InvalidQuery, match="larger than 1 MiB") as refused:
                opened.reader.select(("shop", "sales"), asked(spec(), limit=limit))
            assert "limit and offset" in str(refused.value)
        assert len(opened.reader.select(("shop", "sales"), asked(spec(), limit="800")).rows) == 800
        assert len(opened.reader.select(("shop", "sales"), asked(spec(), limit="all", select="revenue")).rows) == 1500

    def test_decimals_compare_as_numbers(self, opened: Opened) -> None:
        build = opened.store.begin(spec(EVERY_TYPE, ["id"]), TOPIC_ID)
        prices = ["9.5000", "10.0000", "-3.0000"]
        rows = [({"id": at}, {"id": at, "price": price}) for at, price in enumerate(prices)]
        opened.store.apply(build, 0, batch(*rows), 3)
        found = opened.reader.select(("shop", "sales"), asked(build.spec, order="price", where=["price>-5"]))
        assert [row[2] for row in found.rows] == ["-3.0000", "9.5000", "10.0000"]
        assert len(opened.reader.select(("shop", "sales"), asked(build.spec, where=["price=9.5"])).rows) == 1

    @pytest.mark.parametrize(
        "how",
        [
            {"where": ["nope=1"]},
            {"where": ["region"]},
            {"where": ["orders=many"]},
            {"where": ["day>yesterday"]},
            {"order": "nope"},
            {"select": "region,nope"},
            {"limit": "-1"},
            {"limit": "x"},
            {"offset": "1.5"},
            {"where": ['region"; DROP TABLE sales; --=1']},
        ],
    )
    def test_a_question_that_makes_no_sense_is_told(self, how: dict[str, Any]) -> None:
        with pytest.raises(InvalidQuery):
            asked(spec(), **how)

    def test_values_of_questions_are_only_values(self, opened: Opened) -> None:
        build = opened.store.begin(spec(), TOPIC_ID)
        evil = "x' OR '1'='1"
        opened.store.apply(build, 0, batch(sale("EU"), sale(evil)), 2)
        found = opened.reader.select(("shop", "sales"), asked(spec(), where=[f"region={evil}"]))
        assert [row[0] for row in found.rows] == [evil]

    @pytest.mark.parametrize(
        "statement",
        [
            "DELETE FROM sales",
            "INSERT INTO sales VALUES (1,2,3,4)",
            "DROP VIEW sales",
            "CREATE TABLE t (a)",
            "UPDATE sales SET revenue = 0",
            "SELECT * FROM headrace_builds",
            "SELECT * FROM shop.headrace_offsets",
            "SELECT * FROM sqlite_schema",
            "PRAGMA table_info(sales)",
            "ATTACH '/etc/passwd' AS x",
            "VACUUM",
            "BEGIN",
            "SELECT load_extension('x')",
            "SELECT 1; SELECT 2",
            "nonsense",
            "",
            "SELECT * FROM nowhere",
            "SELECT ?",
            "SELECT length(zeroblob(100000000))",
        ],
    )
    def test_sql_only_reads_views(self, opened: Opened, statement: str) -> None:
        build = opened.store.begin(spec(), TOPIC_ID)
        opened.store.apply(build, 0, batch(sale("EU")), 1)
        with pytest.raises(InvalidQuery):
            opened.reader.sql(statement, (), LIMITS)
        assert len(opened.rows()) == 1

    def test_sql_joins_views_and_takes_parameters(self, opened: Opened) -> None:
        for name in ("sales", "targets"):
            build = opened.store.begin(spec(name=name), TOPIC_ID)
            opened.store.apply(build, 0, batch(sale("EU", 1.0), sale("US", 2.0)), 2)
        answer = opened.reader.sql(
            "WITH x AS (SELECT * FROM sales) SELECT x.region, t.revenue + x.revenue AS both FROM x "
            "JOIN shop.targets t ON t.region = x.region WHERE x.region = ? ORDER BY 1",
            ("US",),
            LIMITS,
        )
        assert answer.rows == [("US", 4.0)]
        assert [(column.name, column.type) for column in answer.columns] == [("region", "string"), ("both", "double")]
        assert answer.versions.keys() == {"shop.sales", "shop.targets"}

    def test_sql_that_takes_too_long_is_stopped(self, opened: Opened) -> None:
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
        with pytest.raises(InvalidQuery, match="longer than"):
            opened.reader.sql(endless, (), SqlLimits(seconds=0.05))

    def test_sql_that_gives_too_many_rows_is_cut_and_says_so(self, opened: Opened) -> None:
        many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT i FROM n"
        answer = opened.reader.sql(many, (), LIMITS)
        assert (len(answer.rows), answer.truncated) == (100, True)
