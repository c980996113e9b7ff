"""The page in a real Chromium, over a real node: every screen, what is done there, and that everybody can use it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.bench_page import ROWS, Load, change, declare
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from headrace.feed.catalog import read_catalog
from headrace.feed.cluster import Cluster
from headrace.views.catalog import CATALOG_TOPIC
from tests.serving.browser import (
    AXE,
    chromium,
    click,
    confirm,
    go,
    keep_shot,
    listed,
    needs_chromium,
    resize,
    rows,
    scheme,
    text,
    violations,
    write,
)
from tests.serving.live import eventually
from tests.serving.stage import HTML, ORDERS, Stage, minute, query, staged

pytestmark = [pytest.mark.system, needs_chromium]

SCREENS = (
    "overview",
    "topics",
    "topics/orders",
    "topics/payments",
    "groups",
    "groups/billing",
    "queues",
    "queues/mailers",
    "dead-letters/mails.dead",
    "pipelines",
    "queries/shop/revenue",
    "queries/shop/top",
    "views",
    "views/shop.revenue",
    "views/shop.top",
    "aside",
    "aside/orders.dead",
    "aside/orders.late",
    "alerts",
    "alerts/shop/fraud",
)

DIALOGS = (
    ("write", "topics/orders", ["#produce"]),
    ("replay", "topics/orders", [".list .item", "#replay"]),
    ("confirm", "queries/shop/revenue", ["#stop"]),
    ("help", "overview", ["#help-button"]),
)


CHANGES = 25_000


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("page")) as made:
        yield made


@pytest.fixture(scope="module")
def shared(stage: Stage) -> Iterator[webdriver.Chrome]:
    with chromium(1280, 1100) as driver:
        driver.get(stage.node.web)
        yield driver


@pytest.fixture
def browser(shared: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """The browser; at the end nothing has gone wrong in it, and nothing of the log was taken for HTML."""
    yield shared
    assert [entry for entry in shared.get_log("browser") if entry["level"] == "SEVERE"] == []
    assert "broken in" not in shared.title


def test_the_overview_says_what_flows_what_lags_and_what_broke(stage: Stage, browser: webdriver.Chrome) -> None:
    go(browser, "overview")
    eventually(lambda: text(browser, "#status"), lambda said: said == "live")
    assert text(browser, "#queries-running") == "3 of 4"
    assert text(browser, "#rows-count") == "50"
    assert text(browser, "#aside-count") == "36"
    assert "iB" in text(browser, "#disk")
    assert text(browser, "#views-behind") == "0"
    assert text(browser, "#views-fresh") == "up to date"
    assert HTML in text(browser, ".trouble")
    assert "capture shop.customers" in text(browser, ".trouble")
    assert "alert shop.fraud" in text(browser, ".trouble")
    assert "billing" in [row[0] for row in rows(browser, "Groups that are behind")]
    stage.produce("payments", [(b"p", b"x", [])] * 40)
    eventually(lambda: text(browser, "#rate"), lambda said: said != "0/s")
    keep_shot(browser, "overview")


def test_topics_are_listed_and_found_by_name(browser: webdriver.Chrome) -> None:
    go(browser, "topics")
    found = eventually(lambda: {row[0]: row for row in rows(browser, "Topics")}, lambda told: "orders" in told)
    assert found["orders"][1:3] == ["3", str(ORDERS)]
    assert found["orders"][3].endswith("KiB")
    assert "__consumer_offsets" not in found
    write(browser, "#filter", "pay")
    eventually(lambda: [row[0] for row in rows(browser, "Topics")], lambda names: names == ["payments"])
    keep_shot(browser, "topics")


def test_records_come_as_they_are_written_and_are_shown_decoded(stage: Stage, browser: webdriver.Chrome) -> None:
    go(browser, "topics/orders")
    eventually(lambda: listed(browser), lambda items: len(items) > 10)
    eventually(lambda: text(browser, "#tail-status"), lambda said: said == "live")
    stage.produce("orders", [(b"fresh", b'{"amount": 1.5}', [("source", b"test")])])
    first = eventually(lambda: listed(browser)[0], lambda item: "fresh" in item)
    assert '{"amount": 1.5}' in first
    click(browser, ".list .item")
    eventually(lambda: text(browser, "#record"), lambda said: '"amount": 1.5' in said and "source" in said)
    browser.find_element(By.CSS_SELECTOR, ".list").send_keys(Keys.ARROW_DOWN)
    eventually(
        lambda: text(browser, "#record pre"), lambda said: "amount" in said and "1.5" not in said.splitlines()[1]
    )
    keep_shot(browser, "topic")


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({"from": "beginning", "value": "APAC"}, 20),
        ({"from": "0", "header": "source=app"}, 30),
        ({"from": "@2020-01-01", "key": "ORDER-1"}, 11),
        ({"from": "beginning", "value": "' OR 1=1 --"}, 0),
    ],
)
def test_records_are_found_by_place_time_key_value_and_header(
    browser: webdriver.Chrome, fields: dict[str, str], count: int
) -> None:
    go(browser, "topics/orders")
    for name, words in fields.items():
        write(browser, f"#{name}", words)
    click(browser, "#read")
    said = eventually(lambda: text(browser, "#tail-count"), lambda told: "found in" in told)
    assert said.startswith(f"{count} found")
    assert text(browser, "#tail-status") == "paused"


def test_what_is_in_the_log_is_text_and_never_markup(browser: webdriver.Chrome) -> None:
    go(browser, "topics/payments")
    write(browser, "#from", "beginning")
    click(browser, "#read")
    items = eventually(lambda: listed(browser), lambda found: any(HTML in one for one in found))
    assert any("base64" in one for one in items)
    script = "return [...document.querySelectorAll('.item')].find((item) => item.innerText.includes('onerror')).click()"
    browser.execute_script(script)
    eventually(lambda: text(browser, "#record"), lambda said: said.count(HTML) >= 3)
    assert browser.execute_script("return document.querySelectorAll('#screen img').length") == 0


def test_a_record_is_written_and_a_group_replays_from_it(stage: Stage, browser: webdriver.Chrome) -> None:
    go(browser, "topics/empty")
    eventually(lambda: text(browser, "#tail-status"), lambda said: said == "live")
    click(browser, "#produce")
    write(browser, "#new-key", "by hand")
    write(browser, "#new-value", '{"n": 1}')
    write(browser, "#new-headers", "why=test")
    click(browser, "#dialog-do")
    eventually(lambda: listed(browser), lambda items: len(items) == 1 and "by hand" in items[0])
    click(browser, ".list .item")
    eventually(lambda: text(browser, "#record"), lambda said: "why" in said)
    click(browser, "#replay")
    write(browser, "#replay-group", "again")
    click(browser, "#dialog-do")
    eventually(lambda: stage.get("/groups/again"), lambda told: told[0] == 200)
    [offset] = stage.get("/groups/again")[1]["offsets"]
    assert (offset["topic"], offset["committed"], offset["lag"]) == ("empty", 0, 1)


def test_a_tombstone_is_written_to_a_partition_and_one_is_read(stage: Stage, browser: webdriver.Chrome) -> None:
    stage.make("cards", 3)
    go(browser, "topics/cards")
    eventually(lambda: text(browser, "#tail-status"), lambda said: said == "live")
    for partition, key, nothing in (("2", "gone", True), ("1", "kept", False)):
        click(browser, "#produce")
        write(browser, "#new-key", key)
        if nothing:
            click(browser, "#new-null")
            assert not browser.find_element(By.ID, "new-value").is_enabled()
        choose(browser, "#new-partition", partition)
        click(browser, "#dialog-do")
        eventually(lambda: listed(browser), lambda items, key=key: items and key in items[0])
    found = stage.get("/topics/cards/records?from=beginning")[1]["records"]
    assert {(one["partition"], one["key"], one["value"]) for one in found} == {(2, "gone", None), (1, "kept", "")}
    choose(browser, "#partition", "2")
    eventually(lambda: listed(browser), lambda items: len(items) == 1 and "gone null" in items[0])
    eventually(lambda: text(browser, "#tail-status"), lambda said: said == "live")
    click(browser, "#read")
    eventually(lambda: text(browser, "#tail-count"), lambda said: said.startswith("1 found"))


def choose(browser: webdriver.Chrome, css: str, value: str) -> None:
    eventually(lambda: Select(browser.find_element(By.CSS_SELECTOR, css)).select_by_value(value) is None, bool)


def test_a_group_shows_its_lag_in_records_and_seconds_over_time(browser: webdriver.Chrome) -> None:
    go(browser, "groups")
    assert "billing" in [row[0] for row in rows(browser, "Groups")]
    go(browser, "groups/billing")
    found = eventually(lambda: rows(browser, "Offsets"), lambda told: len(told) == 3)
    assert all(int(row[4]) > 0 and row[5].endswith(("s", "min")) for row in found)
    eventually(lambda: browser.execute_script("return document.querySelectorAll('svg .line').length"), lambda n: n == 2)
    assert "Nobody is in it now" in text(browser, "#screen")
    keep_shot(browser, "group")


def test_a_group_shows_its_members(stage: Stage, browser: webdriver.Chrome) -> None:
    with stage.member("tellers", "orders"):
        go(browser, "groups")
        wanted = ["tellers", "classic", "stable", "1"]
        eventually(lambda: rows(browser, "Groups"), lambda found: wanted in [one[:4] for one in found])
        go(browser, "groups/tellers")
        [row] = eventually(lambda: rows(browser, "Members"), len)
        assert (row[0], row[2]) == ("teller-1", "orders[0] orders[1] orders[2]")
        keep_shot(browser, "group-members")
    eventually(lambda: text(browser, "#screen"), lambda said: "Nobody is in it now" in said)


def test_a_queue_shows_what_is_in_flight_and_who_works(stage: Stage, browser: webdriver.Chrome) -> None:
    with stage.holding("printers", "pages"):
        go(browser, "queues")
        wanted = ["printers", "pages", "3", "3", "0"]
        eventually(lambda: rows(browser, "Queues"), lambda found: wanted in [one[:5] for one in found])
        go(browser, "queues/printers")
        eventually(lambda: text(browser, "#screen dl"), lambda said: "in flight\n3" in said)
        [consumer] = eventually(lambda: rows(browser, "Members"), len)
        assert consumer[0] == "printer-1"
        keep_shot(browser, "queue-in-flight")


def test_queues_show_attempts_and_dead_letters_are_redriven(stage: Stage, browser: webdriver.Chrome) -> None:
    go(browser, "queues")
    assert rows(browser, "Queues")[0][:3] == ["mailers", "mails", "5"]
    go(browser, "queues/mailers")
    found = eventually(lambda: rows(browser, "Next records"), lambda told: len(told) == 5)
    assert found[0][1:4] == ["available", "1", "m-3"]
    keep_shot(browser, "queue")
    go(browser, "dead-letters/mails.dead")
    found = eventually(lambda: rows(browser, "Dead letters"), lambda told: len(told) == 2)
    assert found[0][4] == "rejected by a consumer"
    keep_shot(browser, "dead-letters")
    click(browser, '.redrive[data-letter="0:0"]')
    confirm(browser)
    eventually(lambda: rows(browser, "Dead letters"), lambda told: [row[0] for row in told] == ["0:1"])
    click(browser, "#redrive-all")
    confirm(browser)
    eventually(lambda: text(browser, "#screen"), lambda said: "No dead letters" in said)
    assert stage.get("/topics/mails")[1]["partitions"][0]["records"] >= 10


def test_pipelines_are_a_graph_with_the_numbers_of_each_query(browser: webdriver.Chrome) -> None:
    go(browser, "pipelines")
    script = """
        const words = (node) => [...node.querySelectorAll("text")].map((text) => text.textContent).join(", ");
        return [...document.querySelectorAll(".graph a")].map((node) => [node.getAttribute("href"), words(node)])
    """
    nodes = eventually(lambda: dict(browser.execute_script(script)), lambda found: len(found) == 9)
    revenue = nodes["#/queries/shop/revenue"]
    for fact in ("running", "118.4/s", "lag ", "watermark", "late 6", "dead 3", "state 3.2 MiB"):
        assert fact in revenue
    for fact in ("118.4/s", "2 sent", "1 waiting", "1 given up", "watermark"):
        assert fact in nodes["#/alerts/shop/fraud"]
    for fact in ("118.4/s", "30 rows", "watermark"):
        assert fact in nodes["#/views/shop.revenue"]
    assert browser.execute_script("return document.querySelectorAll('.graph .edge').length") == 8
    assert browser.execute_script("return document.querySelectorAll('.trouble-node').length") == 1
    keep_shot(browser, "pipelines")


def test_a_query_shows_its_batches_its_plan_and_its_last_error(browser: webdriver.Chrome) -> None:
    go(browser, "queries/shop/revenue")
    eventually(lambda: text(browser, "#plan"), lambda said: "HashAggregate" in said)
    assert browser.execute_script("return document.querySelectorAll('svg .point').length") == 40
    assert browser.execute_script("return document.querySelectorAll('svg rect.bar').length") == 4
    keep_shot(browser, "query")
    go(browser, "queries/shop/top")
    assert text(browser, "#last-error") == f"ValueError: {HTML}"


def test_a_query_is_told_to_restart_and_nobody_who_obeys_is_said(stage: Stage, browser: webdriver.Chrome) -> None:
    entry = stage.get("/queries/shop/top")[1]
    assert entry["state"] == "failed"
    go(browser, "queries/shop/top")
    click(browser, "#stop")
    confirm(browser)
    eventually(lambda: text(browser, "#toasts"), lambda said: "shop.top is failed" in said)


def test_a_running_query_is_restarted(stage: Stage, browser: webdriver.Chrome) -> None:
    """All of the way but for the app's run, which is played here: it sees the command and says what came of it."""
    go(browser, "queries/shop/revenue")
    played = threading.Thread(target=obey, args=(stage, "shop", "revenue"))
    played.start()
    click(browser, "#restart")
    keep_shot(browser, "restart")
    confirm(browser)
    played.join()
    eventually(lambda: text(browser, "#toasts"), lambda said: "shop.revenue is running" in said)
    eventually(lambda: text(browser, "#screen dl"), lambda said: "2026-01-02 05:00:00" in said)


