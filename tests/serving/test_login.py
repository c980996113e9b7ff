"""Logging in on the page, in a real Chromium: with the token that may look, then with the one that may change."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.serving.browser import chromium, go, keep_shot, needs_chromium, text, violations
from tests.serving.live import eventually
from tests.serving.stage import Stage

pytestmark = [pytest.mark.system, needs_chromium]

TOKEN, READ_TOKEN = "secret-of-the-operator", "secret-of-the-visitor"


def log_in(browser: webdriver.Chrome, token: str) -> None:
    eventually(lambda: browser.find_elements(By.ID, "token"), bool)
    field = browser.find_element(By.ID, "token")
    field.clear()
    field.send_keys(token)
    browser.find_element(By.CSS_SELECTOR, ".login button").click()


def test_a_token_is_asked_for_and_says_what_one_may_do(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"HEADRACE_TOKEN": TOKEN, "HEADRACE_READ_TOKEN": READ_TOKEN})
    try:
        stage.make("orders")
        with chromium(1280, 900) as browser:
            browser.get(f"{stage.node.web}/#/topics/orders")
            log_in(browser, "a guess")
            eventually(lambda: text(browser, "#login-wrong"), lambda said: "not a token" in said)
            assert violations(browser) == []
            keep_shot(browser, "login")
            log_in(browser, READ_TOKEN)
            eventually(lambda: text(browser, "h1"), lambda said: said == "Topics / orders")
            assert browser.find_elements(By.ID, "produce") == []
            assert text(browser, "#role") == "you may look, not change"
            assert browser.execute_script("return document.cookie") == ""
            browser.find_element(By.ID, "logout").click()
            log_in(browser, TOKEN)
            eventually(lambda: browser.find_elements(By.ID, "produce"), bool)
            go(browser, "overview")
            source = browser.page_source
            assert TOKEN not in source
            assert READ_TOKEN not in source
        assert TOKEN not in stage.node.output
        assert READ_TOKEN not in stage.node.output
    finally:
        stage.stop()
