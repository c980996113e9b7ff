"""Apps from end to end, in the test's own process: windows, crashes, lost checkpoints, keys, rebuilds."""

from __future__ import annotations

import datetime as dt
import re
import signal
from pathlib import Path

import pytest

import headrace as hr
from headrace import F
from headrace.errors import HeadraceError, InvalidDeclaration
from headrace.pipelines.checkpoint import Checkpoint
from headrace.pipelines.generations import ChangedQuery, CheckpointLost
from headrace.pipelines.plan import planned
from headrace.pipelines.sink import Sink, Superseded
from headrace.testing import AppUnderTest, Crash
from headrace.testing.app import shared_spark
from tests.pipelines.conftest import ORDERS, at, order, revenue_row

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]


def test_a_window_shows_partial_results_and_becomes_final_when_the_watermark_has_passed(
    shop: hr.App, tmp_path: Path
) -> None:
    with AppUnderTest(shop, tmp_path) as run:
        run.send("orders", order(1, 5), order(2, 50, 2.5))
        assert run.view("revenue") == [revenue_row(0, 1, 3.5, 2, final=False)]
        run.send("orders", order(3, 65, 4.0))
        assert run.view("revenue") == [revenue_row(0, 1, 3.5, 2, final=False), revenue_row(1, 1, 4.0, 1, final=False)]
        run.send("orders", order(4, 75, 1.0))
        assert run.view("revenue") == [revenue_row(0, 1, 3.5, 2, final=True), revenue_row(1, 1, 5.0, 2, final=False)]
        changes = [(row["minute"], row["final"]) for row in run.stream("revenue")]
        assert changes.count((at(0), True)) == 1


def test_after_a_crash_at_any_point_of_writing_every_row_counts_once(shop: hr.App, tmp_path: Path) -> None:
    with AppUnderTest(shop, tmp_path) as run:
        run.send(
            "orders",
            *(order(n, n, 100.0) for n in range(5)),
            Crash("before-commit"),
            *(order(n, n, 100.0) for n in range(5, 9)),
            Crash("after-commit"),
            Crash("after-commit"),
            order(9, 80, 100.0),
        )
        assert run.view("revenue") == [
            revenue_row(0, 1, 900.0, 9, final=True),
            revenue_row(1, 1, 100.0, 1, final=False),
        ]
        assert [row["order_id"] for row in run.stream("large")] == [str(n) for n in range(10)]


def test_batches_that_spark_forgot_are_not_written_twice(shop: hr.App, tmp_path: Path) -> None:
    with AppUnderTest(shop, tmp_path) as run:
        for number in range(4):
            run.send("orders", order(number, number * 30, 100.0))
        assert run.runner is not None
        checkpoints = [Path(job.checkpoint.where) for job in run.runner.jobs.values()]
        run.stop()
        for batches, path in enumerate(checkpoints, 1):
            forget(path, batches)
        run.start()
        run.send("orders", order(4, 100, 100.0))
        assert [row["order_id"] for row in run.stream("large")] == [str(n) for n in range(5)]
        assert run.view("revenue") == [
            revenue_row(0, 1, 200.0, 2, final=True),
            revenue_row(1, 1, 300.0, 3, final=False),
        ]


def forget(checkpoint: Path, batches: int) -> None:
    """As a power cut does: the last files of Spark's logs were never synced."""
    for folder in ("commits", "offsets"):
        numbers = sorted((int(f.name) for f in (checkpoint / folder).iterdir() if f.name.isdigit()), reverse=True)
        for number in numbers[:batches]:
            (checkpoint / folder / str(number)).unlink()
            (checkpoint / folder / f".{number}.crc").unlink(missing_ok=True)


def test_an_older_run_is_fenced_and_knows_it(shop: hr.App, tmp_path: Path) -> None:
    with AppUnderTest(shop, tmp_path) as run:
        run.send("orders", order(1, 5))
        assert run.runner is not None
        job = run.runner.jobs["revenue"]
        newer = Sink(job.cluster, job.sink.target, Checkpoint(job.checkpoint.folder))
        newer.claim()
        newer.ready()
        with pytest.raises(HeadraceError, match="FENCED"):
            run.send("orders", order(2, 6))
        with pytest.raises(Superseded, match="taken over"):
            job.start()
        newer.close()


def test_a_row_without_a_key_is_a_dead_letter_and_of_two_with_one_key_the_last_counts(tmp_path: Path) -> None:
    app = hr.App("keys")
    app.stream("orders", ORDERS)
    app.view_sql("latest", key="customer_id", sql="SELECT customer_id, order_id FROM orders")
    with AppUnderTest(app, tmp_path) as run:
        run.send("orders", order(1, 0), order(2, 0, customer=None), order(3, 0), order(4, 0, customer=2))
        assert run.view("latest") == [
            {"customer_id": 1, "order_id": "3"},
            {"customer_id": 2, "order_id": "4"},
        ]
        (letter,) = run.letters("keys.latest.dead")
        assert (letter.reason, letter.value) == ("null-key", b'{"customer_id":null,"order_id":"2"}')


def test_views_read_derived_streams_and_the_changes_of_views(shop: hr.App, tmp_path: Path) -> None:
    @shop.view(key="customer_id")
    def big_spenders(large):  # type: ignore[no-untyped-def]
        return large.groupBy("customer_id").count()

    @shop.view(key="customer_id")
    def seen(big_spenders):  # type: ignore[no-untyped-def]
        return big_spenders.changes.select("customer_id", "count", (hr.F.col("count") > 1).alias("_deleted"))

    with AppUnderTest(shop, tmp_path) as run:
        run.send("orders", order(1, 1, 100.0), order(2, 2, 200.0, customer=2), order(3, 3, 5.0))
        assert run.view("big_spenders") == [{"customer_id": 1, "count": 1}, {"customer_id": 2, "count": 1}]
        assert run.view("seen") == run.view("big_spenders")
        run.send("orders", order(4, 4, 100.0))
        assert run.view("big_spenders") == [{"customer_id": 1, "count": 2}, {"customer_id": 2, "count": 1}]
        assert run.view("seen") == [{"customer_id": 2, "count": 1}]