def obey(stage: Stage, app: str, name: str) -> None:
    cluster = Cluster(stage.node.bootstrap, {})
    told = eventually(lambda: read_catalog(cluster, "command").get(f"{app}/{name}"), bool)
    assert told["action"] == "restart"
    entry = query(app, name, "view", since="2026-01-02T05:00:00.000000Z")
    stage.write(CATALOG_TOPIC, [(f"query/{app}/{name}".encode(), entry)])


def test_a_view_is_browsed_filtered_charted_and_followed(stage: Stage, browser: webdriver.Chrome) -> None:
    go(browser, "views")
    assert ["shop.revenue", "live", "30"] in [row[:3] for row in rows(browser, "Views")]
    go(browser, "views/shop.revenue")
    points = "return document.querySelectorAll('svg .point').length"
    eventually(lambda: browser.execute_script(points), lambda n: n == 30)
    assert rows(browser, "Rows")[0] == ["2026-01-02 03:30:00", "300", "30"]
    stage.write("shop.revenue", [minute(31, 999.5)])
    eventually(lambda: browser.execute_script(points), lambda n: n == 31)
    eventually(lambda: rows(browser, "Rows")[0], lambda row: row == ["2026-01-02 03:31:00", "999.5", "31"])
    eventually(lambda: listed(browser), lambda items: items and "999.5" in items[0])
    write(browser, "#where", "orders<3")
    click(browser, "form button")
    eventually(lambda: rows(browser, "Rows"), lambda found: [row[2] for row in found] == ["2", "1"])
    keep_shot(browser, "view")
    write(browser, "#where", "nope=1; DROP TABLE x")
    click(browser, "form button")
    eventually(lambda: text(browser, "#screen"), lambda said: "has no column 'nope'" in said)
    go(browser, "views/shop.top")
    eventually(lambda: browser.execute_script("return document.querySelectorAll('rect.bar').length"), lambda n: n == 14)
    assert all("400" in entry["message"] for entry in browser.get_log("browser"))


