"""What the page shows is what there is: numbers as they are, no record missed or doubled, nothing stale that says it is
live, whatever becomes of connections."""

from __future__ import annotations

import contextlib
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import confluent_kafka as ck
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.serving.browser import (
    AXE,
    chromium,
    click,
    go,
    keep_shot,
    kept,
    listed,
    needs_chromium,
    resize,
    rows,
    scheme,
    text,
    violations,
    wait_ready,
    write,
)
from tests.serving.live import eventually
from tests.serving.stage import Stage, minute, order

pytestmark = [pytest.mark.system, needs_chromium]

LARGE = 2**53 + 1


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    made = Stage(tmp_path_factory.mktemp("truth"))
    made.make("orders", 3)
    made.declare("shop", "revenue", ["minute"], {"minute": "timestamp", "revenue": "double", "orders": "bigint"})
    made.write("shop.revenue", [minute(at, at * 10.0) for at in range(1, 31)])
    yield made
    made.stop()


@pytest.fixture(scope="module")
def shared(stage: Stage) -> Iterator[webdriver.Chrome]:
    with chromium(1280, 1100) as driver:
        driver.get(stage.node.web)
        yield driver


@pytest.fixture
def browser(shared: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """The browser; at the end nothing has gone wrong in it."""
    yield shared
    assert [entry for entry in shared.get_log("browser") if entry["level"] == "SEVERE"] == []


def price(at: int, product: str, amount: float) -> tuple[Any, Any]:
    key = {"minute": f"2026-01-02T03:{at:02d}:00.000000Z", "product": product}
    return key, {**key, "price": amount}


def labels(browser: webdriver.Chrome) -> list[str]:
    """What is written at the chart's axes."""
    script = "return [...document.querySelectorAll('svg.chart text')].map((one) => one.textContent)"
    found: list[str] = browser.execute_script(script)
    return found


def lines(browser: webdriver.Chrome) -> int:
    return int(browser.execute_script("return document.querySelectorAll('svg.chart .line').length"))


def test_a_view_shows_its_numbers_as_they_are(stage: Stage, browser: webdriver.Chrome) -> None:
    stage.declare("shop", "ids", ["id"], {"id": "bigint", "part": "double"}, partitions=1)
    found = [(LARGE, 0.0042), (LARGE - 1, -0.002), (1234567, 7.125)]
    stage.write("shop.ids", [({"id": at}, {"id": at, "part": part}) for at, part in found])
    eventually(lambda: stage.get("/views/shop.ids"), lambda told: len(told[1].get("rows", ())) == 3)
    go(browser, "views/shop.ids")
    shown = eventually(lambda: rows(browser, "Rows"), lambda told: len(told) == 3)
    assert shown == [["1234567", "7.125"], [str(LARGE), "0.0042"], [str(LARGE - 1), "-0.002"]]
    keep_shot(browser, "exact-numbers")


def test_a_view_is_browsed_to_its_last_row(stage: Stage, browser: webdriver.Chrome) -> None:
    stage.declare("shop", "stars", ["id"], {"id": "bigint", "stars": "int", "name": "string"}, partitions=2)
    names = {7: "rock and roll", 8: 'say "hi"', 9: "O'Brien"}
    stage.write("shop.stars", [star(at, 3, names.get(at, f"n{at}")) for at in range(150)])
    eventually(lambda: stage.get("/views/shop.stars?limit=all"), lambda told: len(told[1].get("rows", ())) == 150)
    go(browser, "views/shop.stars")
    eventually(lambda: text(browser, "#place"), lambda said: said == "1 to 100 of 150 rows")
    assert [int(row[0]) for row in rows(browser, "Rows")] == list(range(100)), "all have as many stars"
    assert not browser.find_element(By.ID, "previous").is_enabled()
    click(browser, "#next")
    eventually(lambda: text(browser, "#place"), lambda said: said == "101 to 150 of 150 rows")
    assert [int(row[0]) for row in rows(browser, "Rows")] == list(range(100, 150))
    assert not browser.find_element(By.ID, "next").is_enabled()
    keep_shot(browser, "view-second-page")
    stage.write("shop.stars", [(star(at, 0, "")[0], None) for at in range(100, 150)])
    eventually(lambda: text(browser, "#place"), lambda said: said == "100 rows")
    assert browser.find_element(By.ID, "next").get_attribute("hidden")
    stage.write("shop.stars", [star(at, 3, "new") for at in range(200, 250)])
    write(browser, "#where", "stars>2")
    click(browser, "form button")
    eventually(lambda: text(browser, "#place"), lambda said: said == "1 to 100, and more")
    click(browser, "#next")
    eventually(lambda: text(browser, "#place"), lambda said: said == "101 to 150 of 150 rows")
    for condition, found in (
        ('name="rock and roll" and stars=3', [7]),
        ('stars = 3 AND name= "say ""hi"""', [8]),
        ("name=O'Brien and id>0", [9]),
        ("name is null and stars>0", []),
        ("id<2", [0, 1]),
    ):
        write(browser, "#where", condition)
        click(browser, "form button")
        eventually(lambda: rows(browser, "Rows"), lambda told, wanted=found: [int(row[0]) for row in told] == wanted)


def star(at: int, stars: int, name: str) -> tuple[Any, Any]:
    return {"id": at}, {"id": at, "stars": stars, "name": name}


def test_a_record_shows_its_numbers_as_they_were_written(stage: Stage, browser: webdriver.Chrome) -> None:
    stage.make("exact")
    value = '{"id":9007199254740993,"rate":1.10,"e":1E400,"none":{},"empty":[ ],'
    value += '"text":"a, {b}: \\"c\\" \\u00fc","n":[1,-0.0042]}'
    stage.produce("exact", [(b"k", value.encode(), [])])
    go(browser, "topics/exact")
    eventually(lambda: listed(browser), lambda items: len(items) == 1)
    click(browser, ".list .item")
    shown = eventually(lambda: text(browser, "#record pre"), bool)
    assert shown.splitlines() == [
        "{",
        '  "id": 9007199254740993,',
        '  "rate": 1.10,',
        '  "e": 1E400,',
        '  "none": {},',
        '  "empty": [],',
        '  "text": "a, {b}: \\"c\\" ü",',
        '  "n": [',
        "    1,",
        "    -0.0042",
        "  ]",
        "}",
    ]


def test_a_chart_goes_below_zero_and_has_a_line_for_each_key(stage: Stage, browser: webdriver.Chrome) -> None:
    columns = {"minute": "timestamp", "product": "string", "price": "double"}
    stage.declare("shop", "prices", ["minute", "product"], columns, partitions=1)
    products = ("apple", "fig", "kiwi", "lime", "pear", "plum", "yam")
    written = [price(at, name, index * 10.0 - 9.5) for at in range(60) for index, name in enumerate(products)]
    stage.write("shop.prices", written)
    eventually(lambda: stage.get("/views/shop.prices?limit=all"), lambda told: len(told[1]["rows"]) == len(written))
    go(browser, "views/shop.prices")
    eventually(lambda: lines(browser), lambda count: count == 5)
    assert text(browser, ".legend").split("\n") == ["kiwi", "lime", "pear", "plum", "yam", "and 2 more, not drawn"]
    assert not AXE.exists() or violations(browser) == []
    scheme(browser, "dark")
    resize(browser, 360, 900)
    assert not AXE.exists() or violations(browser) == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
    keep_shot(browser, "chart-of-keys-360-dark")
    scheme(browser, "light")
    resize(browser, 1280, 1100)
    newest_400 = 400 // len(products)
    points = browser.execute_script("return document.querySelectorAll('svg.chart .point.c0').length")
    assert points == newest_400, "the oldest minute, of which only a part was asked for, is not drawn"
    write(browser, "#where", "product=apple")
    click(browser, "form button")
    eventually(lambda: lines(browser), lambda count: count == 1)
    assert {"-12", "0"} <= set(labels(browser))
    assert browser.execute_script("return document.querySelectorAll('svg.chart .zero').length") == 1
    keep_shot(browser, "chart-below-zero")


def test_bars_go_below_zero(stage: Stage, browser: webdriver.Chrome) -> None:
    stage.declare("shop", "gains", ["who"], {"who": "string", "gain": "double"}, partitions=1)
    stage.write("shop.gains", [({"who": who}, {"who": who, "gain": gain}) for who, gain in (("a", 3.0), ("b", -6.0))])
    eventually(lambda: stage.get("/views/shop.gains"), lambda told: len(told[1].get("rows", ())) == 2)
    go(browser, "views/shop.gains")
    script = "return [...document.querySelectorAll('rect.bar')].map((bar) => bar.height.baseVal.value)"
    up, down = eventually(lambda: browser.execute_script(script), lambda found: len(found) == 2)
    assert 0 < up < down


def test_what_is_written_while_a_topic_is_opened_is_shown_once(stage: Stage, browser: webdriver.Chrome) -> None:
    stage.make("busy")
    over = threading.Event()

    def writing() -> None:
        at = 0
        while not over.wait(0.005):
            stage.produce("busy", [order(at)])
            at += 1

    writer = threading.Thread(target=writing)
    writer.start()
    try:
        for _ in range(3):
            go(browser, "topics/orders")
            go(browser, "topics/busy")
            eventually(lambda: text(browser, "#tail-count"), lambda said: "came" in said)
    finally:
        over.set()
        writer.join()
    end = stage.get("/topics/busy")[1]["partitions"][0]["end"]
    eventually(lambda: listed(browser), lambda items: f" 0:{end - 1} " in items[0])
    offsets = [int(place.partition(":")[2]) for place in kept(browser)]
    assert offsets == list(range(end - 1, end - 1 - len(offsets), -1))


def test_a_view_that_is_opened_while_it_changes_shows_each_change_once(stage: Stage, browser: webdriver.Chrome) -> None:
    go(browser, "views/shop.revenue")
    eventually(lambda: text(browser, "#view-status"), lambda said: said == "live")
    stage.write("shop.revenue", [minute(31, 999.5)])
    eventually(lambda: listed(browser), lambda items: items and "999.5" in items[0])
    assert len(places := kept(browser)) == len(set(places)) == 31


def test_four_tabs_work_and_those_in_the_back_hold_nothing_open(stage: Stage, browser: webdriver.Chrome) -> None:
    go(browser, "topics/orders")
    front = browser.current_window_handle
    eventually(lambda: text(browser, "#tail-status"), lambda said: said == "live")
    window(browser, "minimized")
    stage.produce("orders", [(b"unseen", b"{}", [])])
    others = []
    for at in range(3):
        browser.switch_to.new_window("window")
        others.append(browser.current_window_handle)
        browser.get(f"{stage.node.web}/#/topics/orders")
        wait_ready(browser, "topics/orders")
        eventually(lambda: text(browser, "#tail-status"), lambda said: said == "live")
        eventually(lambda: text(browser, "#status"), lambda said: said == "live")
        if at < 2:
            window(browser, "minimized")
    for handle in others:
        browser.switch_to.window(handle)
        browser.close()
    browser.switch_to.window(front)
    window(browser, "normal")
    eventually(lambda: listed(browser), lambda items: items and "unseen" in items[0])
    assert sum("unseen" in one for one in listed(browser)) == 1


def window(browser: webdriver.Chrome, state: str) -> None:
    number = browser.execute_cdp_cmd("Browser.getWindowForTarget", {})["windowId"]
    browser.execute_cdp_cmd("Browser.setWindowBounds", {"windowId": number, "bounds": {"windowState": state}})
    hidden = state == "minimized"
    eventually(lambda: browser.execute_script("return document.hidden"), lambda now: now is hidden)


def test_groups_that_are_not_listed_are_said_and_found(stage: Stage, browser: webdriver.Chrome) -> None:
    names = [f"group-{at:03}" for at in range(203)]
    asked = [ck.ConsumerGroupTopicPartitions(name, [ck.TopicPartition("orders", 0, 0)]) for name in names]
    for one in [stage.admin.alter_consumer_group_offsets([group])[group.group_id] for group in asked]:
        one.result(30)
    eventually(lambda: len(stage.get("/groups")[1]), lambda count: count == 203)
    go(browser, "groups")
    eventually(lambda: text(browser, "#more-groups"), lambda said: said == "+ 3 more: find them by name")
    assert len(rows(browser, "Groups")) == 200
    write(browser, "#filter", "202")
    eventually(lambda: rows(browser, "Groups"), lambda found: [row[0] for row in found] == ["group-202"])
    assert text(browser, "#more-groups") == ""


def test_who_is_refused_asks_again(stage: Stage, shared: webdriver.Chrome) -> None:
    """As after a restart, when a view is not known yet: the browser alone never comes back from a refusal."""
    shared.get("about:blank")
    with contextlib.ExitStack() as held:
        with contextlib.suppress(urllib.error.HTTPError):
            for _ in range(200):
                held.enter_context(urllib.request.urlopen(f"{stage.node.web}/topics/orders/tail", timeout=30))
        shared.get(f"{stage.node.web}/#/views/shop.revenue")
        eventually(lambda: text(shared, "#status"), lambda said: said == "the node does not answer")
        eventually(lambda: text(shared, "#view-status"), lambda said: said == "waiting for the node")
    eventually(lambda: text(shared, "#status"), lambda said: said == "live")
    eventually(lambda: text(shared, "#view-status"), lambda said: said == "live")
    assert all("429" in entry["message"] for entry in shared.get_log("browser"))


@pytest.mark.parametrize("kills", [1, 2])
def test_a_view_goes_on_when_the_node_is_killed(stage: Stage, shared: webdriver.Chrome, kills: int) -> None:
    go(shared, "views/shop.revenue")
    eventually(lambda: text(shared, "#view-status"), lambda said: said == "live")
    os.kill(stage.server_pid(), 9)
    stage.write("shop.revenue", [minute(40 + 2 * kills, 7000.0 + kills)])
    eventually(lambda: text(shared, "#status"), lambda said: said == "the node does not answer")
    eventually(lambda: text(shared, "#view-status"), lambda said: said == "live")
    eventually(lambda: rows(shared, "Rows")[0][1], lambda shown: shown == str(7000 + kills))
    stage.write("shop.revenue", [minute(41 + 2 * kills, 8000.0 + kills)])
    eventually(lambda: rows(shared, "Rows")[0][1], lambda shown: shown == str(8000 + kills))
    changes = eventually(lambda: listed(shared), lambda items: f"{8000 + kills}.0" in items[0])
    assert f"{7000 + kills}.0" in changes[1]
    places = kept(shared)
    assert len(places) == len(set(places)) >= 30 + 2 * kills
