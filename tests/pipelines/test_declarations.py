"""What an app may declare, and how it is told of its mistakes: before Spark starts, with file, line and remedy."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError

import pytest

import headrace as hr
from headrace.errors import InvalidDeclaration
from headrace.pipelines.declarations import Kind, Query

ORDERS = "order_id string, customer_id long, amount double, ordered_at timestamp"


@pytest.fixture
def app() -> hr.App:
    app = hr.App("shop")
    app.stream("orders", ORDERS, event_time="ordered_at", lateness="10 minutes")
    app.table("customers", "id long, region string", key="id")
    return app


def line_of(marker: str) -> int:
    lines = inspect.getsource(sys.modules[__name__]).splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.strip().endswith(f"# {marker}"))


def test_declarations_are_frozen_data_in_the_order_they_were_made(app: hr.App) -> None:
    @app.view(key=["customer_id"])
    def spent(orders): ...  # type: ignore[no-untyped-def]

    assert [one.name for one in app] == ["orders", "customers", "spent"]
    orders, spent_query = app["orders"], app.queries[0]
    assert orders.event_time is not None
    assert orders.event_time.lateness_ms == 600_000
    assert [(c.name, c.type) for c in orders.columns][1] == ("customer_id", "bigint")
    assert (spent_query.id, spent_query.topic, spent_query.reads) == ("shop.spent", "shop.spent", ("orders",))
    with pytest.raises(FrozenInstanceError):
        orders.name = "other"


def test_an_error_names_the_line_of_the_mistake(app: hr.App) -> None:
    with pytest.raises(InvalidDeclaration) as caught:
        app.stream("clicks", "at string", event_time="at")  # the mistake
    assert caught.value.detail == f"{__file__}, line {line_of('the mistake')}"
    assert caught.value.hint == 'declare it as "at timestamp"'


def view_reading(app: hr.App, *names: str, key: list[str] | None = None, name: str = "made") -> None:
    scope: dict[str, object] = {}
    exec(f"def {name}({', '.join(names)}): ...", scope)
    app.view(key=key if key is not None else ["k"])(scope[name])  # type: ignore[type-var]


CLOCK = hr.DeviceClock(occurred="a", sent="a")
MISTAKES: list[tuple[str, Callable[[hr.App], object], str, str]] = [
    ("unknown event time", lambda a: a.stream("s", "at timestamp", event_time="at_"), "not a column", "mean 'at'"),
    ("event time of another type", lambda a: a.stream("s", "at long", event_time="at"), "is bigint", "at timestamp"),
    ("lateness without event time", lambda a: a.stream("s", "a int", lateness="1 h"), "no event time", "event_time="),
    ("lateness that is no length", lambda a: a.stream("s", "a int", lateness="soon"), "not a length", "10 minutes"),
    ("start that is no time", lambda a: a.stream("s", "a int", start="noon"), "cannot start at 'noon'", "2026-01-31T"),
    ("clock without event time", lambda a: a.stream("s", "a timestamp", clock=CLOCK), "no event time", "event_time="),
    ("schema that cannot be read", lambda a: a.stream("s", "a strin"), "'strin' is not a type", "order_id string"),
    ("schema with a column twice", lambda a: a.stream("s", "a int, A int"), "twice", "order_id string"),
    ("table key not a column", lambda a: a.table("t", "id long", key="uid"), "not a column", "id"),
    ("table without key", lambda a: a.table("t", "id long", key=[]), "no key", "key=[...]"),
    ("view without key", lambda a: view_reading(a, "orders", key=[]), "no key", "key=[...]"),
    ("view of an unknown stream", lambda a: view_reading(a, "order"), "not declared", "did you mean 'orders'?"),
    ("view that reads itself", lambda a: view_reading(a, "made"), "reads itself", "another name"),
    ("view that reads nothing", lambda a: view_reading(a), "reads nothing", "orders, customers"),
    ("two of one name", lambda a: view_reading(a, "customers", name="orders"), "two declarations", "rename"),
    ("a bad name", lambda a: a.stream("no.dots", "a int"), "cannot be the name", "letters"),
    ("a view with a name of ours", lambda a: view_reading(a, "orders", name="headrace_builds"), "of a view", "another"),
    ("an app's bad name", lambda a: hr.App("1st"), "cannot be the name of an app", "letters"),
    ("alert to nobody", lambda a: a.alert(to=None)(lambda orders: orders), "no channel", "hr.Webhook"),  # type: ignore[arg-type]
    ("webhook that is no address", lambda a: hr.Webhook("ops.example"), "not the address", "https://"),
    ("mail to nobody", lambda a: hr.Email("ops", sender="a@b"), "not a mail address", "@"),
    ("SQL, unknown stream", lambda a: a.view_sql("v", key="k", sql="FROM ordres"), "not declared", "orders"),
    ("SQL that reads itself", lambda a: a.view_sql("v", key="k", sql="FROM v"), "reads itself", "another name"),
    ("SQL over a table", lambda a: a.view_sql("v", key="k", sql="FROM customers"), "it is a table", "_changes"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "says", "hints"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES])
def test_a_mistake_is_an_error_that_says_what_where_and_what_to_do(
    app: hr.App, make: Callable[[hr.App], object], says: str, hints: str
) -> None:
    with pytest.raises(InvalidDeclaration) as caught:
        make(app)
    assert says in caught.value.message
    assert caught.value.detail is not None
    assert "line" in caught.value.detail
    assert caught.value.hint is not None
    assert hints in caught.value.hint


def test_a_view_in_sql_reads_what_its_text_names(app: hr.App) -> None:
    sql = """WITH big AS (SELECT * FROM orders WHERE amount > 10 -- from nowhere
             ) SELECT extract(hour FROM ordered_at) h, 'from here'
             FROM big JOIN customers_changes c ON c.id = customer_id"""
    query = app.view_sql("mixed", key="h", sql=sql)
    assert query.reads == ("orders", "customers")
    assert app.view_sql("listed", key="h", sql="select 1 from orders o, customers_changes").reads == query.reads


def test_a_derived_stream_can_be_read_and_an_alert_cannot(app: hr.App) -> None:
    @app.derive(key="order_id", event_time="ordered_at")
    def large(orders): ...  # type: ignore[no-untyped-def]

    @app.alert(to=hr.LogLine())
    def fraud(large): ...  # type: ignore[no-untyped-def]

    derived = app["large"]
    assert isinstance(derived, Query)
    assert (derived.kind, derived.topic, derived.id) == (Kind.DERIVE, "large", "shop.large")
    with pytest.raises(InvalidDeclaration, match="cannot be read"):
        view_reading(app, "fraud")


def test_a_table_used_as_a_dataframe_is_told_what_to_use() -> None:
    table = hr.Table("customers", ("id",), lambda: "the changes")  # type: ignore[arg-type,return-value]
    with pytest.raises(InvalidDeclaration, match=r"hr\.aggregate, or customers\.changes"):
        table.groupBy("region")
    with pytest.raises(InvalidDeclaration, match=r"hr\.enrich"):
        table._jdf  # noqa: B018
    with pytest.raises(InvalidDeclaration, match=r"customers\.changes"):
        table["region"]
    assert table.changes == "the changes"


def test_a_secret_is_not_printed() -> None:
    assert "hush" not in repr(hr.Webhook("https://ops.example/x", secret="hush"))
    assert "hush" not in repr(hr.Email("a@b", "c@d", password="hush"))


def test_declaring_imports_neither_spark_nor_starts_java() -> None:
    text = (
        "import sys, headrace as hr; a = hr.App('x'); a.stream('s', 'a int, t timestamp', event_time='t')\n"
        "assert not {'pyspark', 'polars', 'pyarrow', 'pandas'} & set(sys.modules), 'slow imports'"
    )
    subprocess.run([sys.executable, "-c", text], check=True)
