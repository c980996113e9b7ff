"""The HTTP API, over a log in memory."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace import __version__
from headrace.errors import InvalidQuery, ServerAway
from headrace.serving.api import PAGE
from headrace.serving.hub import _Count
from headrace.views.catalog import CATALOG_TOPIC
from tests.serving.conftest import Site, running
from tests.views.memory_feed import MemoryFeed


def events(text: str) -> list[dict[str, Any]]:
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if "event" in fields:
            found.append({"event": fields["event"], "id": fields["id"], **json.loads(fields["data"])})
    return found


def test_it_says_that_it_is_there(site: Site) -> None:
    assert site.client.get("/ping").text == "ok\n"
    assert site.get("/version") == {"version": __version__, "log": "memory"}
    assert site.wait("/ready", lambda told: told["ready"]) == {"ready": True}
    assert site.get("/views") == []
    assert site.get("/queries") == []


def test_views_are_listed_with_what_they_are(shop: Site) -> None:
    [view] = shop.wait("/views", lambda told: told[0]["rows"] == 3)
    assert (view["app"], view["name"], view["key"], view["version"]) == ("shop", "sales", ["region"], "0:3")
    assert (view["state"], view["behind"], view["bad"], view["trouble"]) == ("live", 0, 0, None)
    assert view["columns"][0] == {"name": "region", "type": "string"}


def test_a_view_that_takes_long_to_count_is_told_with_the_rows_it_had(
    sales: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def too_long(view: Any) -> int:
        asked.append(view)
        raise InvalidQuery("the query took longer than 20 s")

    sales.wait("/views", lambda told: told[0]["rows"] == 3)
    monkeypatch.setattr("headrace.serving.hub.COUNT_EVERY_S", 3600.0)
    monkeypatch.setattr(sales.hub.reader, "count", too_long)
    monkeypatch.setattr(sales.hub, "_counts", {view: _Count(rows=3) for view in sales.hub.states})
    assert [sales.get("/views")[0]["rows"] for _ in range(3)] == [3, 3, 3]
    assert len(asked) == 1


def test_nothing_is_said_to_be_missing_before_the_catalog_was_read(tmp_path: Path) -> None:
    """A page takes 404 as the last word, and an empty graph for the truth: neither is, while a node starts."""
    feed = MemoryFeed(rows_at_once=1000)
    feed.append(CATALOG_TOPIC, b"query/shop/sales", {"app": "shop", "name": "sales", "kind": "alert"})
    is_open = threading.Event()

    def opened() -> MemoryFeed:
        if not is_open.is_set():
            raise ServerAway("the log is away")
        return feed

    with running(tmp_path, feed, opened) as site:
        for path in ("/views/sales", "/queries/shop/sales", "/pipelines", "/alerts", "/alerts/shop/sales"):
            assert "not known yet" in site.get(path, 503)["error"]
        command = site.client.post("/queries/shop/sales/restart")
        assert (command.status_code, "not known yet" in command.text) == (503, True)
        is_open.set()
        site.wait("/ready", lambda told: told["ready"])
        assert site.get("/queries/shop/sales")["kind"] == "alert"
        assert "no query shop.other" in site.get("/queries/shop/other", 404)["error"]
        assert site.get("/pipelines")["nodes"] != []


def test_streams_of_changes_are_counted_among_streams(shop: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shop.client.get("/views/sales/changes?from=start&until=0:3").status_code == 200
    monkeypatch.setattr("headrace.serving.asking.STREAMS", 0)
    assert shop.get("/views/sales/changes?from=start&until=0:3", 429) == {"error": "0 streams are open already"}


def test_rows_come_with_the_version_that_they_reflect(shop: Site) -> None:
    answer = shop.client.get("/views/sales?where=region=EU")
    assert answer.json()["rows"] == [{"region": "EU", "day": "2026-01-02", "revenue": 1.5, "open": True, "tags": ["a"]}]
    assert answer.json()["version"] == answer.headers["headrace-version"] == "0:3"
    assert answer.headers["cache-control"] == "no-store"


def test_integers_that_javascript_does_not_have_come_as_text_if_asked(site: Site) -> None:
    columns = {"id": "bigint", "in_it": "array<bigint>"}
    site.declare(name="ids", columns=columns, key=["id"])
    for at in (2**53, 2**53 + 1, 7):
        site.feed.append("shop.ids", {"id": at}, {"id": at, "in_it": [at, -at]})
    site.client.get("/views/ids?limit=0&wait_for=0:3&timeout=30")
    exact = site.get("/views/ids?exact=true&order=id")["rows"]
    assert [row["id"] for row in exact] == [7, "9007199254740992", "9007199254740993"]
    assert exact[2]["in_it"] == ["9007199254740993", "-9007199254740993"]
    assert site.get("/views/ids?order=id")["rows"][2]["id"] == 2**53 + 1


def test_rows_are_filtered_ordered_and_cut(shop: Site) -> None:
    def regions(question: str) -> list[str]:
        return [row["region"] for row in shop.get(f"/views/shop.sales?{question}")["rows"]]

    assert regions("order=-revenue&limit=2") == ["US", "AS/PAC"]
    assert regions("where=revenue>1.5&where=region!=US") == ["AS/PAC"]
    assert regions("where=open=true&order=region") == ["AS/PAC", "EU", "US"]
    assert shop.get("/views/sales?select=revenue&order=revenue&limit=1")["rows"] == [{"revenue": 1.5}]


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/views/nope", 404, "there is no view 'nope'"),
        ("/views/other.sales", 404, "there is no view"),
        ("/views/sales?where=nope=1", 400, "has no column 'nope'"),
        ("/views/sales?where=revenue=much", 400, "not a value of column 'revenue'"),
        ("/views/sales?limit=-1", 400, "not a number"),
        ("/views/sales?region=EU", 400, "there is no parameter 'region'"),
        ("/views/sales?format=xml", 400, "format=xml is not known"),
        ("/views/sales/nowhere", 404, "has no row 'nowhere'"),
        ("/views/sales/{", 400, "is not JSON"),
        ('/views/sales/["a","b"]', 400, "the key of view"),
        ("/views/sales?wait_for=x", 400, "is not a version"),
        ("/views/sales?wait_for=0:99&timeout=0.01", 409, "did not come"),
        ("/views/sales/changes?from=x", 400, "is not a version"),
        ("/views/sales/changes?from=0:99", 400, "not there yet"),
        ("/nowhere", 404, "there is nothing here"),
        ("/query", 405, "Method Not Allowed"),
    ],
)
def test_a_request_that_cannot_be_answered_says_why(shop: Site, path: str, status: int, sentence: str) -> None:
    told = shop.get(path, status)
    assert sentence in told["error"]


def test_a_row_is_found_by_its_key(shop: Site) -> None:
    told = shop.get("/views/sales/EU")
    assert (told["row"]["revenue"], told["version"]) == (1.5, "0:3")
    assert shop.get("/views/sales/AS/PAC")["row"]["revenue"] == 2.5
    assert shop.get('/views/sales/["US"]')["row"]["revenue"] == 10.0
    assert shop.get('/views/sales/{"region":"US"}')["row"]["revenue"] == 10.0


def test_a_row_is_found_by_a_key_of_several_columns(site: Site) -> None:
    columns = {"at": "timestamp", "n": "bigint", "x": "double"}
    site.declare(name="many", columns=columns, key=("at", "n"))
    key = {"at": "2026-01-02T03:04:00.000000Z", "n": 7}
    site.feed.append("shop.many", key, key | {"x": 0.5})
    nulls = {"at": None, "n": 1}
    site.feed.append("shop.many", nulls, nulls | {"x": 1.5})
    assert site.get("/views/many?wait_for=0:2")["version"] == "0:2"
    assert site.get("/views/many/2026-01-02T03:04:00Z/7")["row"]["x"] == 0.5
    assert site.get('/views/many/{"n":1,"at":null}')["row"]["x"] == 1.5
    assert "the key of view" in site.get("/views/many/7", 400)["error"]


def test_rows_come_as_csv_and_as_arrow(shop: Site) -> None:
    text = shop.client.get("/views/sales?format=csv&order=region&select=region,revenue").text
    assert text.splitlines() == ["region,revenue", "AS/PAC,2.5", "EU,1.5", "US,10.0"]
    answer = shop.client.get("/views/sales?order=region", headers={"Accept": "application/vnd.apache.arrow.stream"})
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table.column("revenue").to_pylist() == [2.5, 1.5, 10.0]
    assert table.schema.field("day").type == pa.date32()
    assert table.column("tags").to_pylist() == [["a"]] * 3
    assert answer.headers["headrace-version"] == "0:3"


def test_sql_reads_across_views(sales: Site) -> None:
    sales.declare(app="stock", name="levels", columns={"region": "string", "level": "int"})
    sales.feed.append("stock.levels", {"region": "EU"}, {"region": "EU", "level": 9})
    sales.get("/views/levels?wait_for=0:1")
    told = sales.query(
        "SELECT s.region, level FROM shop.sales s JOIN levels l USING (region) WHERE level > ?", params=[3]
    )
    assert told["rows"] == [["EU", 9]]
    assert told["versions"] == {"shop.sales": "0:3", "stock.levels": "0:1"}
    assert not told["truncated"]
    assert sales.query("SELECT region FROM sales ORDER BY 1", limit=1)["truncated"]
    plain = sales.client.post("/query", content="SELECT sum(revenue) AS total FROM sales").json()
    assert plain["rows"] == [[14.0]]


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'{"sql": 1}', b'{"sql": "SELECT 1", "params": {}}', b'{"sql": "SELECT 1", "params": [[]]}']
)
def test_what_is_no_query_is_told(shop: Site, body: bytes) -> None:
    answer = shop.client.post("/query", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert "the request is not a query" in answer.json()["error"]


def test_sql_cannot_write_or_look_elsewhere(shop: Site) -> None:
    for sql in ("DELETE FROM sales", "SELECT * FROM sqlite_schema", "PRAGMA journal_mode", "ATTACH 'x' AS y"):
        assert shop.query(sql, 400)["error"]
    assert len(shop.get("/views/sales")["rows"]) == 3


def test_views_of_several_apps_are_told_apart(sales: Site) -> None:
    sales.declare(app="depot", name="sales")
    assert "several apps" in sales.get("/views/sales", 400)["error"]
    assert sales.get("/views/depot.sales")["rows"] == []
    assert len(sales.get("/views/shop.sales")["rows"]) == 3


def test_changes_are_streamed_from_any_version(sales: Site) -> None:
    sales.put("EU", 7.0)
    sales.put("US", None)
    whole = events(sales.client.get("/views/sales/changes?from=start&until=0:5").text)
    assert [event["event"] for event in whole] == ["start"] + ["change"] * 5
    assert (whole[0]["version"], whole[0]["log_start"], whole[0]["view"]) == ("0:0", "0:0", "shop.sales")
    assert [(event["id"], event["key"]["region"]) for event in whole[1:]] == [
        ("0:1", "EU"),
        ("0:2", "US"),
        ("0:3", "AS/PAC"),
        ("0:4", "EU"),
        ("0:5", "US"),
    ]
    assert whole[4]["row"]["revenue"] == 7.0
    assert whole[5]["row"] is None
    part = sales.client.get("/views/sales/changes?until=0:5", headers={"Last-Event-ID": "0:4"}).text
    assert [event["id"] for event in events(part) if event["event"] == "change"] == ["0:5"]


def test_what_is_compacted_away_is_said(sales: Site) -> None:
    for revenue in (2.0, 3.0, 4.0):
        sales.put("EU", revenue)
    sales.feed.compact("shop.sales")
    changes = events(sales.client.get("/views/sales/changes?from=start&until=0:6").text)[1:]
    assert [(event["offset"], event["skipped"]) for event in changes] == [(1, 1), (2, 0), (5, 2)]


def test_what_is_older_than_the_log_is_said(sales: Site) -> None:
    kept = sales.feed.topics["shop.sales"][0]
    kept.records, kept.start = kept.records[2:], 2
    told = events(sales.client.get("/views/sales/changes?from=0:1&until=0:3").text)
    assert [event["event"] for event in told] == ["start", "gone", "change"]
    assert told[1]["asked"] == "0:1"
    assert told[1]["version"] == "0:2"


def test_a_bad_record_is_counted_and_is_no_change(sales: Site) -> None:
    sales.feed.append("shop.sales", {"region": "EU"}, b"{")
    sales.put("US", 3.0)
    [view] = sales.get("/views")
    assert (view["bad"], view["rows"] is not None) == (1, True)
    assert "offset 3" in view["last_bad"]
    changes = events(sales.client.get("/views/sales/changes?from=0:3&until=0:5").text)[1:]
    assert [event["offset"] for event in changes] == [4]


def test_a_rebuilt_view_is_said_to_be(sales: Site) -> None:
    sales.feed.create("anew")
    sales.feed.append("anew", {"region": "XX"}, {"region": "XX", "revenue": 1.0})
    sales.declare(topic="anew", fingerprint="2")
    sales.wait("/views", lambda told: told[0]["topic"] == "anew" and told[0]["version"] == "0:1")
    assert [row["region"] for row in sales.get("/views/sales")["rows"]] == ["XX"]


def test_queries_are_listed_with_their_last_error(site: Site) -> None:
    site.feed.append(CATALOG_TOPIC, b"query/shop/sales", {"state": "failed", "last_error": "boom", "restarts": 3})
    [told] = site.wait("/queries", len)
    assert told == {"app": "shop", "name": "sales", "state": "failed", "last_error": "boom", "restarts": 3}


def test_numbers_that_json_does_not_have_are_null(site: Site) -> None:
    site.declare()
    site.feed.append("shop.sales", {"region": "EU"}, b'{"region":"EU","revenue":1e999}')
    assert site.get("/views/sales?wait_for=0:1")["rows"][0]["revenue"] is None


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "10.0.0.1:8080", ""])
def test_a_node_on_the_loopback_interface_answers_to_no_other_name(shop: Site, host: str) -> None:
    assert shop.client.get("/views", headers={"Host": host}).status_code == 403


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost:8080", "[::1]:8080", "shop.localhost"])
def test_it_answers_to_loopback_names(shop: Site, host: str) -> None:
    assert shop.client.get("/views", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://127.0.0.1:8080", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:9999"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_a_query_from_another_site_is_refused(shop: Site, headers: dict[str, str], status: int) -> None:
    assert shop.client.post("/query", json={"sql": "SELECT 1"}, headers=headers).status_code == status


def test_the_page_needs_nothing_from_elsewhere(shop: Site) -> None:
    files = [f"/page/{path.relative_to(PAGE).as_posix()}" for path in PAGE.rglob("*.*")]
    assert len(files) > 15
    for path in ("/", *files):
        answer = shop.client.get(path)
        assert answer.status_code == 200, path
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        told = answer.text.replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in told
        assert "https://" not in told
        assert "innerHTML" not in told.replace("outerHTML", "")
        assert " style=" not in told
        assert "onclick=" not in told
