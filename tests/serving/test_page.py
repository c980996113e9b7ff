"""The page in a real browser: its numbers and its chart follow the views."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

from headrace.views.catalog import CATALOG_TOPIC
from tests.serving.live import LiveNode, eventually, live_node

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        not (shutil.which("chromium") and shutil.which("chromedriver")),
        reason="chromium is not installed: apt-get install chromium chromium-driver",
    ),
]

ARTEFACTS = Path(__file__).resolve().parents[2] / ".tools" / "artefacts"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1280,1500",
)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNode]:
    with live_node(tmp_path_factory.mktemp("page")) as node:
        columns = {"minute": "timestamp", "revenue": "double", "orders": "bigint"}
        node.declare("shop", "revenue", ["minute"], columns, partitions=1)
        node.declare("shop", "top", ["product"], {"product": "string", "sold": "bigint"}, partitions=1)
        node.write("shop.revenue", [minute(at, at * 10.0) for at in range(1, 31)])
        node.write("shop.top", [product(f"product {at}", at) for at in range(1, 20)])
        node.write(
            CATALOG_TOPIC,
            [
                (b"query/shop/revenue", {"kind": "view", "state": "running", "rows_in": 12345, "late": 6, "dead": 7}),
                (
                    b"query/shop/top",
                    {"kind": "view", "state": "failed", "last_error": "ValueError: <b>boom</b>"},
                ),
            ],
        )
        yield node


def minute(at: int, revenue: float) -> tuple[Any, Any]:
    key = {"minute": f"2026-01-02T03:{at:02d}:00.000000Z"}
    return key, {**key, "revenue": revenue, "orders": at}


def product(name: str, sold: int) -> tuple[Any, Any]:
    return {"product": name}, {"product": name, "sold": sold}


@pytest.fixture(scope="module")
def browser(live: LiveNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = Options()
    for flag in FLAGS:
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('chromium')}")
    options.binary_location = str(shutil.which("chromium"))
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, Service(str(shutil.which("chromedriver"))))
    driver.get(live.node.web)
    yield driver
    driver.quit()


def text(browser: webdriver.Chrome, css: str) -> str:
    return browser.find_element(By.CSS_SELECTOR, css).text


def cells(browser: webdriver.Chrome, css: str) -> list[list[str]]:
    """The cells of a table, read at once: the page redraws it meanwhile."""
    script = (
        "return [...document.querySelectorAll(arguments[0] + ' tbody tr')].map(r => [...r.cells].map(c => c.innerText))"
    )
    found: list[list[str]] = browser.execute_script(script, css)
    return found


def count(browser: webdriver.Chrome, css: str) -> int:
    return int(browser.execute_script("return document.querySelectorAll(arguments[0]).length", css))


def test_the_page_shows_numbers_and_a_chart_that_follow_the_views(live: LiveNode, browser: webdriver.Chrome) -> None:
    eventually(lambda: text(browser, "#rows-count"), lambda found: found == "49")
    assert text(browser, "#views-count") == "2"
    eventually(lambda: count(browser, "#chart .point"), lambda found: found == 30)
    assert text(browser, "#chart-title") == "revenue: revenue"
    assert cells(browser, "#rows")[0] == ["2026-01-02 03:30:00", "300", "30"]
    before = browser.execute_script("return document.querySelector('#chart .line').getAttribute('d')")
    live.write("shop.revenue", [minute(31, 999.5)])
    eventually(lambda: count(browser, "#chart .point"), lambda found: found == 31)
    eventually(lambda: text(browser, "#rows-count"), lambda found: found == "50")
    assert browser.execute_script("return document.querySelector('#chart .line').getAttribute('d')") != before
    eventually(lambda: cells(browser, "#rows")[0], lambda row: row == ["2026-01-02 03:31:00", "999.5", "31"])


def test_another_view_can_be_chosen(browser: webdriver.Chrome) -> None:
    browser.execute_script(
        "const s = document.getElementById('view-choice'); s.value = 'shop.top'; s.dispatchEvent(new Event('change'))"
    )
    eventually(lambda: count(browser, "#chart .bar"), lambda found: found == 12)
    assert text(browser, "#chart-title") == "top: sold"
    assert cells(browser, "#rows")[0] == ["product 19", "19"]


def test_queries_are_shown_with_state_and_last_error_as_text(browser: webdriver.Chrome) -> None:
    rows = eventually(lambda: cells(browser, "#queries"), lambda found: len(found) == 2)
    assert rows[0][:6] == ["shop.revenue", "view", "running", "12,345", "6", "7"]
    assert rows[1][0] == "shop.top"
    assert rows[1][8] == "ValueError: <b>boom</b>"
    assert text(browser, "#queries-failed") == "1"


def test_a_query_in_the_page_is_allowed_and_nothing_is_fetched_from_elsewhere(browser: webdriver.Chrome) -> None:
    script = """
        const done = arguments[0];
        fetch("query", {method: "POST", headers: {"Content-Type": "application/json"},
            body: JSON.stringify({sql: "SELECT count(*) FROM top"})}).then(a => a.json()).then(a => done(a.rows));
    """
    assert browser.execute_async_script(script) == [[19]]
    script = "return performance.getEntriesByType('resource').map(e => new URL(e.name).origin)"
    assert set(browser.execute_script(script)) == {browser.execute_script("return location.origin")}
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_the_page_says_when_the_node_is_gone(live: LiveNode, browser: webdriver.Chrome) -> None:
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    browser.save_screenshot(str(ARTEFACTS / "page.png"))
    live.node.stop()
    eventually(lambda: text(browser, "#status"), lambda found: found == "the node does not answer")