def test_late_and_dead_rows_say_why(browser: webdriver.Chrome) -> None:
    go(browser, "aside")
    found = eventually(lambda: rows(browser, "Topics of late and dead rows"), len)
    assert ["shop.revenue.dead", "dead", "shop.revenue", "3"] in found, "markers of transactions are no rows"
    assert ["orders.late", "late", "orders", "1"] in found
    go(browser, "aside/orders.late")
    [row] = eventually(lambda: rows(browser, "Rows"), len)
    assert row[1:5] == ["late", "30 minutes behind the watermark", "orders 0:7", "shop.revenue"]
    go(browser, "aside/orders.dead")
    [row] = eventually(lambda: rows(browser, "Rows"), len)
    assert (row[1], row[2], row[7]) == ("not JSON", HTML, "{oops")
    keep_shot(browser, "dead-rows")


def test_alerts_say_what_became_of_them(browser: webdriver.Chrome) -> None:
    go(browser, "alerts")
    [row] = eventually(lambda: rows(browser, "Alerts"), len)
    assert row == ["shop.fraud", "running", "4", "2", "1", "1"]
    go(browser, "alerts/shop/fraud")
    found = eventually(lambda: rows(browser, "Alerts sent"), lambda told: len(told) == 4)
    assert [one[1] for one in found] == ["waiting", "sent", "dead", "sent"]
    assert found[2][2] == "the receiver answered 410"
    keep_shot(browser, "alert")


