"""The page under load: 5,000 changes a second for half a minute, and how many frames a second Chromium draws meanwhile.

A real node, a real Chromium, and a producer that keeps its pace: first with the live tail of a topic open, then with a
view whose rows, chart and changes are redrawn. Printed: frames a second (all of it, and the worst second), the longest
pause between two frames, what the page said it got. It ends with 1 if that is not smooth, or if the load was not what
it should have been.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import confluent_kafka as ck
from selenium import webdriver
from tests.serving.browser import chromium, wait_ready
from tests.serving.live import LiveNode, eventually, live_node

FRAMES_WANTED = 30
WRITTEN_WANTED = 0.95
ROWS = 5000

COUNTER = """
    window.frames_drawn = [];
    window.frames_since = performance.now();
    const draw = (at) => { window.frames_drawn.push(at); requestAnimationFrame(draw); };
    requestAnimationFrame(draw);
"""


class Load(threading.Thread):
    """Writes so many records a second, in pieces of a twentieth of one: for ever, or ``total``. ``written`` are those
    that the node has taken, of ``due``, when it was told to end."""

    def __init__(self, node: LiveNode, topic: str, rate: int, total: int | None = None) -> None:
        super().__init__(daemon=True)
        self._producer = ck.Producer({"bootstrap.servers": node.node.bootstrap, "linger.ms": 5, "log_level": 0})
        self._topic, self._rate, self._total = topic, rate, total
        self.sent, self.written, self.due, self.ended = 0, 0, 0, threading.Event()

    def run(self) -> None:
        began = time.monotonic()
        while not self.ended.wait(0.05) and self.sent != self._total:
            due = self._due(began)
            for at in range(self.sent, due):
                row = change(at)
                key = json.dumps({"id": row["id"]})
                self._producer.produce(self._topic, json.dumps(row), key, on_delivery=self._delivered)
                if at % 500 == 0:
                    self._producer.poll(0)
            self.sent = max(self.sent, due)
            self._producer.poll(0)
        self.due = self._due(began)
        self._producer.flush(30)

    def _due(self, began: float) -> int:
        due = int((time.monotonic() - began) * self._rate)
        return due if self._total is None else min(due, self._total)

    def _delivered(self, error: ck.KafkaError | None, _: ck.Message) -> None:
        if error is None and not self.ended.is_set():
            self.written += 1


def change(at: int) -> dict[str, Any]:
    """What is written: there are 5,000 rows, each changed again and again."""
    return {"id": at % ROWS, "amount": at % 997 / 10, "region": ("EU", "US", "APAC")[at % 3]}


def measured(browser: webdriver.Chrome, seconds: float) -> dict[str, Any]:
    """Frames that the browser drew in so many seconds."""
    browser.execute_script(COUNTER)
    time.sleep(seconds)
    return frames(*browser.execute_script("return [frames_drawn, frames_since, performance.now()]"))


def frames(times: Sequence[float], began: float, ended: float) -> dict[str, Any]:
    """What came of frames drawn at these times, in milliseconds: seconds without any count, at the ends too."""
    drawn = Counter(int((at - began) // 1000) for at in times)
    return {
        "seconds": round((ended - began) / 1000, 1),
        "fps": round(len(times) * 1000 / (ended - began), 1),
        "worst_second": min(drawn[second] for second in range(int((ended - began) // 1000))),
        "longest_pause_ms": round(max(after - before for before, after in pairwise([began, *times, ended])), 1),
    }


def declare(node: LiveNode) -> None:
    """The view, whose topic the load is written to."""
    node.declare("bench", "live", ["id"], {"id": "bigint", "amount": "double", "region": "string"}, partitions=1)
    eventually(lambda: node.get("/views/bench.live"), lambda told: told[0] == 200)


def run(node: LiveNode, rate: int, seconds: float) -> list[dict[str, Any]]:
    """Both screens under load."""
    declare(node)
    results = []
    with chromium(1280, 900) as browser:
        for screen in ("topics/bench.live", "views/bench.live"):
            load = Load(node, "bench.live", rate)
            browser.get(f"{node.node.web}/#/{screen}")
            browser.refresh()
            wait_ready(browser, screen)
            load.start()
            told = measured(browser, seconds)
            load.ended.set()
            load.join()
            said = "tail-count" if screen.startswith("topics") else "change-count"
            text = browser.execute_script("return document.getElementById(arguments[0]).textContent", said)
            results.append(
                {"screen": screen, "rate": rate, "due": load.due, "written": load.written, **told, "page_says": text}
            )
    return results


def shortcomings(result: dict[str, Any]) -> list[str]:
    """What is not as it should be."""
    found = [
        f"{name} is {result[name]}, less than {FRAMES_WANTED}"
        for name in ("fps", "worst_second")
        if result[name] < FRAMES_WANTED
    ]
    if result["written"] < WRITTEN_WANTED * result["due"]:
        found.append(f"{result['written']} of {result['due']} records were written, less than {WRITTEN_WANTED:.0%}")
    return found


def main() -> None:
    """Print what was measured; end with 1 if it is not good enough."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, live_node(Path(folder)) as node:
        results = run(node, options.rate, options.seconds)
    for result in results:
        print(json.dumps(result), flush=True)
    short = [f"{result['screen']}: {what}" for result in results for what in shortcomings(result)]
    for line in short:
        print(line, file=sys.stderr)
    sys.exit(1 if short else 0)


if __name__ == "__main__":
    main()