def changed(factor: int) -> hr.App:
    app = hr.App("shop")
    app.stream("orders", ORDERS, event_time="ordered_at")
    sql = f"SELECT customer_id, sum(amount) * {factor} AS total FROM orders GROUP BY customer_id"
    app.view_sql("totals", key="customer_id", sql=sql)

    @app.view(key="customer_id")
    def copied(totals):  # type: ignore[no-untyped-def]
        return totals.changes.select("customer_id", "total")

    return app


def test_a_changed_view_is_refused_until_it_is_rebuilt_with_all_that_reads_it(tmp_path: Path) -> None:
    with AppUnderTest(changed(1), tmp_path) as run:
        run.send("orders", order(1, 0, 5.0))
        run.stop()
        run.app = changed(2)
        with pytest.raises(ChangedQuery, match="--rebuild"):
            run.start()
        run.rebuild = True
        run.start()
        run.settle()
        assert run.view("totals") == run.view("copied") == [{"customer_id": 1, "total": 10.0}]
        assert run.stream("shop.totals") == [{"customer_id": 1, "total": 5.0}], "the old one is left alone"
        assert run.stream("shop.totals.g2") == run.view("totals")
        run.stop()
        run.rebuild = False
        run.start()
        run.send("orders", order(2, 1, 1.0))
        assert run.view("totals") == run.view("copied") == [{"customer_id": 1, "total": 12.0}]


def test_a_lost_checkpoint_is_refused_with_two_ways_out(tmp_path: Path) -> None:
    with AppUnderTest(changed(1), tmp_path) as run:
        run.send("orders", order(1, 0, 5.0))
        assert run.runner is not None
        paths = [job.checkpoint for job in run.runner.jobs.values()]
        run.stop()
        for checkpoint in paths:
            checkpoint.delete()
        with pytest.raises(CheckpointLost, match=r"--rebuild.*--from TIME"):
            run.start()
        run.clock.advance(60_000)
        run.start_from = dt.datetime.fromtimestamp(run.clock.now_ms() / 1000, dt.UTC).isoformat()
        run.start()
        run.send("orders", order(2, 1, 1.0))
        assert run.view("totals") == [{"customer_id": 1, "total": 1.0}], "state is empty, and old rows are not read"


def no_such_column(orders):  # type: ignore[no-untyped-def]
    return orders.select("nothing")


def no_key(orders):  # type: ignore[no-untyped-def]
    return orders.select("amount")


def no_frame(orders):  # type: ignore[no-untyped-def]
    return 5


def two_of_a_name(orders):  # type: ignore[no-untyped-def]
    return orders.select("order_id", "order_id")


def sorts(orders):  # type: ignore[no-untyped-def]
    return orders.orderBy("order_id")


def counts(orders):  # type: ignore[no-untyped-def]
    return orders.where(f"amount > {orders.count()}")


def raises(orders):  # type: ignore[no-untyped-def]
    return 1 / 0


def in_windows_of_spark(orders):  # type: ignore[no-untyped-def]
    return orders.groupBy(F.window("ordered_at", "1 minute")).agg(F.sum("amount"), hr.count_distinct("customer_id"))


def of_no_column(orders):  # type: ignore[no-untyped-def]
    return orders.select(hr.sum("amount").alias("total"))


def given_to_a_function_of_its_own(orders):  # type: ignore[no-untyped-def]
    def mine(frame, n):  # type: ignore[no-untyped-def]
        raise KeyError("a typo")

    return orders.transform(mine, n=hr.count())


def test_an_aggregate_that_is_given_to_spark_is_told_with_its_line_and_what_to_say_instead() -> None:
    says = {
        in_windows_of_spark: "hr.count_distinct('customer_id') to Spark",
        of_no_column: "hr.sum('amount') to Spark",
    }
    for function, sentence in says.items():
        app = hr.App("shop")
        app.stream("orders", ORDERS, event_time="ordered_at")
        app.view(key="customer_id")(function)
        with pytest.raises(InvalidDeclaration, match=re.escape(sentence)) as caught:
            planned(shared_spark(), app)
        assert caught.value.detail == f"{__file__}, line {function.__code__.co_firstlineno + 1}"
        assert "hr.aggregate(..., by=[hr.tumbling(" in (caught.value.hint or "")
        assert ("F.approx_count_distinct('customer_id')" in (caught.value.hint or "")) == (
            function is in_windows_of_spark
        )


def test_a_mistake_in_a_function_is_found_before_a_query_starts(tmp_path: Path) -> None:
    says = {
        no_such_column: "`nothing` cannot be resolved",
        no_key: "'order_id', is not a column of its result",
        no_frame: "returns int",
        two_of_a_name: "two columns 'order_id'",
        raises: "ZeroDivisionError",
        given_to_a_function_of_its_own: "a typo",
        sorts: "Sorting is not supported",
        counts: "streaming sources must be executed",
    }
    for function, sentence in says.items():
        app = hr.App("shop")
        app.stream("orders", ORDERS)
        app.view(key="order_id")(function)
        with pytest.raises(InvalidDeclaration, match=sentence) as caught:
            planned(shared_spark(), app)
        assert caught.value.detail is not None
        assert caught.value.detail.startswith(f"{__file__}, line ")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "Ctrl-C is ours, not Spark's"