@pytest.mark.parametrize("name", ["topics/nowhere", "groups/nobody", "views/none.such", "queries/a/b", "queues/nobody"])
def test_what_is_not_there_is_said(shared: webdriver.Chrome, name: str) -> None:
    go_anyway = "location.hash = arguments[0]"
    shared.execute_script(go_anyway, f"#/{name}")
    eventually(lambda: text(shared, "#screen"), lambda said: "There is n" in said or "there is no" in said)
    shared.get_log("browser")


def test_the_keyboard_is_enough(browser: webdriver.Chrome) -> None:
    go(browser, "overview")
    body = browser.find_element(By.TAG_NAME, "body")
    body.send_keys("g", "t")
    eventually(lambda: text(browser, "h1"), lambda said: said == "Topics")
    browser.find_element(By.ID, "screen").send_keys("/")
    eventually(lambda: browser.switch_to.active_element.get_attribute("id"), lambda at: at in ("filter", "internal"))
    browser.execute_script("document.activeElement.blur()")
    browser.find_element(By.TAG_NAME, "body").send_keys("?")
    eventually(lambda: browser.find_element(By.ID, "help").get_attribute("open"), bool)
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    eventually(lambda: browser.find_element(By.ID, "help").get_attribute("open"), lambda still: not still)
    browser.execute_script("document.activeElement.blur(); window.scrollTo(0, 0)")
    browser.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    outline = "return getComputedStyle(document.activeElement).outlineStyle"
    assert browser.execute_script(outline) == "solid"


