"""``GET /metrics`` of a node, read by Prometheus' own parser; the Grafana board and the documents, held against it."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from typing import Any

import confluent_kafka as ck
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.capture.status import TableStatus
from headrace.exposition import CONTENT_TYPE, Histogram
from headrace.feed.presence import began, this_machine
from headrace.pipelines.running import Status
from headrace.views.catalog import CATALOG_TOPIC
from tests.servers import ROOT
from tests.serving.live import LiveNode, eventually, live_node

pytestmark = pytest.mark.system

AWKWARD = 'so "called"\\ app'
Samples = dict[str, list[tuple[dict[str, str], float]]]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNode]:
    """A node with one of everything that metrics tell of."""
    with live_node(tmp_path_factory.mktemp("metrics")) as live:
        live.declare("shop", "sales", ["region"], {"region": "string", "revenue": "double"})
        live.write("shop.sales", [({"region": "EU"}, {"region": "EU", "revenue": 1.0}), ({"region": "US"}, b"no row")])
        for app in ("shop", AWKWARD):
            live.write(
                CATALOG_TOPIC, [(f"query/{app}/sales".encode(), status(app)), (f"capture/{app}/t".encode(), table(app))]
            )
        consumer = ck.Consumer({"bootstrap.servers": live.node.bootstrap, "group.id": "billing", "log_level": 0})
        consumer.commit(offsets=[ck.TopicPartition("shop.sales", index, 0) for index in range(2)], asynchronous=False)
        consumer.close()
        eventually(
            lambda: value(live, "headrace_view_bad_records_total", app="shop", view="sales"), lambda bad: bad == 1
        )
        yield live


def status(app: str) -> Any:
    times = Histogram()
    for seconds in (0.2, 0.3, 4.0):
        times.observe(seconds)
    told = Status(
        app, "sales", "view", "running", batch=2, rows_in=7, late=2, dead=1, restarts=3, pid=1, machine="other"
    )
    told.batch_seconds, told.watermark = times.to_json(), "2026-01-01T00:00:00.000Z"
    return {**vars(told), "progress": {"rate": 12.5, "state_rows": 4, "state_bytes": 4096}}


def table(app: str) -> Any:
    return TableStatus(app, "t", "postgres", "public.t", "streaming", 7, 100, 1.5, 1000, 5, 2, restarts=1).entry()


def scraped(node: LiveNode) -> str:
    with urllib.request.urlopen(f"{node.node.web}/metrics", timeout=30) as answer:
        assert answer.headers["Content-Type"] == CONTENT_TYPE
        text: str = answer.read().decode()
        return text


def samples(text: str) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        assert family.type in ("counter", "gauge", "histogram"), family.name
        for sample in family.samples:
            known = found.setdefault(sample.name, [])
            assert sample.labels not in [labels for labels, _ in known], f"{sample.name} is said twice"
            known.append((sample.labels, sample.value))
    return found


def value(node: LiveNode, name: str, **labels: str) -> float:
    [found] = [value for has, value in samples(scraped(node))[name] if labels.items() <= has.items()]
    return found


def test_one_scrape_tells_of_log_groups_queries_views_and_captures(node: LiveNode) -> None:
    for app in ("shop", AWKWARD):
        query = {"app": app, "query": "sales"}
        assert value(node, "headrace_query_state", **query, state="running") == 1
        assert value(node, "headrace_query_state", **query, state="failed") == 0
        assert value(node, "headrace_query_rows_total", **query) == 7
        assert value(node, "headrace_query_batch_seconds_count", **query) == 3
        assert value(node, "headrace_query_batch_seconds_bucket", **query, le="0.5") == 2
        assert value(node, "headrace_query_watermark_age_seconds", **query) > 0
        assert value(node, "headrace_capture_lag_bytes", app=app, table="t") == 100
    assert value(node, "headrace_view_rows", view="sales") == 1
    assert value(node, "headrace_view_behind_records", view="sales") == 0
    assert value(node, "headrace_view_freshness_seconds", view="sales") == 0
    assert value(node, "kafka_consumergroup_lag_sum", consumergroup="billing", topic="shop.sales") >= 2
    assert value(node, "headrace_fsync_seconds_count") >= 1
    assert value(node, "headrace_log_up") == 1


def test_a_query_whose_process_was_killed_is_gone(node: LiveNode) -> None:
    gone = {**status("dead"), "machine": this_machine(), "pid": 1, "began": (began(1) or 0) + 1}
    node.write(CATALOG_TOPIC, [(b"query/dead/sales", gone)])
    eventually(lambda: value(node, "headrace_query_state", app="dead", state="gone"), bool)
    node.write(CATALOG_TOPIC, [(b"query/dead/sales", None)])
    eventually(
        lambda: samples(scraped(node))["headrace_query_state"],
        lambda all_: not any(one["app"] == "dead" for one, _ in all_),
    )


# The board ---------------------------------------------------------------------------------------------------------

_METRIC = re.compile(r"\b((?:kafka|headrace)_\w+)(?:{([^}]*)})?")
_BY = re.compile(r"\bby \(([^)]*)\)")


def queries() -> Iterator[tuple[str, str]]:
    """Every query of the board and what its lines are called; and the alerts of the documents."""
    board = json.loads((ROOT / "deploy" / "grafana" / "headrace.json").read_text())
    for variable in board["templating"]["list"]:
        found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable.get("definition", ""))
        if found is not None:
            yield f"sum by ({found[2]}) ({found[1]})", ""
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"], target["legendFormat"]
    alerts = (ROOT / "docs" / "monitoring.md").read_text().partition("## Alerts worth having")[2].partition("##")[0]
    for expression in re.findall(r"^\| [^|]+ \| `(.*?)` \|", alerts, re.MULTILINE):
        yield expression.replace("\\|", "|"), ""


def test_every_metric_and_label_of_the_board_and_the_alerts_is_in_a_scrape(node: LiveNode) -> None:
    found = samples(scraped(node))
    seen = 0
    for query, legend in queries():
        labels: set[str] = set()
        for name, chosen in _METRIC.findall(query):
            if name in ("headrace_dead_letters_total", "headrace_dead_letters_waiting"):  # a queue has given up nothing
                labels |= {"consumergroup"}
                continue
            assert found.get(name), f"no sample of {name}: {query}"
            has = set(found[name][0][0])
            assert set(re.findall(r"(\w+)\s*=~?", chosen)) <= has, query
            labels |= has
            seen += 1
        for names in _BY.findall(query):
            assert set(names.split(", ")) <= labels, query
            labels = set(names.split(", "))
        assert set(re.findall(r"{{(\w+)}}", legend)) <= labels, f"{query}: {legend}"
    assert seen > 40


def test_the_board_fits_its_grid_and_takes_any_source_of_data() -> None:
    board = json.loads((ROOT / "deploy" / "grafana" / "headrace.json").read_text())
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in board["panels"]:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        assert panel["type"] == "row" or panel["datasource"]["uid"] == "${datasource}"


# The documents -----------------------------------------------------------------------------------------------------


def test_the_table_of_metrics_is_what_a_node_tells(node: LiveNode) -> None:
    text = scraped(node)
    found = samples(text)
    kinds = dict(re.findall(r"^# TYPE (\S+) (\w+)$", text, re.MULTILINE))
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE))
    rows = [
        f"| `{name}` | {kind} | {', '.join(f'`{one}`' for one in _labels(found, name))} | {helps[name]} |"
        for name, kind in kinds.items()
    ]
    page = (ROOT / "docs" / "monitoring.md").read_text()
    _, _, after = page.partition("| name | kind | labels | what |\n|---|---|---|---|\n")
    table_ = after.partition("\n\n")[0]
    assert table_ == "\n".join(rows), "docs/monitoring.md should say:\n" + "\n".join(rows)


def _labels(found: Samples, name: str) -> list[str]:
    unseen = {"headrace_dropped_records_total": ["topic", "partition"]}
    unseen |= {f"headrace_{one}": ["topic"] for one in ("throttled_requests_total", "held_producers")}
    unseen |= {f"headrace_dead_letters_{one}": ["consumergroup"] for one in ("waiting", "total")}
    known = found.get(name) or found.get(f"{name}_count")
    return list(known[0][0]) if known else unseen[name]
