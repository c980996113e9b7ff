"""``headrace state show``, ``query rescale`` and what ``query list`` counts, as a person uses them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest

from tests.cli.command import Cli
from tests.pipelines.kill_rounds import view
from tests.servers import Headrace

pytestmark = [pytest.mark.system, pytest.mark.timeout(1800)]

APP = """
import headrace as hr

app = hr.App("shop")
app.stream("orders", "customer string, amount long, at timestamp", event_time="at", lateness="1 second")

@app.view(key="customer")
def spent(orders):
    return hr.aggregate(orders, by="customer", total=hr.sum("amount"))

@app.derive()
def pairs(orders):
    return hr.match(orders, by="customer", pattern="A B", define={"A": "100 / amount > 1"})
"""
PATIENCE_S = 600.0


def send(node: Headrace, second: int, *rows: tuple[str | None, int]) -> None:
    producer = ck.Producer({"bootstrap.servers": node.bootstrap, "log_level": 0})
    for customer, amount in rows:
        row = {"customer": customer, "amount": amount, "at": f"2026-01-01T00:00:{second:02}Z"}
        producer.produce("orders", value=json.dumps(row).encode())
    assert producer.flush(60) == 0


def totals(node: Headrace) -> dict[str, int]:
    return {row["customer"]: row["total"] for row in view(node, "shop.spent").values()}


def test_state_is_shown_and_a_stopped_query_goes_on_in_other_buckets(tmp_path: Path) -> None:
    node = Headrace(tmp_path)
    cli = Cli(node.bootstrap, env={"HEADRACE_STATE_CACHE_MB": "0"})  # every bucket is larger than that
    file, data = tmp_path / "shop.py", ("--data", str(node.data))
    file.write_text(APP)

    def ran(*arguments: str) -> Any:
        done = cli.run(*arguments, timeout=PATIENCE_S)
        assert done.code == 0, done.err
        return done

    def run() -> None:
        ran("run", str(file), "--server", node.bootstrap, *data, "--until-idle")

    def dead() -> dict[str, int]:
        return {one["name"]: one["dead"] for one in ran("query", "list", "-o", "json").json}

    try:
        assert "no checkpoint of 'shop.spent'" in cli.run("state", "show", "shop.spent", *data).err
        send(node, 1, *((f"c{number}", 10) for number in range(12)), ("c1", 0), ("c2", 0))
        send(node, 9, ("late", 1))
        run()
        warned = (node.data / "spark" / "spark.log").read_text()
        assert "Hint: stop the app and put the keys into more buckets: `headrace query rescale shop.spent" in warned
        assert dead() == {"spent": 0, "pairs": 2}, "the rows that the condition divides by zero for"
        assert "by customer: 1 rows" in ran("state", "show", "shop.spent", "c1", *data).out

        assert "5000 buckets" in cli.run("query", "rescale", "shop.spent", "--buckets", "5000", *data).err
        told = ran("query", "rescale", "shop.spent", "--buckets", "3", *data).out
        assert told.startswith("shop.spent has 3 buckets now, before it had 8;")
        send(node, 19, ("c1", 5), ("c3", 0), ("new", 7))
        send(node, 29, ("late", 1))
        run()
        assert totals(node) == {**{f"c{n}": 10 for n in range(12)}, "c1": 15, "late": 2, "new": 7}
        assert dead() == {"spent": 0, "pairs": 3}
        shown = ran("state", "show", "shop.spent", *data, "-o", "json").ndjson
        (found,) = [one for one in shown if one["table"] == "groups"]
        assert (found["operator"], found["by"], found["rows"]) == (0, ["customer"], 14)
        assert {row["customer"]: row["count *"] for row in found["shown"]} == {
            **{f"c{n}": 1 for n in range(12)}, "c1": 3, "c2": 2, "c3": 2, "late": 2, "new": 1,
        }  # fmt: skip
        assert {row["_bucket"] for row in found["shown"]} == {0, 1, 2}
        pattern = ran("state", "show", "shop.pairs", "late", *data, "-o", "json").ndjson
        assert {one["table"]: one["rows"] > 0 for one in pattern} == {"progress": True, "rows": True}
        assert "operator 0, table progress, by customer: " in ran("state", "show", "shop.pairs", *data).out
    finally:
        node.stop()