def test_a_record_is_written_without_a_mouse(stage: Stage, browser: webdriver.Chrome) -> None:
    stage.make("typed")
    go(browser, "topics/typed")
    eventually(lambda: text(browser, "#tail-status"), lambda said: said == "live")
    browser.execute_script("document.getElementById('screen').focus()")
    tab_to(browser, "produce")
    press(browser, Keys.ENTER)
    tab_to(browser, "new-key")
    press(browser, "by keys")
    tab_to(browser, "new-value")
    press(browser, "x")
    tab_to(browser, "dialog-do")
    press(browser, Keys.ENTER)
    eventually(lambda: listed(browser), lambda items: items and "by keys x" in items[0])
    assert browser.execute_script("return document.activeElement.id") == "produce", "where one was before the dialog"
    tab_to(browser, "", "listbox")
    press(browser, Keys.ARROW_DOWN)
    eventually(lambda: text(browser, "#record"), lambda said: "by keys" in said)


def press(browser: webdriver.Chrome, keys: str) -> None:
    ActionChains(browser).send_keys(keys).perform()


def tab_to(browser: webdriver.Chrome, wanted: str, role: str = "") -> None:
    """Go on with the tab key until the element of this id, or role, has the focus."""
    script = "const at = document.activeElement; return [at.id, at.getAttribute('role') ?? '']"
    for _ in range(60):
        if browser.execute_script(script) == [wanted, role]:
            return
        press(browser, Keys.TAB)
    raise AssertionError(f"the tab key does not lead to {wanted}{role}")


