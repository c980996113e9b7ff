"""A real Chromium for tests and benchmarks of the page, without a screen and without the network."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

from tests.serving.live import eventually

ROOT = Path(__file__).resolve().parents[2]
ARTEFACTS = ROOT / ".tools" / "artefacts"
AXE = ROOT / ".tools" / "axe" / "axe.min.js"
MISSING = not (shutil.which("chromium") and shutil.which("chromedriver")) and not os.environ.get("CI")
needs_chromium = pytest.mark.skipif(
    MISSING, reason="chromium is not installed: apt-get install chromium chromium-driver"
)
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


@contextmanager
def chromium(width: int, height: int) -> Iterator[webdriver.Chrome]:
    """A browser with a page of this size."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        options = Options()
        for flag in (*FLAGS, f"--user-data-dir={folder}", f"--window-size={width},{height}"):
            options.add_argument(flag)
        options.binary_location = str(shutil.which("chromium"))
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options, Service(str(shutil.which("chromedriver"))))
        try:
            resize(driver, width, height)
            yield driver
        finally:
            driver.quit()


def resize(browser: webdriver.Chrome, width: int, height: int) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def scheme(browser: webdriver.Chrome, name: str) -> None:
    """Light or dark, as the system would say."""
    media = {"features": [{"name": "prefers-color-scheme", "value": name}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)


def wait_ready(browser: webdriver.Chrome, screen: str) -> None:
    """Until the screen was brought up to date for the first time."""
    eventually(lambda: browser.execute_script("return document.body.dataset.ready"), lambda now: now == f"#/{screen}")


def go(browser: webdriver.Chrome, screen: str) -> None:
    """Open a screen."""
    browser.execute_script("delete document.body.dataset.ready; location.hash = arguments[0]", "#/none")
    browser.execute_script("delete document.body.dataset.ready; location.hash = arguments[0]", f"#/{screen}")
    wait_ready(browser, screen)


def text(browser: webdriver.Chrome, css: str) -> str:
    """The text of what is found there, read at once: the page redraws it meanwhile."""
    return str(browser.execute_script("return document.querySelector(arguments[0])?.innerText ?? ''", css))


def rows(browser: webdriver.Chrome, label: str) -> list[list[str]]:
    """The cells of a table, found by its label."""
    script = """
        const table = document.querySelector(`table[aria-label="${arguments[0]}"]`);
        return table ? [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.innerText)) : []
    """
    found: list[list[str]] = browser.execute_script(script, label)
    return found


def click(browser: webdriver.Chrome, css: str) -> None:
    browser.find_element(By.CSS_SELECTOR, css).click()


def write(browser: webdriver.Chrome, css: str, words: str) -> None:
    field = browser.find_element(By.CSS_SELECTOR, css)
    field.clear()
    field.send_keys(words)


def listed(browser: webdriver.Chrome) -> list[str]:
    """What a list of records shows, from the top."""
    script = """
        const items = [...document.querySelectorAll(".list .item")].filter((item) => !item.hidden);
        const top = (item) => item.getBoundingClientRect().top;
        return items.sort((a, b) => top(a) - top(b)).map((item) => item.innerText.replace(/\\s+/g, " "))
    """
    found: list[str] = browser.execute_script(script)
    return found


def confirm(browser: webdriver.Chrome) -> None:
    eventually(lambda: browser.find_element(By.ID, "ask").get_attribute("open"), bool)
    click(browser, "#ask-yes")


def kept(browser: webdriver.Chrome) -> list[str]:
    """The places of all records that a list keeps, from the top: it is scrolled through, for only what is in sight is
    there."""
    script = """
        const done = arguments[0], list = document.querySelector(".list"), found = new Map();
        const look = () => {
            for (const item of list.querySelectorAll(".item:not([hidden])")) {
                const row = Math.round(new DOMMatrix(item.style.transform).f / 27);
                found.set(row, item.querySelector(".place").textContent);
            }
            if (list.scrollTop + list.clientHeight >= list.scrollHeight - 1) {
                list.scrollTop = 0;
                return done([...found].sort((a, b) => a[0] - b[0]).map(([, place]) => place));
            }
            list.scrollTop += list.clientHeight / 2;
            requestAnimationFrame(() => requestAnimationFrame(look));
        };
        requestAnimationFrame(() => requestAnimationFrame(look));
    """
    found: list[str] = browser.execute_async_script(script)
    return found


def keep_shot(browser: webdriver.Chrome, name: str) -> None:
    """A screenshot among the artefacts."""
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    browser.save_screenshot(str(ARTEFACTS / f"{name}.png"))


def violations(browser: webdriver.Chrome) -> list[Any]:
    """What axe-core finds wrong with the page as it is."""
    if not browser.execute_script("return Boolean(window.axe)"):
        browser.execute_script(AXE.read_text())
    script = """
        const done = arguments[0];
        axe.run(document, { resultTypes: ["violations"] }).then((told) => done(told.violations.map((one) =>
            [one.id, one.help, one.nodes.slice(0, 3).map((at) => `${at.html.slice(0, 160)} ${at.any[0]?.message}`)])));
    """
    found: list[Any] = browser.execute_async_script(script)
    return found