def test_light_and_dark_are_switched_and_remembered(browser: webdriver.Chrome) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    scheme(browser, "light")
    light = browser.execute_script(ground)
    scheme(browser, "dark")
    assert browser.execute_script(ground) != light
    click(browser, "#theme")
    assert browser.execute_script(ground) == light
    browser.refresh()
    eventually(lambda: browser.execute_script(ground), lambda colour: colour == light)
    browser.execute_script("localStorage.clear(); delete document.documentElement.dataset.theme")
    scheme(browser, "light")


@pytest.mark.skipif(not AXE.exists() and not os.environ.get("CI"), reason="axe-core is not here: scripts/fetch-axe")
@pytest.mark.parametrize(("colours", "width"), [("light", 1280), ("dark", 360)])
def test_everybody_can_use_every_screen(browser: webdriver.Chrome, colours: str, width: int) -> None:
    scheme(browser, colours)
    resize(browser, width, 900)
    found: dict[str, Any] = {}
    for name in SCREENS:
        go(browser, name)
        if wrong := violations(browser):
            found[name] = wrong
        wide = browser.execute_script("return document.documentElement.scrollWidth")
        assert wide <= width, f"{name} is {wide} wide"
        keep_shot(browser, f"{name.replace('/', '-')}-{width}-{colours}")
    resize(browser, 1280, 1100)
    scheme(browser, "light")
    assert not found, json.dumps(found, indent=1)


@pytest.mark.skipif(not AXE.exists() and not os.environ.get("CI"), reason="axe-core is not here: scripts/fetch-axe")
@pytest.mark.parametrize(("colours", "width"), [("light", 1280), ("dark", 360)])
def test_everybody_can_use_every_dialog(stage: Stage, browser: webdriver.Chrome, colours: str, width: int) -> None:
    scheme(browser, colours)
    resize(browser, width, 900)
    found: dict[str, Any] = {}
    for name, screen, buttons in DIALOGS:
        go(browser, screen)
        for button in buttons:
            eventually(
                lambda css=button: browser.execute_script(f"document.querySelector('{css}').click()") is None, bool
            )
        eventually(lambda: browser.execute_script("return document.querySelector('dialog[open]') !== null"), bool)
        if wrong := violations(browser):
            found[name] = wrong
        wide = browser.execute_script("return document.querySelector('dialog[open]').getBoundingClientRect().right")
        assert wide <= width, f"{name} goes to {wide}"
        keep_shot(browser, f"dialog-{name}-{width}-{colours}")
        browser.execute_script("document.querySelector('dialog[open]').close()")
    resize(browser, 1280, 1100)
    scheme(browser, "light")
    assert not found, json.dumps(found, indent=1)


@pytest.mark.parametrize("kind", ["topics", "views"])
def test_5000_changes_a_second_come_through(stage: Stage, browser: webdriver.Chrome, kind: str) -> None:
    """The functional side of benchmarks/bench_page.py, which measures frames: all is written and counted, what is not
    shown is said, the page grows to no more elements than it has room for, and ends with what there is."""
    declare(stage)
    go(browser, f"{kind}/bench.live")
    status, count = ("#tail-status", "#tail-count") if kind == "topics" else ("#view-status", "#change-count")
    eventually(lambda: text(browser, status), lambda said: said == "live")
    load, most = Load(stage, "bench.live", 5000, CHANGES), 0
    load.start()
    while load.is_alive():
        most = max(most, browser.execute_script("return document.querySelectorAll('*').length"))
        load.join(0.25)
    assert load.written == CHANGES
    eventually(lambda: text(browser, count), lambda said: said.startswith("25K came"))
    assert "not shown" in text(browser, count)
    assert most < 2000
    assert browser.execute_script("return document.querySelectorAll('.list .item').length") < 60
    assert browser.execute_script("return document.querySelector('.list .pad').offsetHeight") <= 2000 * 27
    eventually(lambda: listed(browser), lambda items: items and f" 0:{end(stage) - 1} " in items[0])
    if kind == "views":
        last = sorted(
            (change(at) for at in range(CHANGES - ROWS, CHANGES)), key=lambda row: (-row["amount"], row["id"])
        )
        shown = [[str(row["id"]), f"{row['amount']:g}", row["region"]] for row in last[:100]]
        eventually(lambda: rows(browser, "Rows"), lambda found: found == shown)
        assert text(browser, "#place") == "1 to 100 of 5,000 rows"
    assert text(browser, "#status") == "live"


def end(stage: Stage) -> int:
    found: int = stage.get("/topics/bench.live")[1]["partitions"][0]["end"]
    return found


def test_nothing_is_fetched_from_elsewhere(browser: webdriver.Chrome) -> None:
    script = "return performance.getEntriesByType('resource').map((entry) => new URL(entry.name).origin)"
    assert set(browser.execute_script(script)) == {browser.execute_script("return location.origin")}


def test_the_page_says_when_the_node_is_gone_and_comes_back_with_it(stage: Stage, shared: webdriver.Chrome) -> None:
    go(shared, "topics/orders")
    eventually(lambda: text(shared, "#tail-status"), lambda said: said == "live")
    os.kill(stage.server_pid(), 9)
    eventually(lambda: text(shared, "#status"), lambda said: said == "the node does not answer")
    eventually(lambda: text(shared, "#status"), lambda said: said == "live")
    stage.produce("orders", [(b"after all", b"{}", [])])
    eventually(lambda: listed(shared), lambda items: items and "after all" in items[0])


def test_the_screen_of_a_query_outlives_the_node(stage: Stage, shared: webdriver.Chrome) -> None:
    go(shared, "queries/shop/revenue")
    os.kill(stage.server_pid(), 9)
    eventually(lambda: text(shared, "#status"), lambda said: said == "the node does not answer")
    eventually(lambda: text(shared, "#status"), lambda said: said == "live")
    entry = query("shop", "revenue", "view", restarts=7)
    stage.write(CATALOG_TOPIC, [(b"query/shop/revenue", entry)])
    eventually(lambda: text(shared, "#screen dl"), lambda said: "restarts\n7" in said)
    assert "There is nothing here" not in text(shared, "#screen")
